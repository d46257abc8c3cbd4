"""Whatever is killed in the middle: every output is there, and no state misses a message or has one twice."""

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.embedded.kafka import KafkaBroker
from tests.agents.conftest import Stage, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
Make = Callable[..., Stage]


def kill(worker: Any) -> None:
    worker.kill()
    worker.wait()


def test_one_old_event_held_on_a_fresh_group_survives_kill_9(make_stage: Make) -> None:
    stage = make_stage(partitions=1, tick_s=0.1, entity_age_s=3600)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("old")
    stage.send("busy", 1000, close=True)
    stage.flush()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "all is processed")
    # Faust commits once a second; three seconds of more traffic would show a commit past the held event.
    end = time.monotonic() + 3
    while time.monotonic() < end:
        stage.send("busy", 5, close=True)
        stage.flush()
        assert stage.committed()[0] == 0
    kill(worker)
    assert stage.committed()[0] == 0
    stage.start_worker()
    stage.finish()


def test_one_old_event_held_in_the_middle_survives_kill_9(make_stage: Make) -> None:
    stage = make_stage(instance="one", partitions=1, tick_s=0.1, entity_age_s=3600)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("busy", 500, close=True)
    stage.flush()
    eventually(lambda: stage.committed()[0] == 500, "the first 500 are committed")
    stage.send("old")
    stage.send("busy", 500, close=True)
    stage.flush()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "all is processed")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert stage.committed()[0] == 500
    kill(worker)
    stage.start_worker()
    stage.finish()


def test_entities_open_at_different_ages_survive_three_kills(make_stage: Make) -> None:
    stage = make_stage(instance="one", tick_s=0.2, entity_age_s=1.0, entity_messages=300)
    for life in range(3):
        worker = stage.start_worker()
        stage.ready(life)
        for step in range(12):
            for entity in range(20):
                stage.send(f"e{entity}", 1 + entity * 5, close=entity % 3 == 0 and step % 2 == 0)
            if step == 4 * life:
                stage.send(f"once-{life}")
            stage.flush()
            eventually(lambda: 2 * len(stage.output_ids()) >= len(stage.expected_ids()), "half is out")
        kill(worker)
    stage.start_worker()
    outputs = stage.finish()
    assert len(outputs) > len(stage.expected_ids()), "nothing was read twice: the kills came too late to prove much"


def test_a_second_worker_joins_and_dies_in_the_middle(make_stage: Make) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=5.0)
    stage.start_worker()
    stage.ready(0)
    for number in range(3):
        for entity in range(20):
            stage.send(f"e{entity}", 100)
        stage.flush()
        if number == 0:
            stage.start_worker()
            stage.ready(1)
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "all is processed")
    assert "Worker ready" in stage.log(1)
    for entity in range(20):
        stage.send(f"e{entity}", 100)
    stage.flush()
    kill(stage.workers[1])
    for entity in range(20):
        stage.send(f"e{entity}", 100)
    stage.finish()


def test_a_worker_that_was_paused_past_its_session_does_no_harm(make_stage: Make) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=1.0)
    first = stage.start_worker()
    stage.ready(0)
    stage.send("busy", 2000)
    stage.flush()
    eventually(lambda: len(stage.output_ids()) > 200, "it works")
    first.send_signal(signal.SIGSTOP)
    stage.send("busy", 2000)
    for entity in range(20):
        stage.send(f"e{entity}", 100)
    stage.flush()
    stage.start_worker()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "the other one took over")
    first.send_signal(signal.SIGCONT)
    for _ in range(5):
        for entity in range(20):
            stage.send(f"e{entity}", 50)
        stage.flush()
        eventually(lambda: stage.output_ids() == stage.expected_ids(), "both work")
    kill(stage.workers[0])
    kill(stage.workers[1])
    stage.start_worker()
    stage.finish()


