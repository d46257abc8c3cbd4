"""Topics are declared once and consistently."""

import re

import msgspec
import pytest

from schemas import records
from schemas.codec import tag_of
from schemas.topics import (
    BY_NAME,
    CLOCK_BEACON,
    DAY_MS,
    EVENTS,
    HOUR_MS,
    INCIDENTS,
    PLACEMENT,
    RAW,
    TOPICS,
    VERDICTS,
    Topic,
    key_of,
)

EVERY = pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(TOPICS)


@EVERY
def test_a_name_is_one_that_kafka_takes(topic: Topic) -> None:
    assert re.fullmatch(r"[a-z0-9.]{1,100}", topic.name)


def test_names_stay_apart_where_kafka_metrics_turn_dots_into_underscores() -> None:
    assert len({name.replace(".", "_") for name in BY_NAME}) == len(TOPICS)


@EVERY
def test_a_topic_says_what_its_key_is_and_carries_records(topic: Topic) -> None:
    assert topic.key
    assert topic.records


def test_every_record_is_on_a_topic() -> None:
    declared = {
        kind for kind in vars(records).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
    }  # fmt: skip
    assert declared - {records.Record} == {record for topic in TOPICS for record in topic.records}


def test_no_two_records_have_the_same_name_on_the_wire() -> None:
    kinds = {record for topic in TOPICS for record in topic.records}
    assert len({tag_of(kind) for kind in kinds}) == len(kinds)


@EVERY
def test_the_broker_stamps_every_message_so_that_no_clock_of_a_node_is_believed(topic: Topic) -> None:
    assert topic.settings()["message.timestamp.type"] == "LogAppendTime"


@EVERY
def test_settings_are_complete_and_text(topic: Topic) -> None:
    settings = topic.settings()
    assert {"cleanup.policy", "retention.ms", "message.timestamp.type", "max.message.bytes"} <= settings.keys()
    assert all(isinstance(value, str) for value in settings.values())
    assert int(settings["retention.ms"]) > 0


@EVERY
def test_a_compacted_topic_keeps_every_revision_for_a_week(topic: Topic) -> None:
    lag = topic.settings().get("min.compaction.lag.ms")
    assert lag == (str(7 * DAY_MS) if "compact" in topic.cleanup else None)


def test_raw_and_placement_are_co_partitioned() -> None:
    assert RAW.partitions == PLACEMENT.partitions


def test_join_sees_everything_in_one_partition() -> None:
    assert (VERDICTS.partitions, INCIDENTS.partitions) == (1, 1)


def test_placement_about_another_node_can_travel_on_raw() -> None:
    assert records.Placement in RAW.records


def test_the_unions_of_records_are_those_of_their_topics() -> None:
    assert set(records.RawRecord.__args__) == set(RAW.records)
    assert set(records.EventRecord.__args__) == set(EVENTS.records)


def test_a_key_is_cluster_and_name_in_utf_8() -> None:
    assert key_of("live", "x", "münchen", "gpu-1") == "münchen/gpu-1".encode()


def test_a_replay_never_meets_the_live_keys_nor_another_replay() -> None:
    keys = {key_of(run, run_id, "c", "n") for run, run_id in (("live", "a"), ("replay", "a"), ("replay", "b"))}
    assert len(keys) == 3


def test_beacons_are_stamped_by_each_broker_and_gone_after_some_hours() -> None:
    settings = CLOCK_BEACON.settings()

    assert CLOCK_BEACON.partitions == 0  # one a broker
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert int(settings["retention.ms"]) <= 6 * HOUR_MS
    assert int(settings["segment.ms"]) <= HOUR_MS
