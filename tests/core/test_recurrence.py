"""Join: several jobs hit by one element, and what failed before."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.core.join import Join
from pipeline.core.recurrence import MAX_RELATED, ONE_FAULT, RECENT, elements_of
from schemas.records import ChainStep, Culprit, Engine, Evidence, Incident, Job, Verdict
from tests.strategies import CLUSTER, T0, incidents

BEGAN = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)
BUS = "0000:1b:00.0"
NFS = "storage/nfs_unresponsive"


def _verdict(
    job: str,
    *,
    class_: str = NFS,
    after: timedelta = timedelta(0),
    elements: Iterable[str] = (),
    culprit: Culprit | None = None,
    failure: str = "",
    steps: int = 1,
    attempt: int = 0,
) -> Verdict:
    name = f"{job}-{attempt}"
    chain = [
        ChainStep(step=n + 1, event="x.y", role="cascade" if n else "root", where="",
                  evidence=Evidence(source="log", text=""))
        for n in range(steps)
    ]  # fmt: skip
    incident = Incident(
        incident_id=name, engine=Engine(version="1", rules_digest="x"), run="live", run_id="", cluster=CLUSTER,
        class_=class_, jobs=[Job(job_id=job, attempt=attempt)], chain=chain,
        started_at=f"{BEGAN + after:%Y-%m-%dT%H:%M:%S.%f}Z", culprits=[culprit] if culprit else [],
        failure=failure,
    )  # fmt: skip
    return Verdict(
        verdict_id=name, job_key=f"{CLUSTER}/{job}/{attempt}", incident=incident, root_events=[f"line of {name}"],
        elements=dict.fromkeys(elements, "it"), content_hash=name,
    )  # fmt: skip


def _final(*verdicts: Verdict) -> dict[str, Incident]:
    """The last revision of each incident; every order of arrival gives the same."""
    finals = []
    for order in itertools.permutations(verdicts):
        join = Join()
        said = [one for verdict in order for one in incidents(join.apply(verdict, now_ns=T0))]
        finals.append({i.incident_id: (i.state, i.superseded_by, tuple(i.jobs), tuple(i.related)) for i in said})
    assert all(final == finals[0] for final in finals)
    return {i.incident_id: i for i in said}


def test_jobs_that_hang_on_one_server_are_one_incident_with_all_its_jobs() -> None:
    found = _final(
        _verdict("11", elements=["server nas"], steps=3), _verdict("12", elements=["server nas"], after=ONE_FAULT / 2)
    )
    assert [job.job_id for job in found["11-0"].jobs] == ["11", "12"]
    assert (found["12-0"].state, found["12-0"].superseded_by) == ("superseded", "11-0")


@pytest.mark.parametrize(
    "other",
    [
        _verdict("12", elements=["server other"]),
        _verdict("12", elements=["server nas"], after=2 * ONE_FAULT),
        _verdict("12", elements=["server nas"], class_="storage/fs_hang"),
        _verdict("12"),
    ],
)
def test_another_element_another_time_or_another_fault_stays_an_incident_of_its_own(other: Verdict) -> None:
    found = _final(_verdict("11", elements=["server nas"]), other)
    assert {incident.state for incident in found.values()} == {"open"}
    assert [len(incident.jobs) for incident in found.values()] == [1, 1]


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (Culprit(node="n1", gpu_uuid="GPU-7"), Culprit(node="n2", gpu_uuid="GPU-7"), "the same GPU"),
        (Culprit(node="n1", nic="mlx5_0"), Culprit(node="n1", nic="mlx5_0"), "the same network card"),
        (
            Culprit(node="n1", pci_bus_id="0000:1b:00.0"),
            Culprit(node="n1", pci_bus_id="0000:1b:00.0"),
            "the same device",
        ),
        (Culprit(node="n1", rank=3), Culprit(node="n1", rank=5), "the same node"),
        (Culprit(machine_id="m", node="old"), Culprit(machine_id="m", node="new"), "the same node"),
    ],
)
def test_a_recurrence_names_the_earlier_incident_and_the_thing(first: Culprit, second: Culprit, what: str) -> None:
    hardware = "hardware/gpu_error"
    found = _final(
        _verdict("11", class_=hardware, culprit=first),
        _verdict("12", class_=hardware, culprit=second, after=timedelta(days=3)),
    )
    (related,) = found["12-0"].related
    assert related.incident_id == "11-0"
    assert related.why == f"{what} failed 3.0 days earlier (hardware/gpu_error)"
    assert found["11-0"].related == []


def test_what_failed_long_ago_or_elsewhere_is_not_related() -> None:
    culprit = Culprit(node="n1", gpu_uuid="GPU-7")
    old = _verdict("11", class_="hardware/power", culprit=culprit)
    late = _verdict("12", class_="hardware/power", culprit=culprit, after=RECENT + timedelta(seconds=1))
    elsewhere = _verdict("13", class_="hardware/power", culprit=Culprit(node="n2"), after=timedelta(days=1))
    found = _final(old, late, elsewhere)
    assert [incident.related for incident in found.values()] == [[], [], []]


def test_a_rank_number_is_no_thing_that_fails_again() -> None:
    found = _final(
        _verdict("11", class_="unknown/silent_rank", culprit=Culprit(rank=3)),
        _verdict("12", class_="unknown/silent_rank", culprit=Culprit(rank=3), after=timedelta(hours=1)),
    )
    assert found["12-0"].related == []


def test_the_same_error_in_the_next_attempt_is_the_same_code() -> None:
    def failed(attempt: int, failure: str) -> Verdict:
        return _verdict("11", class_="software/python_exception", attempt=attempt, failure=failure,
                        after=timedelta(minutes=30 * attempt))  # fmt: skip

    found = _final(failed(0, "KeyError in run of loop.py"), failed(1, "KeyError in run of loop.py"))
    assert [related.why for related in found["11-1"].related] == [
        "the same code failed 30 min earlier (software/python_exception)"
    ]
    found = _final(failed(0, "KeyError in run of loop.py"), failed(1, "ValueError: #"))
    assert found["11-1"].related == []


def test_only_the_latest_are_named() -> None:
    culprit = Culprit(node="n1")
    join = Join()
    said = [
        one
        for n in range(MAX_RELATED + 3)
        for one in incidents(
            join.apply(_verdict(f"{n}", class_="hardware/power", culprit=culprit, after=timedelta(hours=n)), now_ns=T0)
        )
    ]
    last = next(i for i in reversed(said) if i.incident_id == f"{MAX_RELATED + 2}-0")
    assert [related.incident_id for related in last.related] == [f"{n}-0" for n in (4, 3, 2)]


def test_the_element_of_a_storage_fault_is_its_server_or_file_system() -> None:
    assert list(elements_of(NFS, {"server": "nas"}, [])) == ["server nas"]
    assert list(elements_of("storage/lustre_eviction", {"target": "scratch-OST0003_UUID"}, [])) == ["lustre scratch"]
    assert elements_of("software/python_exception", {"server": "nas"}, []) == {}
    switch = [Culprit(node="n1", switch="0000:b1:00.0")]
    assert list(elements_of("hardware/nvswitch_sxid", {}, switch)) == ["switch n1 0000:b1:00.0"]