def test_broker_kill_9_and_restart(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=1.0)
    stage.start_worker()
    stage.ready(0)
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.flush()
    eventually(lambda: len(stage.output_ids()) > 500, "it works")
    broker.kill()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        stage.send("during", 10)
        time.sleep(0.1)
    broker.start()
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.flush()
    stage.finish()
    eventually(stage.all_committed, "all is committed again")


def test_sigterm_saves_everything_and_ends_within_seconds(make_stage: Make) -> None:
    stage = make_stage(tick_s=60, entity_age_s=3600)
    worker = stage.start_worker()
    stage.ready(0)
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.flush()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "all is processed")
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(timeout=10) == 0
    assert time.monotonic() - began < 5
    assert stage.all_committed()
    stage.start_worker()
    outputs = stage.finish()
    assert len(outputs) == len(stage.expected_ids()), "a message was read twice after a clean shutdown"


def test_sigterm_in_the_middle_of_traffic(make_stage: Make) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=1.0)
    worker = stage.start_worker()
    stage.ready(0)
    for entity in range(20):
        stage.send(f"e{entity}", 500)
    stage.flush()
    eventually(lambda: len(stage.output_ids()) > 100, "it works")
    worker.terminate()
    assert worker.wait(timeout=10) == 0
    stage.start_worker()
    outputs = stage.finish()
    assert len(outputs) == len(stage.expected_ids()), "a message was read twice after a clean shutdown"


def test_states_are_saved_when_traffic_stops(make_stage: Make) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=1.0)
    stage.start_worker()
    for entity in range(20):
        stage.ready(0)
        stage.send(f"e{entity}", 10)
    stage.flush()
    eventually(stage.all_committed, "all is committed without another message", 20)


def test_a_snapshot_of_several_megabytes_survives_kill_9(make_stage: Make) -> None:
    stage = make_stage(instance="one", tick_s=0.1, entity_age_s=0.5)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("heavy", ballast_bytes=3_000_000)
    stage.flush()
    eventually(stage.all_committed, "the snapshot is written")
    kill(worker)
    stage.start_worker()
    outputs = stage.finish()
    assert outputs[-1]["ballast"] == 6_000_000


def test_bad_messages_become_dead_letters_and_their_neighbours_are_processed(make_stage: Make) -> None:
    stage = make_stage(partitions=1, tick_s=0.2, entity_age_s=0.5)
    stage.start_worker()
    stage.ready(0)
    stage.send("good", 3)
    stage.send_raw(b"good", b"\xff\x00 no json")
    stage.send_raw(b"good", None)
    stage.send_raw(None, b"[1, 2]")
    stage.send_raw(b"good", b'{"n": 99, "poison": true}')
    stage.send("good", 3)
    stage.finish()
    letters = [(message.value() or b"").decode() for message in stage.read(".dead")]
    assert [f"{stage.prefix}.in/0/{offset}" in letter for offset, letter in zip(range(3, 7), letters, strict=True)]
    assert "poison" in letters[-1]
    eventually(stage.all_committed, "bad messages do not hold back the rest")


def letters(stage: Stage) -> dict[str, dict[str, str]]:
    found = [json.loads(message.value() or b"") for message in stage.read(".dead")]
    return {letter["id"].split("/", 1)[1]: letter for letter in found}


def test_an_output_that_cannot_be_encoded_is_a_dead_letter_and_its_neighbours_are_processed(make_stage: Make) -> None:
    stage = make_stage(partitions=1, tick_s=0.2, entity_age_s=0.5)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("good", 3)
    stage.send_raw(b"other", b'{"n": 1, "huge": true}')
    stage.send("good", 3)
    stage.finish()
    eventually(stage.all_committed, "it does not hold back the rest")
    assert list(letters(stage)) == ["0/3"]
    assert "64-bit" in letters(stage)["0/3"]["reason"]
    assert "huge" in letters(stage)["0/3"]["data"]
    assert worker.poll() is None
    assert "starting again" not in stage.log()


