"""A record counts only under its own key: nobody speaks for another node or job."""

from typing import Any

import msgspec
import pytest

from pipeline.agents.fold import Stage
from pipeline.agents.stages import align, detect, join
from pipeline.agents.states import States
from schemas import records as r
from schemas.codec import encode
from tests.agents.test_states import message

CLOCK = r.ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=1)
HERE: dict[str, Any] = {"run": "live", "run_id": "x", "cluster": "c", "reporter": "n1"}
SHIPPED: dict[str, Any] = {**HERE, "boot_id": "b", "shipper_id": "s", "clock": CLOCK}
PLACEMENT = r.Placement(
    run="drill", run_id="7", cluster="c", node="n1",
    spans=[r.PlacementSpan(job_id=job, start_unix_nano=1) for job in ("41", "42")],
)  # fmt: skip

FITTING = [
    (align(), "c/n1", r.RawBatch(**SHIPPED, batch_seq=1)),
    (align(), "replay:x/c/n1", msgspec.structs.replace(r.RawBatch(**SHIPPED, batch_seq=1), run="replay")),
    (align(), "c/n1", r.Progress(**SHIPPED, last_batch_seq=1)),
    (align(), "c/n1", r.Span(**HERE, node="n2", kind="boot", start_unix_nano=1)),
    (align(), "drill:7/c/n1", PLACEMENT),
    (detect(), "c/42/0", r.NodeProgress(**HERE, job_key="c/42/0", node="n1", through_unix_nano=1)),
    (detect(), "c/ü/0", r.JobAlias(run="live", run_id="x", cluster="c", job_key="c/ü/0", aliases=["c/y/0"], why="w")),
    (detect(), "drill:7/c/42/0", PLACEMENT),
    (join(), "c/42/0", r.Verdict(verdict_id="v", job_key="c/42/0", withdrawn=True)),
]


@pytest.mark.parametrize(("stage", "key", "record"), FITTING)
def test_a_record_under_its_own_key_is_read(stage: Stage, key: str, record: msgspec.Struct) -> None:
    assert stage.decode(key.encode(), encode(record)) == record


@pytest.mark.parametrize("wrong", [None, b"", b"c/n2", b"c/42/1", b"replay:x/c/n9", b"\xff\xfe"])
@pytest.mark.parametrize(("stage", "key", "record"), FITTING)
def test_a_record_under_another_key_is_a_dead_letter_that_names_both(
    stage: Stage, key: str, record: msgspec.Struct, wrong: bytes | None
) -> None:
    entity, outputs = States(stage, "snapshots").advance(message(5, encode(record), key=wrong))
    assert entity is None
    (letter,) = [output.record for output in outputs]
    assert isinstance(letter, r.DeadLetter)
    assert letter.reason.startswith(f"UnreadableRecordError: key {'none' if wrong is None else chr(39)}")
    assert "does not fit the record of " in letter.reason
    assert key in letter.reason
    assert letter.offset == 5


def test_a_key_of_megabytes_does_not_make_a_reason_of_megabytes() -> None:
    with pytest.raises(ValueError, match="does not fit") as caught:
        align().decode(b"k" * 5_000_000, encode(r.Progress(**SHIPPED, last_batch_seq=1)))
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("partition", range(4))
def test_a_record_in_a_partition_that_is_not_its_keys_is_a_dead_letter(partition: int) -> None:
    record = encode(r.Progress(**SHIPPED, last_batch_seq=1))
    read = message(5, record, key=b"c/n1")
    read.partition = partition
    entity, outputs = States(align(), "snapshots").advance(read)
    if partition == 0:
        assert entity is not None
        return
    assert entity is None
    (letter,) = [output.record for output in outputs]
    assert isinstance(letter, r.DeadLetter)
    assert f"partition {partition} is not that of its key, 0 by murmur2" in letter.reason
