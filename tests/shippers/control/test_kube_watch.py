"""Watching a fake API server over real sockets: what is told, and that nothing is told twice or lost silently."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shippers.control.kube_access import Access
from shippers.control.kube_api import Api
from shippers.control.kube_events import Events
from shippers.control.kube_jobs import JobObjects
from shippers.control.kube_nodes import Head, Nodes
from shippers.control.kube_placed import Placed
from shippers.control.kube_pods import Pods
from shippers.control.kube_watch import Kind, KindWatcher
from shippers.control.told import Line, Outlet, Step
from tests.shippers.control.api_server import FakeApi, serving
from tests.shippers.control.shapes import EVENTS, JOBS, NODES, PODS, WORKLOADS, ended, event, node, pod
from tests.shippers.fakes import eventually

HEAD = Head(run="live", run_id="live", cluster="pool", reporter="control")
NOW_NS = 1_772_600_000 * 10**9


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with serving(FakeApi()) as api:
        yield api


class Watch:
    """A watcher at work, and what it has told so far."""

    def __init__(self, watcher: KindWatcher, position: str) -> None:
        self.outlet = Outlet(watcher.name)
        self.steps: list[Step] = []
        self._thread = threading.Thread(target=watcher.run, args=(position, self.outlet), daemon=True)
        self._thread.start()

    def lines(self) -> list[Line]:
        self.steps += self.outlet.take(1000)
        return [line for step in self.steps for line in step.lines]

    def texts(self) -> list[str]:
        return [line.text for line in self.lines()]

    def gaps(self) -> list[str]:
        self.lines()
        return [gap.reason for step in self.steps for gap in step.gaps]

    def stop(self) -> str:
        self.outlet.stopping.set()
        self._thread.join(5)
        self.lines()
        return self.steps[-1].position if self.steps else ""


def api_of(fake: FakeApi, token_file: Path | None = None) -> Api:
    return Api(Access(host="127.0.0.1", port=fake.port, token_file=token_file), 5.0)


@contextmanager
def watching(
    fake: FakeApi, kind: Kind, position: str = "", token_file: Path | None = None, silence_s: float = 2.0
) -> Iterator[Watch]:
    watcher = KindWatcher(
        kind, api_of(fake, token_file), age_ns=None, wait_s=5, silence_s=silence_s, refused_s=0.1, now_ns=lambda: NOW_NS
    )  # fmt: skip
    watch = Watch(watcher, position)
    try:
        yield watch
    finally:
        watch.stop()


def events() -> Events:
    return Events(Placed(), ("Pulled",))


def test_what_is_there_is_listed_in_pages_and_what_comes_is_told_as_it_comes(fake: FakeApi) -> None:
    fake.page = 2
    for number in range(5):
        fake.put(EVENTS, event(f"e{number}", "Evicted", f"low on memory {number}"))
    with watching(fake, events()) as watch:
        assert eventually(lambda: len(watch.lines()) == 5, "five events")
        fake.put(EVENTS, event("e5", "Preempted", "Preempted by pod 7c1d on node gpu17"))
        assert eventually(lambda: len(watch.lines()) == 6, "the sixth event")
        assert watch.texts()[-1] == (
            "kubectl events: LASTSEEN=0s, TYPE=Warning, REASON=Preempted, OBJECT=pod/train-1, "
            "MESSAGE=Preempted by pod 7c1d on node gpu17"
        )
        assert watch.lines()[-1].body.startswith("2026-03-04T05:06:07Z kubectl events: ")


def test_an_event_is_named_by_its_uid_and_count_whoever_reads_it(fake: FakeApi) -> None:
    fake.put(EVENTS, event("e1", "BackOff", "Back-off restarting failed container"))
    with watching(fake, events()) as first, watching(fake, events()) as second:
        assert eventually(lambda: len(first.lines()) == len(second.lines()) == 1, "the event")
        fake.put(EVENTS, event("e1", "BackOff", "Back-off restarting failed container", count=2))
        assert eventually(lambda: len(first.lines()) == len(second.lines()) == 2, "its second occurrence")
        assert first.lines() == second.lines()
        assert [(line.generation, line.offset) for line in first.lines()] == [("e1", 1), ("e1", 2)]


def test_events_that_healthy_pods_cause_are_left_out_unless_they_warn(fake: FakeApi) -> None:
    fake.put(EVENTS, event("e1", "Pulled", "image is there", type="Normal"))
    fake.put(EVENTS, event("e2", "Pulled", "image is there but odd"))
    with watching(fake, events()) as watch:
        assert eventually(lambda: watch.lines(), "the warning")
        assert [line.generation for line in watch.lines()] == ["e2"]


def test_bookmarks_move_the_position_and_a_watch_goes_on_from_it(fake: FakeApi) -> None:
    fake.put(EVENTS, event("e1", "Evicted", "one"))
    with watching(fake, events()) as watch:
        assert eventually(lambda: watch.lines(), "the first event")
        fake.put(PODS, pod())  # something else moves the version of the server
        assert eventually(lambda: watch.outlet.state == "on" and fake.watches(EVENTS), "a watch")
        position = watch.stop()
    fake.put(EVENTS, event("e2", "Evicted", "two"))
    with watching(fake, events(), position) as again:
        assert eventually(lambda: again.lines(), "the second event")
        assert [line.generation for line in again.lines()] == ["e2"]
        assert not again.gaps()


def test_what_the_server_has_forgotten_is_listed_again_behind_a_gap(fake: FakeApi) -> None:
    fake.put(EVENTS, event("e1", "Evicted", "one"))
    with watching(fake, events()) as watch:
        assert eventually(lambda: watch.lines(), "the first event")
        position = watch.stop()
    fake.put(EVENTS, event("e2", "Evicted", "two"))
    fake.forget()
    with watching(fake, events(), position) as again:
        assert eventually(lambda: len(again.lines()) == 2, "all events, again")
        assert len(again.gaps()) == 1
        assert "has forgotten what changed since" in again.gaps()[0]


@pytest.mark.parametrize("fault", ["drops", "half_lines"])
def test_a_watch_that_breaks_off_goes_on_where_it_was(fake: FakeApi, fault: str) -> None:
    with watching(fake, events()) as watch:
        assert eventually(lambda: fake.watches(EVENTS), "a watch")
        setattr(fake, fault, 2)
        for number in range(4):
            fake.put(EVENTS, event(f"e{number}", "Evicted", f"number {number}"))
        assert eventually(lambda: len(watch.lines()) == 4, "each event once")
        assert [line.generation for line in watch.lines()] == ["e0", "e1", "e2", "e3"]
        assert getattr(fake, fault) == 0
        assert not watch.gaps()


def test_a_server_that_says_nothing_is_asked_again(fake: FakeApi) -> None:
    fake.bookmark_s = 60.0
    with watching(fake, events(), silence_s=0.3) as watch:
        assert eventually(lambda: fake.watches(EVENTS) >= 3, "another watch")
        fake.put(EVENTS, event("e1", "Evicted", "one"))
        assert eventually(lambda: watch.lines(), "the event")


def test_a_server_that_ends_each_watch_at_once_is_not_asked_all_the_time(fake: FakeApi) -> None:
    fake.ends_at_once = True
    with watching(fake, events()) as watch:
        assert eventually(lambda: watch.outlet.state == "refused", "it is said")
        assert "ends a watch at once" in (watch.outlet.reason or "")
        assert fake.watches(EVENTS) <= 4
        fake.ends_at_once = False
        fake.put(EVENTS, event("e1", "Evicted", "one"))
        assert eventually(lambda: watch.lines(), "the event")
        assert not watch.gaps()


def test_a_server_that_is_away_is_said_and_waited_for(fake: FakeApi) -> None:
    fake.is_down = True
    with watching(fake, events()) as watch:
        assert eventually(lambda: watch.outlet.state == "refused", "that it is refused")
        fake.is_down = False
        fake.put(EVENTS, event("e1", "Evicted", "one"))
        assert eventually(lambda: watch.lines(), "the event")
        assert eventually(lambda: watch.outlet.state == "on", "that it is on")


def test_a_kind_without_rights_says_the_rule_that_is_missing_and_others_go_on(fake: FakeApi) -> None:
    fake.forbidden.add(PODS)
    fake.put(EVENTS, event("e1", "Evicted", "one"))
    placed = Placed()
    with watching(fake, Pods(placed)) as pods, watching(fake, events()) as told:
        assert eventually(lambda: pods.outlet.state == "refused", "that pods are refused")
        assert pods.outlet.reason is not None
        assert 'apiGroups [""], resources ["pods"], verbs ["list", "watch"]' in pods.outlet.reason
        assert eventually(lambda: told.lines(), "the event")
        fake.forbidden.clear()
        fake.put(PODS, pod(**ended(1)))
        assert eventually(lambda: pods.lines(), "the pod, once it may be read")


def test_a_kind_that_the_cluster_does_not_have_is_off(fake: FakeApi) -> None:
    with watching(fake, JobObjects(api_of(fake), Placed(), "workloads")) as watch:
        assert eventually(lambda: (watch.outlet.reason or "").startswith("the cluster has none"), "that there is none")
        assert watch.outlet.state == "off"


def test_a_token_that_has_ended_is_read_again_from_its_file(fake: FakeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    fake.tokens = {"old"}
    with watching(fake, events(), token_file=token) as watch:
        assert eventually(lambda: fake.watches(EVENTS), "a watch")
        token.write_text("new\n")
        fake.tokens = {"new"}
        fake.drops = 1
        fake.put(EVENTS, event("e1", "Evicted", "one"))
        assert eventually(lambda: watch.lines(), "the event, with the new token")


def test_a_pod_tells_how_its_container_ended_where_and_of_which_job(fake: FakeApi) -> None:
    fake.put(PODS, pod())
    with watching(fake, Pods(Placed())) as watch:
        assert eventually(lambda: fake.watches(PODS), "a watch")
        fake.put(PODS, pod(**ended(137)))
        fake.put(PODS, pod(**ended(137), phase="Failed"))
        fake.delete(PODS, "pod-1")
        fake.put(PODS, pod("pod-2", "train-2", **ended(0, "Completed")))
        fake.put(PODS, pod("pod-3", "train-3", **ended(137, "OOMKilled")))
        assert eventually(lambda: len(watch.lines()) == 3, "three lines")
        line = watch.lines()[0]
        assert line.text == (
            "rootrank: container.exited namespace=ml pod=train-1 container=main node=gpu17 exitcode=137 reason=Error"
        )
        assert line.generation == "pod-1/main"
        assert line.attributes["node"] == "gpu17"
        assert line.attributes["jobs"] == "job-uid,train,ml/job-uid,ml/train"
        assert "STATUS=OOMKilled, RESTARTS=0, AGE=0s, IP=<none>, NODE=gpu17" in watch.texts()[2]


def test_a_pod_that_is_preempted_says_so_before_it_goes(fake: FakeApi) -> None:
    condition = {
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastTransitionTime": "2026-03-04T05:06:05Z",
    }  # fmt: skip
    fake.put(PODS, pod(conditions=[condition]))
    with watching(fake, Pods(Placed())) as watch:
        assert eventually(lambda: watch.lines(), "the line")
        assert "pod.disrupted namespace=ml pod=train-1 node=gpu17 reason=PreemptionByScheduler" in watch.texts()[0]


def test_an_event_about_a_pod_knows_its_node_and_its_job(fake: FakeApi) -> None:
    placed = Placed()
    fake.put(PODS, pod())
    with watching(fake, Pods(placed)) as pods:
        assert eventually(lambda: placed.of("pod-1").node, "the pod")
        fake.put(EVENTS, event("e1", "Killing", "Stopping container main", source={"component": "scheduler"}))
        with watching(fake, Events(placed, ())) as watch:
            assert eventually(lambda: watch.lines(), "the event")
            assert watch.lines()[0].attributes["node"] == "gpu17"
            assert "train" in watch.lines()[0].attributes["jobs"].split(",")
        assert not pods.lines()


def test_a_node_tells_that_it_is_lost_and_that_it_is_back_also_to_the_next_reader(fake: FakeApi) -> None:
    fake.put(NODES, node())
    with watching(fake, Nodes(HEAD, lambda: NOW_NS)) as watch:
        assert eventually(lambda: fake.watches(NODES), "a watch")
        fake.put(NODES, node(ready="Unknown"))
        assert eventually(lambda: watch.texts() == ["Node gpu17 status is now: NodeNotReady"], "that it is lost")
        position = watch.stop()
    fake.put(NODES, node(ready="True"))
    with watching(fake, Nodes(HEAD, lambda: NOW_NS), position) as again:
        assert eventually(lambda: again.texts() == ["Node gpu17 status is now: NodeReady"], "that it is back")


def test_a_cordon_is_told_with_its_time_and_becomes_a_span_with_a_beginning_and_an_end(fake: FakeApi) -> None:
    fake.put(NODES, node(unschedulable=True))
    with watching(fake, Nodes(HEAD, lambda: NOW_NS)) as watch:
        assert eventually(lambda: watch.lines(), "the cordon")
        assert watch.lines()[0].body == "2026-03-04T05:00:00Z Node gpu17 status is now: NodeNotSchedulable"
        fake.put(NODES, node())
        assert eventually(lambda: len(watch.lines()) == 2, "its end")
        spans = [record for step in watch.steps for record in step.records]
        begun = 1_772_600_400 * 10**9
        assert [(span.kind, span.start_unix_nano, span.end_unix_nano) for span in spans] == [  # type: ignore[union-attr]
            ("drain", begun, None), ("drain", begun, NOW_NS),
        ]  # fmt: skip


def test_labels_of_a_node_say_where_it_hangs_and_a_change_ends_the_old_place(fake: FakeApi) -> None:
    fake.put(NODES, node(labels={"topology.kubernetes.io/rack": "r1", "nvidia.com/gpu.clique": "u1.3"}))
    with watching(fake, Nodes(HEAD, lambda: NOW_NS)) as watch:
        assert eventually(lambda: watch.lines() or watch.steps, "the list")
        fake.put(NODES, node(labels={"topology.kubernetes.io/rack": "r2"}))
        records = eventually(lambda: watch.lines() is not None and _records(watch, 3), "three records")
        told = [(r.rack, r.nvlink_domain, r.start_unix_nano, r.end_unix_nano) for r in records]
        made = 1_767_225_600 * 10**9
        assert told == [("r1", "u1.3", made, None), ("r1", "u1.3", made, NOW_NS), ("r2", None, NOW_NS, None)]


def _records(watch: Watch, count: int) -> list[Any]:
    found = [record for step in watch.steps for record in step.records]
    return found if len(found) == count else []


def test_a_failed_job_and_an_evicted_workload_are_told(fake: FakeApi) -> None:
    fake.missing.clear()
    job = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "job-uid"},
        "status": {
            "conditions": [
                {
                    "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                    "message": "Job has reached the specified backoff limit",
                    "lastTransitionTime": "2026-03-04T05:06:07Z",
                }
            ]
        },
    }  # fmt: skip
    workload = {
        "metadata": {
            "name": "job-train", "namespace": "ml", "uid": "w1",
            "ownerReferences": [{"uid": "job-uid", "name": "train"}],
        },
        "status": {
            "conditions": [
                {
                    "type": "Evicted", "status": "True", "reason": "Preempted",
                    "message": "Preempted to accommodate a workload (UID: 0a1b-77) due to reclamation",
                    "lastTransitionTime": "2026-03-04T05:06:07Z",
                }
            ]
        },
    }  # fmt: skip
    fake.put(JOBS, job)
    fake.put(WORKLOADS, workload)
    with watching(fake, JobObjects(api_of(fake), Placed(), "jobs")) as jobs:
        assert eventually(lambda: jobs.lines(), "the job")
        assert jobs.texts() == [
            "jobs ml/train Failed: BackoffLimitExceeded: Job has reached the specified backoff limit"
        ]
    with watching(fake, JobObjects(api_of(fake), Placed(), "workloads")) as workloads:
        assert eventually(lambda: workloads.lines(), "the workload")
        assert workloads.texts()[0].startswith("workloads ml/job-train EvictedDueToPreempted: Preempted to accommodate")
        assert "job-uid" in workloads.lines()[0].attributes["jobs"].split(",")


@pytest.mark.parametrize("status", [7, {"conditions": [{"type": ["Ready"]}]}, {"conditions": "none"}])
def test_an_object_of_no_shape_that_there_is_stops_nobody(fake: FakeApi, status: Any) -> None:
    fake.put(NODES, {**node("odd"), "status": status, "spec": 3})
    fake.put(NODES, node("gpu18", ready="False"))
    with watching(fake, Nodes(HEAD, lambda: NOW_NS)) as watch:
        assert eventually(lambda: "Node gpu18 status is now: NodeNotReady" in watch.texts(), "the other node")


def test_the_reader_of_a_position_of_a_version_it_does_not_know_lists_anew(fake: FakeApi) -> None:
    fake.put(EVENTS, event("e1", "Evicted", "one"))
    with watching(fake, events(), "no position") as watch:
        assert eventually(lambda: watch.lines(), "the event")