def test_an_output_too_large_for_its_topic_or_for_the_client_is_a_dead_letter(make_stage: Make) -> None:
    stage = make_stage(partitions=1, tick_s=0.2, entity_age_s=0.5)
    stage.start_worker()
    stage.ready(0)
    stage.send("good", 3)
    stage.send_raw(b"other", b'{"n": 1, "wide_bytes": 2000000}')
    stage.send_raw(b"other", b'{"n": 2, "wide_bytes": 20000000}')
    stage.send("good", 3)
    stage.finish()
    eventually(stage.all_committed, "they do not hold back the rest")
    found = letters(stage)
    assert set(found) == {"0/3", "0/4"}
    assert all("too large for topic" in letter["reason"] and "wide" in letter["data"] for letter in found.values())
    assert "starting again" not in stage.log()


def test_a_flood_of_bad_messages_stops_the_worker_and_a_good_one_in_between_does_not(make_stage: Make) -> None:
    stage = make_stage(partitions=1, tick_s=0.2, entity_age_s=0.5, flood_messages=5)
    worker = stage.start_worker()
    stage.ready(0)
    for _ in range(3):
        for bad in (b"no json", b'{"n": 0, "poison": true}', b'{"n": 0, "huge": true}', b"no", b"no"):
            stage.send_raw(b"e", bad)
        stage.send("good")
    stage.flush()
    eventually(lambda: stage.expected_ids() <= stage.output_ids(), "the good ones are processed")
    assert worker.poll() is None
    for _ in range(6):
        stage.send_raw(b"e", b"no json")
    stage.flush()
    assert worker.wait(30) == 4
    assert f"6 messages in a row of topic {stage.prefix}.in partition 0 cannot be used, offsets 18 to 23" in stage.log()
    (said,) = [line for line in stage.log().splitlines() if "worker stopped:" in line]
    assert "JSONDecodeError" in said
    assert {f"0/{offset}" for offset in range(18, 24)} <= set(letters(stage))


def test_a_state_too_large_to_save_is_said_once_works_on_and_holds_up_nobody_for_ever(make_stage: Make) -> None:
    stage = make_stage(instance="one", partitions=1, tick_s=0.1, entity_age_s=0.5, held_messages=200)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("heavy", 2)
    stage.flush()
    eventually(stage.all_committed, "the small state is saved")
    stage.send("heavy", ballast_bytes=20_000_000)
    stage.flush()
    eventually(lambda: "cannot save the state of entity b'heavy'" in stage.log(), "it is said")
    stage.send("busy", 100)
    stage.send("heavy")
    stage.flush()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "everybody works on")
    assert stage.committed() == {0: 2}, "its messages are held while they are few"
    stage.send("busy", 400)
    stage.flush()
    eventually(lambda: stage.committed()[0] > 200, "it does not hold up the partition for ever")
    assert "gap: stage numbers acknowledges" in stage.log()
    stage.finish()
    assert stage.log().count("cannot save the state") == 1
    assert "starting again" not in stage.log()
    assert worker.poll() is None
    kill(worker)
    stage.start_worker()
    stage.send("heavy", state=True)
    stage.flush()
    eventually(lambda: stage.output_ids() == stage.expected_ids(), "the next worker goes on")
    seen = [output["seen"] for output in stage.outputs() if output["id"] == f"heavy/{stage.sent['heavy'] - 1}"]
    assert seen[0][:2] == [0, 1], "it goes on from the last snapshot that fitted"


def test_messages_held_are_bounded(make_stage: Make) -> None:
    stage = make_stage(tick_s=60, entity_age_s=3600, held_messages=200)
    stage.start_worker()
    stage.ready(0)
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.finish()
    # No tick and no age lets these go: only the bound does, whenever a worker comes to it.
    eventually(lambda: sum(stage.committed().values()) > 3000, "all but the bound is acknowledged")


