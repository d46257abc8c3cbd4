"""kill -9 of every part in the middle of a replay: nothing is lost, nothing is said twice, late lines still revise."""

import os
import signal
from pathlib import Path

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.kafka import KafkaBroker
from tests.e2e.fleet import Fleet, Playing, as_cluster, expected, line_count
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow, pytest.mark.timeout(420)]

# 44 recorded minutes in about nine seconds: time enough to die in the middle.
SPEED = 300.0


class Story:
    """The bundled incident under a cluster of its own, with the lines that will come late held back."""

    def __init__(self, demo: Path, folder: Path, cluster: str) -> None:
        self.cluster = cluster
        self.whole = as_cluster(demo, folder / f"{cluster}-whole", cluster)
        self.early = as_cluster(demo, folder / f"{cluster}-early", cluster)
        self.late = as_cluster(demo, folder / f"{cluster}-late", cluster)
        (self.early / "gpu-102" / "kernel.kmsg").unlink()
        for log in self.late.rglob("*.log"):
            log.unlink()

    def check(self, fleet: Fleet) -> None:
        """After the early part: its verdict. Then the kernel log arrives, long after its time: the whole verdict."""
        fleet.wait_final(self.cluster, expected(self.early), timeout_s=90)
        fleet.assert_lines_once(self.cluster, line_count(self.early))
        fleet.assert_revisions_once(self.cluster)
        before = {i.incident_id for i in fleet.revisions(self.cluster)}

        Playing(fleet, self.late, run_id=self.early.name).wait_done()

        until(lambda: "hardware/gpu_xid_79" in {i.class_ for i in fleet.revisions(self.cluster)}, timeout_s=60)
        last = until(lambda: [i for i in fleet.revisions(self.cluster) if i.class_ == "hardware/gpu_xid_79"])[-1]
        assert last.incident_id in before
        assert (last.culprits[0].node, last.culprits[0].rank) == ("gpu-102", 5)
        fleet.assert_lines_once(self.cluster, line_count(self.whole))
        fleet.assert_revisions_once(self.cluster)


def test_the_worker_dies_with_several_investigations_open(fleet: Fleet, demo: Path, tmp_path: Path) -> None:
    stories = [Story(demo, tmp_path, f"worker-killed-{number}") for number in range(3)]
    playing = [Playing(fleet, story.early, speed=SPEED) for story in stories]
    playing[0].wait_share(0.6)

    fleet.workers[0].kill()
    fleet.add_worker()

    for play in playing:
        play.wait_done()
    for story in stories:
        story.check(fleet)


def test_the_worker_dies_on_a_fresh_group_with_one_old_event_held(fleet: Fleet, demo: Path, tmp_path: Path) -> None:
    """A group that never committed, one open investigation: its first event is read again, not passed."""
    fleet.workers.pop().stop()
    fleet.group = "fresh-group"
    fleet.add_worker()
    story = Story(demo, tmp_path, "fresh-group-killed")
    play = Playing(fleet, story.early, speed=SPEED)
    until(lambda: fleet.revisions("fresh-group-killed"), what="the first revision")

    fleet.workers[0].kill()
    fleet.add_worker()

    play.wait_done()
    story.check(fleet)


def test_the_broker_dies(fleet: Fleet, demo: Path, tmp_path: Path, mortal_broker: KafkaBroker) -> None:
    story = Story(demo, tmp_path, "broker-killed")
    play = Playing(fleet, story.early, speed=SPEED)
    play.wait_share(0.5)

    mortal_broker.kill()
    mortal_broker.start()

    play.wait_done()
    story.check(fleet)


def test_clickhouse_dies(fleet: Fleet, demo: Path, tmp_path: Path, mortal_clickhouse: ClickHouseServer) -> None:
    story = Story(demo, tmp_path, "clickhouse-killed")
    play = Playing(fleet, story.early, speed=SPEED)
    play.wait_share(0.5)

    mortal_clickhouse.kill()
    play.wait_done()
    mortal_clickhouse.start()

    story.check(fleet)


def test_a_shipper_dies(fleet: Fleet, demo: Path, tmp_path: Path) -> None:
    story = Story(demo, tmp_path, "shipper-killed")
    play = Playing(fleet, story.early, speed=SPEED)
    play.wait_share(0.5)
    shipper = play.replay.shippers[0]
    killed = shipper.pid
    assert killed is not None

    os.kill(killed, signal.SIGKILL)
    until(lambda: shipper.pid not in (None, killed), what="the shipper started again")

    play.wait_done()
    story.check(fleet)


def test_a_second_worker_joins_while_investigations_are_open(fleet: Fleet, demo: Path, tmp_path: Path) -> None:
    stories = [Story(demo, tmp_path, f"second-worker-{number}") for number in range(3)]
    playing = [Playing(fleet, story.early, speed=SPEED) for story in stories]
    playing[0].wait_share(0.5)

    fleet.add_worker()

    for play in playing:
        play.wait_done()
    for story in stories:
        story.check(fleet)
