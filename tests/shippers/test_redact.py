"""Secrets are found wherever they stand, nothing else is taken out, and no line takes long."""

import time
import tomllib
from itertools import islice
from pathlib import Path

import pytest

from schemas.records import Gap, RawLine
from shippers.config import ConfigError, RedactSettings
from shippers.redact import Redactor, redactor_for
from shippers.redact_open import Memory
from shippers.redact_patterns import Pattern, kinds, load_rules
from tests import noise
from tests.corpus_cases import CORPUS
from tests.shippers.secrets.planted import Planted, planted

ROOT = Path(__file__).parents[2]
PLANTED = list(planted())
KEY_LINES = ["MIIEow" + "Ab3/" * 14 + "xy", "Zz9+" * 16, "Q" * 64, "s3cR4w=="]


def lines(*bodies: str, source: str = "s", truncated: bool = False) -> list[RawLine]:
    return [
        RawLine(seq=number, source=source, generation="g", offset=number, body=body, truncated=truncated)
        for number, body in enumerate(bodies)
    ]


def shown(redactor: Redactor, *bodies: str, memory: Memory | None = None) -> list[str]:
    return [line.body for line in redactor.lines(lines(*bodies), Memory() if memory is None else memory)]


def parts_of(value: str) -> list[str]:
    """What must not be left: the value, and of a long one each part of twelve characters."""
    return [value, *(value[at : at + 12] for at in range(0, len(value) - 12, 4))]


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(RedactSettings())


# --- found ----------------------------------------------------------------------------------------------------------


def test_the_corpus_holds_two_hundred_secrets_of_twenty_kinds() -> None:
    assert len(PLANTED) >= 200
    assert len({each.kind for each in PLANTED}) >= 20
    assert {each.kind for each in PLANTED} == set(kinds())


@pytest.mark.parametrize("secret", PLANTED, ids=[f"{each.kind}-{number}" for number, each in enumerate(PLANTED)])
def test_a_planted_secret_is_found(redactor: Redactor, secret: Planted) -> None:
    (left,) = shown(redactor, secret.line)

    assert "[redacted:" in left
    assert not [part for part in parts_of(secret.value) if part in left]


def test_all_secrets_are_found_among_other_lines_in_one_pass(redactor: Redactor) -> None:
    bodies = [
        body for secret, other in zip(PLANTED, noise.lines(len(PLANTED)), strict=True) for body in (secret.line, other)
    ]
    left = shown(redactor, *bodies)

    assert left[1::2] == bodies[1::2]
    assert not [secret for secret, body in zip(PLANTED, left[::2], strict=True) if secret.value in body]


def test_what_is_redacted_stays_as_it_is(redactor: Redactor) -> None:
    once = shown(redactor, *(each.line for each in PLANTED))

    assert shown(redactor, *once) == once


# --- left alone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "trn-007:20003:20059 [3] NCCL INFO comm 0x55d4aa01b2c0 rank 3 nRanks 512 commId 0x8f3a1bcd22ee4f01 - Init",
        "GPU 3 UUID GPU-8f3a1bcd-22ee-4f01-9a77-0123456789ab serial 1652922010113 PCI 0000:3b:00.0",
        "checked out 3f786850e387550fdab836ed7e6dc881de23001b of main (sha256:" + "ab12" * 16 + ")",
        "env: MASTER_ADDR=trn-000.cluster.local MASTER_PORT=29500 SLURM_JOB_ID=77123 PWD=/root/work OLDPWD=/root",
        "mlx5_0: GUID fe80:0000:0000:0000:0c42:a103:0065:7c0a at 0x7f3a1234567890ab lid 4242424242424242",
        "tokens/s: 350000, pad_token_id=0, eos_token='</s>', bos_token: <s>, max_new_tokens=512, num_tokens: 4096",
        "Failed password for root from 10.77.0.9 port 40022 ssh2",
        "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
        "systemd[1]: Started getty@tty1.service, user@1000.service.",
        "ssh root@trn-007.cluster.local; git clone git@github.com:team/repo.git",
        "Lustre: scratch-MDT0000-mdc-ffff8a3c: Connection to 10.77.0.1@o2ib lost, memcpy@GLIBC_2.14",
        "password_file=/run/secrets/db api_key=None password: *** token=${HF_TOKEN} secret={{ vault }}",
        "[I ProcessGroupNCCL.cpp:852] [PG ID 0 PG GUID 0(default_pg) Rank 3] key: default_pg/0//cuda//timeline_0",
        "step 17 time 1772600767123456789 samples 4000000000000001 seqnum 5105105105105106",
        "saving to s3://ckpt/run7/iter_0000100/mp_rank_00/model_optim_rng.pt",
        "rdzv_id=8e1b0a3c-11d2-4c55-9f01-aa55bb66cc77 rdzv_endpoint=trn-000:29400 sk-learn disk-0123456789",
        "basic block optimizations: secret sauce, bearer of bad news, private key exchange done",
    ],
)
def test_what_a_diagnosis_needs_is_left(redactor: Redactor, body: str) -> None:
    assert shown(redactor, body) == [body]


