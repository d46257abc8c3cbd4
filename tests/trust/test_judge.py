"""Each way in which a signature can fail has a reason of its own; a good one has none."""

from pathlib import Path

import msgspec
import pytest

from pipeline.core.trust import Judged
from pipeline.trust.judge import LOOK_AGAIN_S, Judge, Policy, TrustSettings
from pipeline.trust.keys import KeysError, load_keys
from schemas.codec import decode, encode
from schemas.records import Progress, RawBatch, Release
from schemas.topics import RAW
from tests.trust.signed import NOW_NS, TestKey, batch, progress, release, write_keys

OF_N1 = TestKey("k1")
OF_N2 = TestKey("k2", "n2")
EXPIRED = TestKey("old", more={"valid_until": "2026-03-11T10:31:50Z"})
LATER = TestKey("new", more={"valid_from": "2026-03-11T10:31:51Z"})
REVOKED = TestKey("lost", more={"revoked": "true"})
OPERATOR = TestKey("ops", "")
KEYS = (OF_N1, OF_N2, EXPIRED, LATER, REVOKED, OPERATOR)


class Clock:
    """A clock that is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.toml", *KEYS)


def judged(keys: Path, data: bytes, policy: Policy = "require", now_ns: int = NOW_NS) -> Judged:
    found = Judge(TrustSettings(policy=policy, keys=keys)).examine(decode(RAW.name, data), data, now_ns)
    assert isinstance(found, Judged)
    return found


@pytest.mark.parametrize("record", [batch("one"), batch(), progress()])
def test_a_record_that_its_reporter_signed_is_proven(keys: Path, record: RawBatch | Progress) -> None:
    found = judged(keys, OF_N1.sign(record))
    assert (found.doubt, found.counts) == ("", False)
    assert msgspec.structs.replace(found.record, signature=None, key_id=None) == record  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("data", "doubt"),
    [
        (encode(batch("one")), "not signed"),
        (encode(batch("one", key_id="k1", signature="c2lnbmVk")), "not signed"),
        (TestKey("k9").sign(batch("one")), "signed with key 'k9', which is not known"),
        (OF_N2.sign(batch("one")), "signed with key 'k2', which is of another reporter"),
        (OF_N1.sign(batch("one", cluster="d")), "signed with key 'k1', which is of another reporter"),
        (TestKey("k1").sign(batch("one")), "altered, or signed by somebody else under this key's name ('k1')"),
        (
            OF_N1.sign(batch("one")).replace(b'"one"', b'"two"'),
            "altered, or signed by somebody else under this key's name ('k1')",
        ),
        (EXPIRED.sign(batch("one")), "key old has expired on 2026-03-11 10:31:50 UTC"),
        (LATER.sign(batch("one")), "key new counts only from 2026-03-11 10:31:51 UTC"),
        (REVOKED.sign(batch("one")), "key lost is revoked"),
        (OPERATOR.sign(batch("one")), "signed with key 'ops', which is not known"),
        (OF_N1.sign(release(batch("one"))), "signed with key 'k1', which is not known"),
        (OPERATOR.sign(release(batch("one"))), ""),
    ],
)  # fmt: skip
def test_why_a_record_is_not_believed(keys: Path, data: bytes, doubt: str) -> None:
    assert judged(keys, data).doubt == doubt


def test_a_signature_covers_every_byte_before_it(keys: Path) -> None:
    data = OF_N1.sign(batch("one"))
    for place in range(1, data.index(b',"signature"'), 7):
        altered = bytearray(data)
        altered[place] ^= 1
        judge = Judge(TrustSettings(policy="require", keys=keys))
        found = judge.examine(msgspec.structs.replace(batch("one"), key_id="k1"), bytes(altered), NOW_NS)
        assert isinstance(found, Judged)
        assert found.doubt.startswith("altered")


def test_what_fails_counts_where_the_policy_is_to_warn_but_a_release_never_does(keys: Path) -> None:
    assert judged(keys, encode(batch("one")), "warn").counts
    assert not judged(keys, encode(release(batch("one"))), "warn").counts
    assert not judged(keys, OF_N1.sign(batch("one")), "warn").counts


def test_replays_and_drills_are_not_looked_at_and_neither_is_anything_where_the_policy_is_off(keys: Path) -> None:
    replayed = batch("one", run="replay")
    assert Judge(TrustSettings(policy="require", keys=keys)).examine(replayed, encode(replayed), NOW_NS) is replayed
    pretended = batch("one", run="post_mortem")
    assert judged(keys, encode(pretended)).doubt == "not signed"
    live = batch("one")
    assert Judge(TrustSettings()).examine(live, encode(live), NOW_NS) is live


def test_two_keys_of_a_reporter_count_together_while_one_takes_over(tmp_path: Path) -> None:
    old = TestKey("old", more={"valid_until": "2026-03-11T12:00:00Z"})
    new = TestKey("new", more={"valid_from": "2026-03-11T10:00:00Z"})
    keys = write_keys(tmp_path / "keys.toml", old, new)
    assert judged(keys, old.sign(batch("one"))).doubt == ""
    assert judged(keys, new.sign(batch("one"))).doubt == ""
    later_ns = NOW_NS + 7200 * 10**9
    assert judged(keys, old.sign(batch("one")), now_ns=later_ns).doubt.startswith("key old has expired")
    assert judged(keys, new.sign(batch("one")), now_ns=later_ns).doubt == ""


def test_key_files_are_read_again_when_they_change_and_bad_ones_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, now = tmp_path / "keys", Clock()
    folder.mkdir()
    write_keys(folder / "n1.toml", OF_N1)
    judge = Judge(TrustSettings(policy="require", keys=folder), now)

    def doubt(key: TestKey, reporter: str) -> str:
        now.now_s += 2 * LOOK_AGAIN_S
        data = key.sign(batch("one", reporter=reporter))
        found = judge.examine(decode(RAW.name, data), data, NOW_NS)
        assert isinstance(found, Judged)
        return found.doubt

    assert doubt(OF_N2, "n2") == "signed with key 'k2', which is not known"
    write_keys(folder / "n2.toml", OF_N2)
    assert doubt(OF_N2, "n2") == ""
    (folder / "n3.toml").write_text("[[key]]\nkey_id = 3\n", encoding="utf-8")
    assert doubt(OF_N2, "n2") == ""
    assert doubt(OF_N2, "n2") == ""
    assert len([each for each in caplog.records if "n3.toml" in each.message]) == 1
    (folder / "n3.toml").unlink()
    (folder / "n2.toml").unlink()
    assert doubt(OF_N2, "n2") == "signed with key 'k2', which is not known"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[key]]\nkey_id = 'a'\npublic = 'AAAA'\ncluster = 'c'\nreporter = 'n'\n", "has not 32 bytes"),
        ("[[key]]\nkey_id = 'a'\npublic = '!'\ncluster = 'c'\nreporter = 'n'\n", "no base64"),
        (OF_N1.table.replace("reporter", "node"), "unknown field"),
        (OPERATOR.table.replace("[[operator]]", "[[key]]"), "needs cluster and reporter"),
        ("[[key", "keys.toml: "),
    ],
    ids=["short", "no base64", "unknown field", "an operator's", "no TOML"],
)
def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "keys.toml").write_text(text, encoding="utf-8")
    with pytest.raises(KeysError, match=r"keys\.toml") as caught:
        load_keys(tmp_path / "keys.toml")
    assert says in str(caught.value)


def test_a_policy_without_keys_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="give --trust-keys"):
        Judge(TrustSettings(policy="require"))
    with pytest.raises(KeysError, match="correct --trust-keys"):
        Judge(TrustSettings(policy="warn", keys=tmp_path / "gone"))


def test_a_release_is_read_from_the_wire_as_it_was_signed(keys: Path) -> None:
    record = judged(keys, OPERATOR.sign(release(batch("one")))).record
    assert isinstance(record, Release)
    assert record.batch == batch("one")
