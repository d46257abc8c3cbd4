"""States that cannot be saved, and messages that cannot be used, without a broker."""

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.agents.dead_letter import dead_letter
from pipeline.agents.flood import Flood, FloodError
from pipeline.agents.fold import BadMessage, Output, Pace, Stage
from pipeline.agents.states import Entity, States, timestamp_ns
from schemas.codec import decode, encode


class Touchy:
    """Cannot be saved while it is angry."""

    wants_snapshot = True

    def __init__(self, angry: bool) -> None:
        self.angry = angry

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        self.angry = record == b"angry"
        return ()

    def snapshot(self) -> bytes:
        if self.angry:
            raise TypeError("Integer exceeds 64-bit range")
        return b"calm"


def states() -> States:
    return States(
        Stage(
            name="touchy", source_topic="in", partitions=1, decode=lambda key, value: value, encode=encode,
            new=lambda key: Touchy(False), restore=lambda key, state: Touchy(False), on_bad=dead_letter, pace=Pace(),
        ),
        "snapshots",
    )  # fmt: skip


def message(offset: int, value: bytes | None = None, key: bytes | None = b"k", timestamp: float = 1.0) -> Any:
    return SimpleNamespace(topic="in", partition=0, offset=offset, key=key, value=value, timestamp=timestamp)


def taken(all_: States, offset: int, value: bytes) -> Entity:
    entity, _ = all_.advance(message(offset, value))
    assert entity is not None
    return entity


def test_a_state_that_cannot_be_encoded_is_said_once_and_not_tried_at_every_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    all_ = states()
    entity = taken(all_, 0, b"angry")
    assert all_.due(60.0) == [entity]
    assert all_.plan(entity) is None
    taken(all_, 1, b"angry")
    assert all_.due(1.0) == []
    assert all_.due(0.0) == [entity]
    assert all_.plan(entity) is None
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "b'k'" in caplog.text
    assert "64-bit" in caplog.text


def test_what_is_let_go_is_named_and_is_what_the_broker_has_the_outputs_of(caplog: pytest.LogCaptureFixture) -> None:
    all_ = states()
    entity = taken(all_, 0, b"angry")
    all_.let_go({0: 1})
    assert entity.saved == -1, "only what cannot be saved is let go"
    all_.plan(entity)
    for offset in range(1, 5):
        taken(all_, offset, b"angry")
    all_.let_go({0: 3})
    assert entity.saved == 2
    all_.let_go({0: 3})
    assert caplog.text.count("gap: ") == 1
    assert "up to offset 2" in caplog.text


def test_a_state_that_can_be_saved_again_is_saved_as_ever() -> None:
    all_ = states()
    entity = taken(all_, 0, b"angry")
    all_.plan(entity)
    all_.let_go({0: 1})
    taken(all_, 1, b"calm")
    planned = all_.plan(entity)
    assert planned is not None
    all_.saved([planned])
    assert (entity.saved, all_.is_unsaved(b"k")) == (1, False)
    taken(all_, 2, b"calm")
    assert all_.due(60.0) == [entity], "it is asked at once again"


def bad(offset: int, partition: int = 0, reason: str = "odd") -> BadMessage:
    return BadMessage(
        topic="in", partition=partition, offset=offset, key=b"k", value=b"v", reason=reason, now_ns=1_000_000_000
    )


def test_bad_messages_of_other_partitions_are_no_row() -> None:
    flood = Flood("s", 2)
    for offset in range(2):
        for partition in range(3):
            flood.bad(bad(offset, partition))
            flood.bad(bad(offset, partition, "and another reason"))
            flood.check(partition, offset)
    flood.check(1, 2)
    for offset in (3, 4):
        flood.bad(bad(offset, 1))
        flood.check(1, offset)
    flood.bad(bad(2, 0, "the last straw"))
    with pytest.raises(FloodError, match=r"3 messages in a row of topic in partition 0 .* 0 to 2; .* the last straw"):
        flood.check(0, 2)


@pytest.mark.parametrize("reason", ["\ud800", "x" * 10_000_000])
def test_a_dead_letter_can_always_be_sent(reason: str) -> None:
    letter = dead_letter(
        BadMessage(
            topic="raw", partition=0, offset=2**63 - 1, key=b"\xff" * 9_000_000, value=b"\0" * 9_000_000,
            reason=reason, now_ns=timestamp_ns(message(0, timestamp=1e18)),
        )
    )  # fmt: skip
    data = encode(letter.record)
    assert len(data) < 2 * 1024 * 1024
    assert decode(letter.topic, data) == letter.record


def test_a_time_of_nonsense_becomes_the_nearest_that_can_be_kept() -> None:
    assert [timestamp_ns(message(0, timestamp=t)) for t in (-0.001, 1.5, 1e18)] == [0, 1_500_000_000, 2**63 - 1]
