"""Nodes, drains and jobs from a list of Kubernetes objects."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fleet.imports.kubernetes import parse_kubernetes
from pipeline.core.fleet.imports.told import ImportFormatError, Told
from tests.core.fleet.inventories import exposed

SECOND = 10**9


def ns(clock: str) -> int:
    return round(datetime.fromisoformat(at(clock)).timestamp()) * SECOND


def at(clock: str) -> str:
    return f"2026-03-01T{clock}:00Z"


def node(name: str, *, made: str = "00:00", taints: Any = None, ready: str = "", **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "Unknown" if ready else "True", "lastTransitionTime": at(ready or made)}
    return {
        "kind": "Node",
        "metadata": {
            "name": name, "creationTimestamp": at(made),
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H100", "topology.kubernetes.io/rack": "r7"},
        },
        "spec": {**spec, "taints": taints or []},
        "status": {
            "nodeInfo": {"machineID": f"m-{name}"}, "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [{**condition, "lastHeartbeatTime": at("20:00")}],
        },
    }  # fmt: skip


def pod(
    name: str, on: str = "n1", start: str = "01:00", end: str = "", phase: str = "Running", gpus: Any = "8",
    job: str = "train", reason: str = "",
) -> dict[str, Any]:  # fmt: skip
    state = {"terminated": {"finishedAt": at(end), "exitCode": 1}} if end else {"running": {}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ml", "creationTimestamp": at("00:30"),
            "labels": {"batch.kubernetes.io/job-name": job} if job else {},
        },
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}, {}]},
        "status": {
            "phase": phase, "reason": reason, "startTime": at(start), "containerStatuses": [{"state": state}],
        },
    }  # fmt: skip


def event(reason: str, when: str, on: str = "n1") -> dict[str, Any]:
    return {
        "kind": "Event", "reason": reason, "lastTimestamp": at(when), "involvedObject": {"kind": "Node", "name": on},
    }  # fmt: skip


def told(*items: Any) -> Told:
    text = msgspec.json.encode({"kind": "List", "items": list(items)}).decode()
    return parse_kubernetes(text, cluster="c1", source="snapshot.json")


def test_a_node_is_installed_since_its_object_is_there_and_is_what_its_labels_say() -> None:
    [span] = told(node("n1")).spans
    assert (span.unit, span.kind, span.from_ns, span.to_ns) == ("n1", "installed", ns("00:00"), ns("20:00"))
    assert span.facts == {"sku": "NVIDIA-H100", "rack": "r7", "machine_id": "m-n1", "gpus": "8"}


def test_a_cordon_is_a_drain_since_its_taint_was_added() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": at("03:00")}
    drain = told(node("n1", unschedulable=True, taints=[taint])).spans[1]
    assert (drain.kind, drain.outcome, drain.from_ns, drain.to_ns) == ("drain", "cordon", ns("03:00"), ns("20:00"))


def test_events_tell_cordons_that_are_over_and_when_one_that_is_on_began() -> None:
    found = told(
        node("n1", unschedulable=True), event("NodeNotSchedulable", "03:00"), event("NodeSchedulable", "04:00"),
        event("NodeNotSchedulable", "06:00"), event("NodeNotSchedulable", "01:00", on="n2"),
    )  # fmt: skip
    assert [(s.from_ns, s.to_ns) for s in found.spans[1:]] == [(ns("03:00"), ns("04:00")), (ns("06:00"), ns("20:00"))]


def test_a_cordon_of_which_nobody_says_since_when_is_named() -> None:
    found = told(pod("p"), node("n1", unschedulable=True))
    assert [(d.kind, d.unit, d.row) for d in found.defects] == [("no_begin", "n1", 2)]


def test_a_node_that_is_not_ready_is_out_of_service() -> None:
    rows, _ = exposed(told(node("n1", ready="06:00")).spans, ns("00:00"), ns("10:00"))
    assert [e.in_service_ns // 3600 // SECOND for e in rows] == [6]


def test_what_a_snapshot_says_is_on_ends_with_it_where_the_next_says_otherwise() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": at("03:00")}
    first = told(node("n1", unschedulable=True, taints=[taint]), node("n2")).spans
    later = node("n1")
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-03-02T20:00:00Z"
    rows, _ = exposed([*first, *told(later).spans], ns("00:00"), ns("00:00") + 48 * 3600 * SECOND)
    hours = {e.unit: (e.installed_ns // 3600 // SECOND, e.in_service_ns // 3600 // SECOND) for e in rows}
    assert hours == {"n1": (44, 44 - 17), "n2": (20, 20)}


def test_pods_of_one_job_at_one_time_are_one_attempt() -> None:
    found = told(
        pod("a-0", "n1", "01:00", "03:00", "Failed"), pod("a-1", "n2", "01:10", "03:00", "Succeeded"),
        pod("a-2", "n1", "04:00"), pod("a-3", "n3", "04:05"),
    )  # fmt: skip
    assert [(a.job_id, a.attempt, a.nodes, a.gpus, a.end) for a in found.attempts] == [
        ("ml/train", 0, ("n1", "n2"), 16, "failed"), ("ml/train", 1, ("n1", "n3"), 16, "running"),
    ]  # fmt: skip
    assert (found.attempts[0].to_ns, found.attempts[1].to_ns) == (ns("03:00"), None)
    assert found.attempts[0].queued_ns == 1800 * SECOND


def test_what_runs_is_busy_up_to_the_last_heartbeat() -> None:
    found = told(node("n1"), pod("a-0"))
    assert [(s.from_ns, s.to_ns) for s in found.spans if s.kind == "busy"] == [(ns("01:00"), ns("20:00"))]


@pytest.mark.parametrize(
    ("reason", "end"),
    [("", "failed"), ("NodeShutdown", "node_failure"), ("Preempting", "preempted"), ("DeadlineExceeded", "timed_out")],
)
def test_the_reason_of_a_failed_pod_is_the_end_of_its_attempt(reason: str, end: str) -> None:
    assert [a.end for a in told(pod("p", end="02:00", phase="Failed", reason=reason)).attempts] == [end]


def test_pods_without_gpus_or_a_start_are_left_out_and_counted() -> None:
    found = told(pod("a", gpus=None), pod("b", on=""), {"kind": "Service", "metadata": {"name": "s"}})
    assert (found.attempts, found.defects) == ([], [])
    assert sum(found.skipped.values()) == 3


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (pod("p", start="02:00", end="01:00", phase="Failed"), "inverted_span"),
        (pod("p", phase="Failed"), "bad_time"),
        (pod("p", start="later"), "bad_time"),
        ({"kind": "Node", "metadata": {"name": "n9"}}, "bad_time"),
        ({"kind": "Node", "metadata": {"name": "n9", "creationTimestamp": "0001-01-01T00:00:00Z"}}, "bad_time"),
    ],
)
def test_an_object_that_cannot_be_used_is_named_with_its_number(item: Any, kind: str) -> None:
    found = told(node("n1"), item)
    assert [(d.kind, d.source, d.row) for d in found.defects] == [(kind, "snapshot.json", 2)]
    assert [s.unit for s in found.spans] == ["n1"]


@pytest.mark.parametrize("text", ["", "[", "[]", '{"items": {}}', "[" * 100_000])
def test_what_is_no_list_of_objects_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ImportFormatError, match="kubectl get"):
        parse_kubernetes(text, cluster="c1", source="x")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just(at("01:00"))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["metadata", "name", "creationTimestamp", "spec", "status", "conditions", "labels"]), inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(st.one_of(JSON, st.tuples(st.sampled_from(["Node", "Pod", "Event"]), JSON)), max_size=4))
def test_no_shape_of_objects_breaks_the_reading(items: list[Any]) -> None:
    told(*({**(i[1] if isinstance(i[1], dict) else {}), "kind": i[0]} if isinstance(i, tuple) else i for i in items))