def test_two_stages_in_one_worker_survive_kill_9_and_a_second_worker(make_stage: Make) -> None:
    stage = make_stage(stages=2, tick_s=0.2, entity_age_s=1.0)
    first = stage.start_worker()
    stage.ready(0)
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.flush()
    eventually(lambda: len(stage.output_ids()) > 500, "it works")
    kill(first)
    stage.start_worker()
    stage.start_worker()
    for entity in range(20):
        stage.send(f"e{entity}", 200)
    stage.finish()
    eventually(lambda: {o["id"] for o in stage.outputs(".last")} == stage.expected_ids(), "the second stage has all")
    counts: dict[str, int] = {}
    for output in stage.outputs(".last"):
        entity, number = output["id"].split("/")
        counts[entity] = max(counts.get(entity, 0), output["count"])
        assert output["count"] == int(number) + 1
    assert counts == stage.sent


def test_kafka_away_at_the_start_is_waited_for_and_said_once(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage(tick_s=0.2)
    broker.kill()
    worker = stage.start_worker()
    eventually(lambda: "waiting for it" in stage.log(), "it says that it waits")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert worker.poll() is None
        time.sleep(0.1)
    assert stage.log().count("waiting for it") == 1
    assert len([line for line in stage.log().splitlines() if " ERROR " in line or " WARNING " in line]) <= 3
    broker.start()
    stage.send("late", 10)
    stage.finish()


def test_kafka_away_at_the_start_does_not_hinder_sigterm(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage()
    broker.kill()
    try:
        worker = stage.start_worker()
        eventually(lambda: "waiting for it" in stage.log(), "it says that it waits")
        worker.terminate()
        assert worker.wait(timeout=5) == 0
    finally:
        broker.start()


def test_sigterm_while_kafka_is_away_ends_within_seconds(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage(tick_s=0.2)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("e", 500)
    stage.flush()
    broker.kill()
    try:
        worker.terminate()
        assert worker.wait(timeout=30) is not None
    finally:
        broker.start()
    stage.start_worker()
    stage.finish()


def test_a_hole_of_the_log_is_read_again_once_and_then_accepted(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage(partitions=1, tick_s=0.2, entity_age_s=0.5)
    stage.start_worker()
    stage.ready(0)
    stage.send("e", 3)
    stage.flush()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": stage.prefix})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(f"{stage.prefix}.in", key=b"e", value=b'{"n": 3}')
    producer.commit_transaction()
    eventually(lambda: stage.ends() == {0: 5}, "the commit marker takes an offset")
    stage.sent["e"] += 1
    stage.send("e", 3)
    stage.finish()
    assert stage.log().count("starting again") == 1
    assert "offset 4 was expected, 5 came" in stage.log()


def test_an_entity_without_messages_is_forgotten(make_stage: Make) -> None:
    stage = make_stage(tick_s=0.2, entity_age_s=0.5, forget_after_s=3)
    stage.start_worker()
    stage.ready(0)
    stage.send("gone", 3)
    stage.flush()
    eventually(
        lambda: [m.value() for m in stage.read("-group-numbers-changelog") if m.key() == b"gone"][-1:] == [None],
        "its snapshot is deleted",
    )
    stage.send_raw(b"gone", b'{"n": 0, "state": true}')
    stage.flush()
    eventually(lambda: [o["seen"] for o in stage.outputs() if o["seen"]] == [[0]], "it starts anew")


def test_a_source_topic_that_was_made_anew_is_refused(make_stage: Make, broker: KafkaBroker) -> None:
    stage = make_stage(instance="one", tick_s=0.2, entity_age_s=0.5)
    worker = stage.start_worker()
    stage.ready(0)
    stage.send("e", 10)
    stage.flush()
    eventually(stage.all_committed, "all is committed")
    worker.terminate()
    assert worker.wait(10) == 0
    admin, topic = AdminClient({"bootstrap.servers": broker.bootstrap}), f"{stage.prefix}.in"
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    assert stage.start_worker().wait(30) == 4
    assert "it was made anew" in stage.log(1)
