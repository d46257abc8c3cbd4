"""What stands beside a chain: the culprit's own lines, what others notice, the last sign that the job went on."""

import msgspec

from pipeline.core.chains import Resolved, Step
from pipeline.core.companions import MAX_OWN, filled, with_companions
from pipeline.core.episodes import of_events
from schemas.records import Entity, Event
from tests.strategies import SECOND, T0, event, lost_gpu, waited

BUS = "0000:5e:00.0"
GPU = Entity(node="beta", pci_bus_id=BUS)


def _items(*events: Event) -> list[Resolved]:
    return [Resolved(episode=episode, subject=episode.subject) for episode in of_events(events, {})]


def _beside(*events: Event, speaks_for_job: bool = True) -> list[tuple[str, str]]:
    """Name and role of what is told beyond the root, a lost GPU."""
    items = _items(lost_gpu("beta"), *events)
    root = next(item for item in items if item.episode.name == "gpu.xid")
    told = with_companions([Step(item=root, role="root")], 0, [GPU], items, speaks_for_job=speaks_for_job)
    return [(one.item.episode.name, one.role) for one in told[1:]]


def _kernel(name: str, at_s: int, *, bus: str | None = BUS, node: str = "beta", role: str = "context") -> Event:
    made = event(name, node=node, source="kern", offset=at_s + 1_000, bus=bus, at_ns=T0 + at_s * SECOND, role=role)
    return msgspec.structs.replace(made, severity="warning", label="hardware/pcie", source_kind="kernel")


def _mark(at_s: int) -> Event:
    made = event("train.step", source="job", offset=at_s + 5_000, at_ns=T0 + at_s * SECOND, role="context")
    return msgspec.structs.replace(made, label="context/progress", severity="debug")


def test_what_the_same_gpu_says_before_and_after_is_told() -> None:
    assert _beside(_kernel("pcie.detail", -5), _kernel("gpu.gsp", 5, role="intermediate")) == [
        ("pcie.detail", "context"), ("gpu.gsp", "cascade"),
    ]  # fmt: skip


def test_another_gpu_another_node_and_another_day_are_not() -> None:
    others = (_kernel("a.b", 1, bus="0000:1b:00.0"), _kernel("a.c", 1, node="gamma"), _kernel("a.d", 86_400))
    assert _beside(*others) == []


def test_a_gpu_that_says_much_is_told_in_few_lines() -> None:
    assert len(_beside(*(_kernel(f"gpu.line{n}", n + 1) for n in range(3 * MAX_OWN)))) == MAX_OWN


def test_what_others_notice_is_told_of_the_jobs_failure_only_and_never_from_before_it() -> None:
    late, early = waited(0, "alpha"), waited(1, "alpha", at_ns=T0 - 600 * SECOND)
    assert _beside(late, early) == [("nccl.watchdog.timeout", "symptom")]
    assert _beside(late, early, speaks_for_job=False) == []


def test_the_last_mark_before_the_fault_is_told() -> None:
    items = _items(_mark(-300), _mark(-3), _mark(300), lost_gpu("beta"))
    root = next(item for item in items if item.episode.name == "gpu.xid")
    told = with_companions([Step(item=root, role="root")], 0, [GPU], items, speaks_for_job=True)
    marks = [one.item.episode.first for one in told if one.item.episode.name == "train.step"]
    assert [mark.aligned_time_unix_nano for mark in marks] == [T0 - 3 * SECOND]


def test_a_mark_that_is_told_already_is_not_told_twice() -> None:
    items = _items(_mark(-3), lost_gpu("beta"))
    mark, root = (next(i for i in items if i.episode.name == name) for name in ("train.step", "gpu.xid"))
    steps = [Step(item=root, role="root"), Step(item=mark, role="context", leads_to=0, why="it is shown")]

    assert with_companions(steps, 0, [GPU], items, speaks_for_job=True) == steps


def test_a_culprit_gets_what_its_own_lines_give_and_nothing_they_disagree_about() -> None:
    def own(**of: object) -> Step:
        item = _items(lost_gpu("beta"))[0]
        subject = msgspec.convert({"node": "beta", "pci_bus_id": BUS, **of}, Entity)
        return Step(item=Resolved(episode=item.episode, subject=subject), role="cascade")

    one = filled(GPU, [own(gpu_uuid="GPU-1", rank=4), own(serial="77", pid=12)], "hardware/gpu_error")
    assert (one.gpu_uuid, one.rank, one.serial, one.pid) == ("GPU-1", 4, "77", None)
    assert filled(GPU, [own(rank=4), own(rank=5)], "hardware/gpu_error").rank is None
    assert filled(GPU, [own(pid=12)], "software/illegal_memory_access").pid == 12


def test_a_switch_gets_the_one_gpu_at_the_other_end_of_the_failed_link() -> None:
    switch = Entity(node="beta", switch="0000:b1:00.0")
    links = [_items(lost_gpu("beta", bus=bus, xid="74"))[0] for bus in (BUS, "0000:1b:00.0")]
    steps = [Step(item=link, role="cascade") for link in links]
    assert filled(switch, steps[:1], "hardware/nvswitch_sxid").pci_bus_id == BUS
    assert filled(switch, steps, "hardware/nvswitch_sxid").pci_bus_id is None


def test_a_gpu_of_a_nameless_machine_gets_the_names_that_its_own_file_gives() -> None:
    def line(name: str, *, source: str, **of: str) -> Resolved:
        made = msgspec.structs.replace(event(name, source=source, node=""), node="")
        subject = msgspec.convert({"pci_bus_id": BUS, **of}, Entity)
        return Resolved(episode=_items(made)[0].episode, subject=subject)

    lost, gpu = line("gpu.xid", source="a/dmesg"), Entity(pci_bus_id=BUS)
    named = [line("gpu.uuid", source="a/dmesg", gpu_uuid="GPU-7"), line("gpu.serial", source="a/dmesg", serial="991")]
    other = [line("gpu.uuid", source="b/dmesg", gpu_uuid="GPU-8")]
    one = filled(gpu, [Step(item=lost, role="root")], "hardware/gpu_xid_79", [lost, *named, *other])
    assert (one.gpu_uuid, one.serial) == ("GPU-7", "991")
    assert filled(gpu, [Step(item=lost, role="root")], "hardware/gpu_xid_79", [lost, *other]).gpu_uuid is None
    twice = [*named, line("gpu.uuid", source="a/dmesg", gpu_uuid="GPU-9")]
    assert filled(gpu, [Step(item=lost, role="root")], "hardware/gpu_xid_79", [lost, *twice]).gpu_uuid is None
