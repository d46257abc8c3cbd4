"""What is not a record of its topic is refused with a reason, and with nothing but UnreadableRecordError."""

import contextlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import VERSION, UnreadableRecordError, decode, decode_bytes, encode, encode_bytes
from schemas.records import ClockReading, RawBatch, RawLine
from schemas.topics import TOPICS

EXAMPLES = Path(str(files("schemas"))) / "v1" / "examples"
RAW_BATCH = (EXAMPLES / "raw_batch" / "full.json").read_bytes()
TOPIC_NAMES = [topic.name for topic in TOPICS]
NO_CLOCK = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)


def raw_batch(**changes: object) -> bytes:
    return orjson.dumps(orjson.loads(RAW_BATCH) | changes)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "empty message"),
        (b"", "not JSON"),
        (b"\x00\xff\xfe garbage", "not JSON"),
        (RAW_BATCH[: len(RAW_BATCH) // 2], "not JSON"),
        (b'{"record": "raw_batch", "v": 1, "run": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a JSON object but list"),
        (b"{}", "record None does not belong to topic raw"),
        (raw_batch(record="incident"), "record 'incident' does not belong to topic raw"),
        (raw_batch(record=["raw_batch"]), "record ['raw_batch'] does not belong to topic raw"),
        (raw_batch(record={"raw": "batch"}), "does not belong to topic raw"),
        (raw_batch(v=2), "unknown version 2 of raw_batch; this reads 1"),
        (raw_batch(v=None), "unknown version None of raw_batch"),
        (raw_batch(v="1"), "unknown version '1' of raw_batch"),
        (raw_batch(v=True), "unknown version True of raw_batch"),
        (raw_batch(batch_seq="one"), "raw_batch: Expected `int`, got `str` - at `$.batch_seq`"),
        (raw_batch(run="weekly"), "raw_batch: Invalid enum value 'weekly' - at `$.run`"),
        (raw_batch(records=[{"seq": 1}]), "raw_batch: Object missing required field `source` - at `$.records[0]`"),
        (raw_batch(cluster=None), "raw_batch: Expected `str`, got `null` - at `$.cluster`"),
    ],
)
def test_an_unreadable_message_is_refused_with_the_reason(data: bytes | None, reason: str) -> None:
    with pytest.raises(UnreadableRecordError) as refused:
        decode("raw", data)
    assert reason in str(refused.value)


@pytest.mark.parametrize("field", ["record", "v", "run", "batch_seq"])
def test_a_reason_stays_short_whatever_was_in_the_message(field: str) -> None:
    with pytest.raises(UnreadableRecordError) as refused:
        decode("raw", raw_batch(**{field: "x" * 1_000_000}))
    assert len(str(refused.value)) < 300


def test_a_record_carries_its_name_and_version_on_the_wire() -> None:
    batch = RawBatch(
        run="live", run_id="", cluster="c", reporter="r", boot_id="b", shipper_id="s", batch_seq=1, clock=NO_CLOCK
    )
    shape = orjson.loads(encode(batch))
    assert (shape["record"], shape["v"]) == ("raw_batch", VERSION)


def test_what_is_not_known_is_not_on_the_wire() -> None:
    line = RawLine(seq=1, source="a", generation="g", offset=0, body="x")
    batch = RawBatch(
        run="live", run_id="", cluster="c", reporter="r", boot_id="b", shipper_id="s", batch_seq=1, clock=NO_CLOCK,
        records=[line],
    )  # fmt: skip
    shape = orjson.loads(encode(batch))
    assert shape["records"] == [{"seq": 1, "source": "a", "generation": "g", "offset": 0, "body": "x"}]
    assert "machine_id" not in shape


text = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.lists(
        st.builds(
            RawLine,
            seq=st.integers(0, 2**63 - 1), source=text, generation=text, offset=st.integers(0, 2**63 - 1), body=text,
            line_no=st.none() | st.integers(0, 2**63 - 1), time_unix_nano=st.none() | st.integers(-(2**63), 2**63 - 1),
            attributes=st.dictionaries(text, text, max_size=3), truncated=st.booleans(),
        ),
        max_size=3,
    )
)  # fmt: skip
def test_a_record_of_any_content_survives_the_wire(lines: list[RawLine]) -> None:
    batch = RawBatch(
        run="live", run_id="", cluster="c", reporter="r", boot_id="b", shipper_id="s", batch_seq=1, clock=NO_CLOCK,
        records=lines,
    )  # fmt: skip
    assert decode("raw", encode(batch)) == batch


def never_another_error(topic: str, data: bytes) -> None:
    with contextlib.suppress(UnreadableRecordError):
        decode(topic, data)


@given(st.sampled_from(TOPIC_NAMES), st.binary())
def test_no_bytes_raise_anything_else(topic: str, data: bytes) -> None:
    never_another_error(topic, data)


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(TOPIC_NAMES), json, st.none() | json, st.none() | json)
def test_no_json_raises_anything_else(topic: str, shape: Any, record: Any, version: Any) -> None:
    if isinstance(shape, dict):
        shape |= {"record": record, "v": version}
    never_another_error(topic, orjson.dumps(shape))


@given(st.sampled_from(sorted(EXAMPLES.glob("*/*.json"))), st.sampled_from(TOPIC_NAMES), st.data())
def test_no_change_of_one_field_of_a_real_record_raises_anything_else(path: Path, topic: str, data: Any) -> None:
    shape = orjson.loads(path.read_bytes())
    shape[data.draw(st.sampled_from(sorted(shape)))] = data.draw(json)
    never_another_error(topic, orjson.dumps(shape))


@given(st.sampled_from(sorted(EXAMPLES.glob("*/*.json"))), st.sampled_from(TOPIC_NAMES), st.integers(0, 4000))
def test_no_truncation_of_a_real_record_raises_anything_else(path: Path, topic: str, length: int) -> None:
    never_another_error(topic, path.read_bytes()[:length])


@given(st.binary())
def test_bytes_of_a_dead_letter_come_back(data: bytes) -> None:
    assert decode_bytes(encode_bytes(data)) == data