def test_ordinary_lines_are_left_alone(redactor: Redactor) -> None:
    bodies = list(islice(noise.mixed(30_000, 100), 30_000))
    changed = [body for body, left in zip(bodies, shown(redactor, *bodies), strict=True) if body != left]

    assert len(changed) < len(bodies) / 1000, changed[:5]


def test_what_the_agent_tells_itself_is_left(redactor: Redactor) -> None:
    """Else the pipeline would not know its lines again: the examples of all signals that only the agent may tell."""
    signals = [
        signal
        for path in sorted((ROOT / "schemas" / "signals").glob("*.toml"))
        for signal in tomllib.loads(path.read_text(encoding="utf-8")).get("signal", [])
        if signal.get("told_by") == "telemetry"
    ]
    told = [example["line"] for signal in signals for example in signal["matches"]]

    assert len(told) > 50
    assert [line for line in told if shown(redactor, line) != [line]] == []


def test_no_line_of_the_corpus_changes_so_no_verdict_does(redactor: Redactor) -> None:
    """Events are addressed by source, generation and offset, and a body that is the same tells the same."""
    files = [path for path in sorted(CORPUS.glob("*/logs/**/*")) if path.is_file()]
    changed = []
    for path in files:
        bodies = path.read_text(encoding="utf-8", errors="replace").split("\n")
        left = shown(redactor, *bodies)
        changed += [(path.name, body) for body, now in zip(bodies, left, strict=True) if body != now]

    assert len(files) > 200
    assert changed == []


