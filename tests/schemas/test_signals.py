"""Every signal file is a test: its examples match and give what they say, its near misses do not."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.parse import parse_line
from schemas import signals, values
from schemas.matching import Prefix, SignalFileError, load_prefixes, pattern_files
from schemas.signal_files import Example, NearMiss, Signal
from schemas.signals import SignalSet

SIGNALS = signals.load()
EXAMPLES = [(signal, example) for signal in SIGNALS.signals for example in signal.matches]
MISSES = [(signal, miss) for signal in SIGNALS.signals for miss in signal.misses]
NEVER_A_CAUSE = ["43", "45", "154", "63", "160", "156"]

ONE = """
emitter = "x"
checked_against = "1"
references = ["https://example.org"]
order = 1
[[signal]]
id = "x.one"
event = "x.one"
hints = ["one thing"]
pattern = '''one thing (?P<n>\\d+)'''
types = { n = "int" }
role = "cause"
scope = "node"
severity = "error"
label = "software/crash"
[[signal.matches]]
line = "one thing 7"
gives = { n = "7" }
[[signal.misses]]
line = "one thing"
[[signal.misses]]
line = "two things 7"
"""


def name_of(value: object) -> str:
    return value.id if isinstance(value, Signal) else ""


@pytest.mark.parametrize(("signal", "example"), EXAMPLES, ids=name_of)
def test_an_example_matches_its_signal_and_gives_its_attributes(signal: Signal, example: Example) -> None:
    match = SIGNALS.match(example.line)
    assert match is not None
    assert match.signal == signal.id
    assert match.attributes == example.gives
    assert match.role == (example.role or match.role)
    assert match.label == (example.label or match.label)


@pytest.mark.parametrize(("signal", "miss"), MISSES, ids=name_of)
def test_a_near_miss_does_not_match(signal: Signal, miss: NearMiss) -> None:
    match = SIGNALS.match(miss.line)
    assert match is None or match.signal != signal.id


@pytest.mark.parametrize(("signal", "example"), EXAMPLES, ids=name_of)
def test_an_example_has_a_hint_and_is_found_behind_its_prefixes(signal: Signal, example: Example) -> None:
    assert any(hint in example.line for hint in signal.hints + signal.parts)
    for prefix in ("", "[default3]:[rank3]: ", "2026-03-04T05:06:07.000001+00:00 gpu03 kernel: ", "\x1b[31m"):
        assert SIGNALS.look(prefix + example.line) > 0


def test_every_override_is_of_an_attribute_of_its_signal() -> None:
    for signal in SIGNALS.signals:
        for attribute, changes in signal.by.items():
            named = (*signal.renames.values(), *signal.decoded)
            groups = {**signal.sets, **signal.types, **dict.fromkeys(named, "")}
            assert attribute in groups, f"{signal.id}: {attribute}"
            assert changes


def test_ids_are_unique_and_events_are_dotted() -> None:
    ids = [signal.id for signal in SIGNALS.signals]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", signal.event) for signal in SIGNALS.signals)


def test_no_two_files_claim_the_same_place_in_the_order() -> None:
    orders = [file.order for file in SIGNALS.files.values()]
    assert len(orders) == len(set(orders))


@pytest.mark.parametrize("xid", NEVER_A_CAUSE)
def test_an_xid_that_only_reports_is_never_a_cause(xid: str) -> None:
    match = SIGNALS.match(f"NVRM: Xid (PCI:0000:5d:00): {xid}, Ch 00000008")
    assert match is not None
    assert match.role != "cause"


def test_an_xid_names_its_gpu_as_subject() -> None:
    match = SIGNALS.match("NVRM: Xid (PCI:0000:5D:00): 79, pid=12, name=nv smi, GPU has fallen off the bus.")
    assert match is not None
    assert match.subject.pci_bus_id == "0000:5d:00.0"
    assert match.subject.pid is None
    assert (match.role, match.label, match.severity, match.scope) == (
        "cause", "hardware/gpu_fell_off_bus", "fatal", "gpu",
    )  # fmt: skip


def test_every_number_of_the_xid_table_is_known() -> None:
    for number in range(1, 177):
        match = SIGNALS.match(f"NVRM: Xid (PCI:0000:5d:00): {number}, text")
        assert match is not None
        assert match.attributes["xid"] == str(number)


@pytest.mark.parametrize(
    ("spelling", "normal"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("GPU0000:3B:00.0", "0000:3b:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("0018:01:00", "0018:01:00.0"),
    ],
)
def test_pci_addresses_have_one_spelling(spelling: str, normal: str) -> None:
    assert values.pci(spelling) == normal


@pytest.mark.parametrize(("packed", "normal"), [("4e000", "0000:4e:00.0"), ("1801000", "0018:01:00.0")])
def test_nccl_bus_ids_become_pci_addresses(packed: str, normal: str) -> None:
    assert values.busid(packed) == normal


def test_details_are_searched_only_behind_what_the_pattern_found() -> None:
    changed = 'types = { n = "int", m = "int" }\ndetails = ["thing (?P<m>\\\\d)", "and (?P<m>\\\\d)"]'
    contents = ONE.replace('types = { n = "int" }', changed).encode()
    match = SignalSet({"mine": contents}).match("one thing 7 and 8")
    assert match is not None
    assert match.attributes == {"n": "7", "m": "8"}


def test_a_block_completes_the_line_that_takes_it() -> None:
    lines = ["  host      : gpu17", "  rank      : 21 (local_rank: 5)", "  exitcode  : -9 (pid: 90210)"]
    carried: dict[str, str] = {}
    for line in lines[:-1]:
        match = SIGNALS.match(line)
        assert match is not None
        assert match.carries == "child_failed"
        carried |= match.attributes
    last = SIGNALS.match(lines[-1])
    assert last is not None
    assert last.takes == "child_failed"
    done = SIGNALS.completed(last, carried)
    assert done.attributes == {
        "host": "gpu17", "rank": "21", "local_rank": "5", "exitcode": "-9", "pid": "90210",
    }  # fmt: skip
    assert (done.subject.node, done.subject.rank, done.subject.local_rank, done.subject.pid) == ("gpu17", 21, 5, 90210)


def test_every_block_that_is_taken_is_carried() -> None:
    carried = {signal.carries for signal in SIGNALS.signals if signal.carries}
    assert {signal.takes for signal in SIGNALS.signals if signal.takes} == carried


def test_the_digest_changes_with_any_file() -> None:
    contents = dict(pattern_files())
    assert SignalSet(contents).digest == SIGNALS.digest
    contents["gloo"] += b"# changed\n"
    assert SignalSet(contents).digest != SIGNALS.digest


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('label = "software/crash"', 'label = "software/nothing"', "label"),
        ('scope = "node"', 'scope = "planet"', "scope"),
        ('role = "cause"', 'role = "culprit"', "role"),
        ('severity = "error"', 'severity = "bad"', "severity"),
        ('types = { n = "int" }', "types = { }", "types"),
        ('types = { n = "int" }', 'types = { n = "number" }', "types"),
        ("(?P<n>", "(?P<n", "pattern"),
        ('event = "x.one"', 'event = "one"', "event"),
        ('types = { n = "int" }', 'types = { n = "int", m = "int" }\ndetails = ["(?P<m>"]', "details"),
        ('event = "x.one"', 'event = "x.one"\ndecode = "tea_leaves"', "decode"),
        ('event = "x.one"', 'event = "x.one"\nsubject = { planet = "n" }', "subject"),
        ('event = "x.one"', 'event = "x.one"\nsubject = { rank = "m" }', "subject"),
        ('hints = ["one thing"]', "hints = []", "hints"),
        ('[[signal.misses]]\nline = "two things 7"', "", "misses"),
        ('role = "cause"', 'role = "cause"\ncolour = "red"', "colour"),
    ],
)
def test_a_wrong_file_is_refused_with_file_signal_and_field(old: str, new: str, told: str) -> None:
    assert old in ONE
    with pytest.raises(SignalFileError) as caught:
        SignalSet({"mine": ONE.replace(old, new).encode()})
    assert "mine.toml" in str(caught.value)
    assert "x.one" in str(caught.value)
    assert told in str(caught.value)


def test_a_second_use_of_an_id_is_refused() -> None:
    with pytest.raises(SignalFileError, match=r"x\.one.*twice"):
        SignalSet({"mine": ONE.encode(), "yours": ONE.encode()})


def test_the_first_file_in_the_order_wins() -> None:
    other = ONE.replace("order = 1", "order = 2").replace('"x.one"', '"y.one"')
    match = SignalSet({"a": other.encode(), "b": ONE.encode()}).match("one thing 7")
    assert match is not None
    assert match.signal == "x.one"


@given(st.text())
def test_any_text_can_be_matched(text: str) -> None:
    SIGNALS.match(text)
    SIGNALS.look(text)


@given(st.text(max_size=20), st.sampled_from(EXAMPLES), st.text(max_size=20))
def test_damaged_examples_never_raise(before: str, pair: tuple[Signal, Example], after: str) -> None:
    line = pair[1].line
    SIGNALS.match(before + line[len(before) :] + after)
    SIGNALS.match(line[: len(after)] + before)


@pytest.mark.parametrize("signal", SIGNALS.signals, ids=name_of)
def test_a_line_of_100_kb_made_of_one_example_takes_little_time(signal: Signal) -> None:
    line = (signal.matches[0].line + " ") * (100_000 // len(signal.matches[0].line))
    halves = (signal.matches[0].line[: len(signal.matches[0].line) // 2] + " ") * 4_000
    start = time.process_time()
    SIGNALS.match(line)
    SIGNALS.match(f"{halves} {line}")
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("prefix", load_prefixes().prefixes, ids=lambda prefix: prefix.entry.name)
def test_a_prefix_takes_off_its_examples_and_leaves_its_misses(prefix: Prefix) -> None:
    entry, match, starts = prefix.entry, prefix.match, prefix.starts
    for line in entry.matches:
        assert match(line, 0) is not None, line
        assert starts(line[:2]), line
        parsed = parse_line(line if entry.after is None else f"2026-03-04T05:06:07Z {line}")
        assert entry.name in parsed.wrappers, line
        body = parsed.body.removeprefix("NCCL WARN ")  # a signal reads the level
        # What must stand behind a prefix stays.
        assert body == "hello" or ("(?=" in entry.pattern and body.endswith("hello")), line
    for line in entry.misses:
        assert match(line, 0) is None, line


def test_every_signal_of_the_release_compiles() -> None:
    """A release compiles a signal when a line first needs it; here all are."""
    assert len(SignalSet(pattern_files()).signals) == len(SIGNALS.signals)