# --- more than one line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2026-03-04T05:06:{n:02d}.{n:03d}+00:00 trn-007 app[42]: "])
def test_the_lines_of_a_private_key_are_taken_out_and_those_around_it_stay(redactor: Redactor, prefix: str) -> None:
    key = ["-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES, "-----END RSA PRIVATE KEY-----"]
    other = "[rank7]: step 12 loss 1.25 done"
    bodies = [prefix.format(n=number) + text for number, text in enumerate(key)]
    told = ["before it", *bodies[:3], other, *bodies[3:], prefix.format(n=9) + "ready"]
    memory = Memory()
    left = shown(redactor, *told[:4], memory=memory) + shown(redactor, *told[4:], memory=memory)

    assert [left[0], left[4], left[-1]] == [told[0], other, told[-1]]
    assert not [part for text in KEY_LINES for part in parts_of(text) if part in "\n".join(left)]
    assert not memory


def test_a_restart_in_the_middle_of_a_key_does_not_let_out_its_rest(redactor: Redactor) -> None:
    memory = Memory()
    shown(redactor, "-----BEGIN PRIVATE KEY-----", KEY_LINES[0], memory=memory)
    saved = memory.position()
    again = Memory.of(saved)

    assert KEY_LINES[0][:12] not in saved.generations[0].memo
    assert shown(redactor, *KEY_LINES[1:], memory=again) == ["[redacted:private-key]"] * 3


def test_a_key_that_never_ends_is_forgotten_and_other_files_are_not_touched(redactor: Redactor) -> None:
    memory = Memory()
    shown(redactor, "-----BEGIN PRIVATE KEY-----", memory=memory)
    other = redactor.lines(lines("done", source="other"), memory)[0].body
    shown(redactor, *["step 1 of 2"] * 200, memory=memory)

    assert other == "done"
    assert not memory


def test_the_data_of_a_kubernetes_secret_are_taken_out_of_yaml(redactor: Redactor) -> None:
    bodies = ["apiVersion: v1", "data:", "  url: aHR0cHM6Ly9leGFtcGxl", "kind: Secret", "metadata:", "  name: db"]
    left = shown(redactor, *bodies)

    assert left == [*bodies[:2], "  url: [redacted:kubernetes-secret]", *bodies[3:]]


PIECES = {
    "cri": ("2026-03-04T05:06:07.1Z stderr {mark} {text}", ("P", "F")),
    "docker": ('{{"log":"{text}{mark}","stream":"stdout","time":"2026-03-04T05:06:07.1Z"}}', ("", "\\n")),
}


@pytest.mark.parametrize("shape", sorted(PIECES))
@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("using ", "ghp_" + "aB3dE6gH9" * 4),
        ("db password=", "hunter2hunter2hunter2"),
        ("Authorization: Bearer ", "zX9yW8vU7tS6rQ5pO4nM3"),
        ("key nvapi-", "aB3dE6gH9_" * 6),
        ("at https://deploy:", "sEcReT1234pass"),
    ],
)
def test_a_secret_that_is_cut_into_two_pieces_of_a_line_is_found(
    redactor: Redactor, shape: str, before: str, value: str
) -> None:
    form, marks = PIECES[shape]
    text = f"{before}{value}{'@git.example.com' if 'https' in before else ''} and on"
    for cut in range(1, text.index(" and on") + 1):
        pieces = [form.format(mark=mark, text=part) for mark, part in zip(marks, (text[:cut], text[cut:]), strict=True)]
        memory = Memory()
        left = [body for piece in pieces for body in shown(redactor, piece, memory=memory)]
        secret = value[-8:]
        assert secret not in "".join(left), (cut, left)
        assert not [part for body in left for part in parts_of(value) if part in body], (cut, left)
        assert "and on" in left[1]
        assert not memory.carries


def test_a_secret_that_a_cut_off_line_ends_with_is_found(redactor: Redactor) -> None:
    (line,) = redactor.lines(lines("x" * 300 + " token hf_abcDEF", truncated=True), Memory())

    assert line.body.endswith(" token hf_[redacted:token]")


# --- wherever it stands ---------------------------------------------------------------------------------------------


def test_attributes_names_and_reasons_are_redacted(redactor: Redactor) -> None:
    token = "ghp_" + "a1B2c3" * 6
    line = RawLine(
        seq=0, source="s", generation="g", offset=0, body="x",
        attributes={"_CMDLINE": f"train --hub {token}", "DB_PASSWORD": "two words", "SUBSYSTEM": "pci"},
    )  # fmt: skip
    (left,) = redactor.lines([line], Memory())
    gap = redactor.gap(Gap(source="s", reason=f"/logs/{token}.log: gone"))
    names = {redactor.name(f"logs/{token}.log"), redactor.name(f"logs/{token[:-1]}9.log"), redactor.name("logs/a.log")}

    assert left.attributes == {
        "_CMDLINE": "train --hub [redacted:github-token]", "DB_PASSWORD": "[redacted:secret]", "SUBSYSTEM": "pci",
    }  # fmt: skip
    assert gap.reason == "/logs/[redacted:github-token].log: gone"
    assert len(names) == 3
    assert not [name for name in names if token[:12] in name]


# --- settings -------------------------------------------------------------------------------------------------------


def test_kinds_can_be_kept_and_all_of_it_switched_off() -> None:
    body = "mail someone@example.com password=hunter2"

    assert shown(Redactor(RedactSettings(off=("email",))), body) == [
        "mail someone@example.com password=[redacted:password]"
    ]
    assert shown(Redactor(RedactSettings(enabled=False)), body) == [body]


def test_patterns_of_the_settings_are_looked_for_with_and_without_hints() -> None:
    settings = RedactSettings(
        pattern=(
            Pattern(kind="badge", pattern=r"EMP-[0-9]{6}", hints=("EMP-",)),
            Pattern(kind="site", pattern=r"(?<=site )(?P<secret>[A-Z]{3})"),
        )
    )

    assert shown(Redactor(settings), "badge EMP-123456 at site ABC") == [
        "badge [redacted:badge] at site [redacted:site]"
    ]


def test_a_pattern_of_the_settings_may_say_where_a_line_begins_or_ends() -> None:
    settings = RedactSettings(
        pattern=(Pattern(kind="badge", pattern=r"^EMP-[0-9]{6}"), Pattern(kind="site", pattern=r"site-[A-Z]{3}$"))
    )

    assert shown(Redactor(settings), "first", "EMP-123456 at site-ABC", "last") == [
        "first", "[redacted:badge] at [redacted:site]", "last",
    ]  # fmt: skip


def test_attributes_of_many_lines_are_told_apart(redactor: Redactor) -> None:
    token = "ghp_" + "a1B2c3" * 6
    said = [{"n": "1"}, {"n": token}, {"API_KEY": "two words"}, {}, {"n": "1"}]
    told = [
        RawLine(seq=number, source="s", generation="g", offset=number, body="x", attributes=each)
        for number, each in enumerate(said)
    ]

    left = [line.attributes for line in redactor.lines(told, Memory())]

    assert left == [{"n": "1"}, {"n": "[redacted:github-token]"}, {"API_KEY": "[redacted:secret]"}, {}, {"n": "1"}]


def test_equal_secrets_have_equal_fingerprints_under_one_key(tmp_path: Path) -> None:
    first, second = (
        Redactor(RedactSettings(fingerprint=True), b"1" * 32),
        Redactor(RedactSettings(fingerprint=True), b"2" * 32),
    )
    one, two = shown(first, "password=hunter2", "password=hunter3")
    key = tmp_path / "key"
    key.write_bytes(b"shared")
    shared = [
        redactor_for(RedactSettings(fingerprint=True, fingerprint_key_file=str(key)), own) for own in (b"1", b"2")
    ]

    assert one != two
    assert shown(first, "passwd=hunter2")[0].partition("=")[2] == one.partition("=")[2]
    assert shown(second, "password=hunter2") != [one]
    assert shown(shared[0], "password=hunter2") == shown(shared[1], "password=hunter2")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (Pattern(kind="x", pattern="a+b"), "has no end"),
        (Pattern(kind="x", pattern="(a{1,9}){1,9}b"), "inside another"),
        (Pattern(kind="x", pattern="a{1,200}b{1,200}c{1,200}d"), "too long together"),
        (Pattern(kind="x", pattern="(a"), "not a regular expression"),
        (Pattern(kind="x", pattern="a?"), "empty text"),
        (Pattern(kind="Big One", pattern="a"), "a kind is"),
        (Pattern(kind="x", pattern="a", check="luhn"), "only kind, pattern and hints"),
    ],
)
def test_a_pattern_that_could_do_harm_is_refused_with_what_is_wrong(pattern: Pattern, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Redactor(RedactSettings(pattern=(pattern,)))


def test_an_unknown_kind_and_a_key_that_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no kind; there are: .*email"):
        Redactor(RedactSettings(off=("emial",)))
    with pytest.raises(ConfigError, match="cannot be read"):
        redactor_for(RedactSettings(fingerprint_key_file=str(tmp_path / "none")))


# --- time -----------------------------------------------------------------------------------------------------------

HINTS = sorted({hint.decode() for rule in load_rules().patterns for hint in rule.hints})


def test_no_line_of_hints_takes_long(redactor: Redactor) -> None:
    """A quarter of a megabyte of each literal, in all of them together: microseconds a byte, not a square of them."""
    began_s = time.process_time()
    for hint in (*HINTS, "a://b:", "x@a.", "4111 ", "-----BEGIN PRIVATE KEY-----", 'password="', "eyJa", "data:{"):
        redactor.lines(lines((hint * 8192)[:8192] + "@ secret token=", truncated=True), Memory())

    assert time.process_time() - began_s < 30
