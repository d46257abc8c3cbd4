"""Evidence of several lines: who is named, who is out of step, what went on when a stall began."""

from typing import Any

import msgspec
import pytest

from pipeline.core.chains import Chain, Known, Resolved, chains_of
from pipeline.core.derived import derive, ports, scene, stores
from pipeline.core.derived.activities import MAX_LATE_S
from pipeline.core.derived.ranks import MAX_GAP
from pipeline.core.episodes import of_events
from pipeline.core.order import order
from pipeline.core.placement import Facts, PlacementMap
from pipeline.rules import load_rules
from schemas.records import Entity, Event, Printer
from schemas.vocabulary import Order
from tests.strategies import SECOND, T0, event, placed, waited

RULES = load_rules()
NOWHERE = PlacementMap(Facts())


def _derived(*events: Event, silent: int | None = None) -> list[Resolved]:
    items = [Resolved(episode=e, subject=e.subject) for e in of_events(events, RULES.coalescing)]
    stalls = [item for item in items if item.episode.name == "nccl.watchdog.timeout"]
    return derive(items, stalls, NOWHERE, silent)


def _found(name: str, items: list[Resolved]) -> list[int | None]:
    return [item.subject.rank for item in items if item.episode.name == name]


def _waits(rank: int, seq: int, op: str = "ALLREDUCE") -> Event:
    return event("nccl.watchdog.timeout", source="job", offset=5_000 + rank, rank=rank, at_ns=T0 + 600 * SECOND,
                 attributes={"seq": str(seq), "op": op, "numel_in": "1", "ran_for_ms": "600000"})  # fmt: skip


def _progress(name: str, offset: int, *, at_s: int = 0, rank: int | None = None, **attributes: str) -> Event:
    made = event(name, source="job", offset=offset, rank=rank, at_ns=T0 + at_s * SECOND, role="context",
                 attributes=attributes)  # fmt: skip
    return type(made)(**{**{f: getattr(made, f) for f in made.__struct_fields__}, "label": "context/progress"})


# --- who is out of step -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seqs", "odd"),
    [
        ([85, 88, 88, 88], [0]),
        ([88, 88, 91, 88], [2]),
        ([88, 88, 88, 88], []),
        ([85, 85, 88, 88], []),
        ([85, 88], []),
        ([85, 86, 88, 88], []),
        ([85, 85 + MAX_GAP, 85 + MAX_GAP], [0]),
        ([85, 86 + MAX_GAP, 86 + MAX_GAP], []),
    ],
)
def test_the_one_rank_that_waits_elsewhere_than_all_others_is_out_of_step(seqs: list[int], odd: list[int]) -> None:
    items = _derived(*(_waits(rank, seq) for rank, seq in enumerate(seqs)))
    assert _found("collective.mismatch", items) == odd
    assert len(items) == len(set(seqs)), "its line stands for it once"


def _in_group(rank: int, seq: int, group: str) -> Event:
    made = _waits(rank, seq)
    return msgspec.structs.replace(made, printer=Printer(node="alpha", process_group=group))


def test_ranks_that_wait_in_groups_of_their_own_are_not_compared() -> None:
    """Rank 3 stopped: its partner waits in the pair, the others where they reduce."""
    reduce, pair = "ID 1 PG GUID 1(dp0)", "ID 4 PG GUID 4(tp1)"
    items = _derived(_in_group(0, 88, reduce), _in_group(1, 88, reduce), _in_group(2, 160, pair))
    assert _found("collective.mismatch", items) == []
    items = _derived(*(_in_group(rank, 88, pair if rank == 2 else reduce) for rank in range(3)))
    assert len(items) == 2, "who waits in another group is not of the same crowd"


def test_of_one_group_the_odd_rank_is_found_beside_others() -> None:
    here, there = "ID 1 PG GUID 1(dp0)", "ID 2 PG GUID 2(dp1)"
    odd = [_in_group(rank, 91 if rank == 2 else 88, here) for rank in range(4)]
    items = _derived(*odd, *(_in_group(rank, 40, there) for rank in range(4, 8)))
    assert _found("collective.mismatch", items) == [2]


def test_where_it_is_known_who_fell_silent_nobody_is_out_of_step() -> None:
    items = _derived(*(_waits(rank, 85 if rank == 1 else 88) for rank in range(3)), silent=3)
    assert _found("collective.mismatch", items) == []


def _states(rank: int, other: int) -> Event:
    return event("collective.mismatch", source=f"rank{rank}", offset=rank, rank=rank,
                 attributes={"rank": str(rank), "other_rank": str(other)})  # fmt: skip


def test_of_statements_about_two_ranks_each_the_rank_in_all_of_them_is_named() -> None:
    items = _derived(_states(0, 3), _states(1, 3), _states(3, 0))
    assert _found("collective.mismatch", items) == [3, 3, 3]


def test_one_statement_about_two_ranks_names_nobody() -> None:
    (item,) = _derived(_states(0, 3))
    assert item.subject == Entity()


@pytest.mark.parametrize(
    ("ranks", "what", "named"),
    [
        ("7", "finished collective", [7]),
        ("2, 5", "never joined any collectives", [2, 5]),
        ("7", "joined but didn't finish collective", [None]),
        ("0, 1, 2, 3, 4", "finished collective", [None]),
    ],
)
def test_a_report_names_the_ranks_that_did_not_join(ranks: str, what: str, named: list[int | None]) -> None:
    report = event("collective.desync", attributes={"ranks": ranks, "what": what})
    assert _found("collective.desync", _derived(report)) == named


# --- what went on -------------------------------------------------------------------------------------------------


def test_a_save_without_an_end_is_unfinished_and_the_silent_ranks() -> None:
    items = _derived(_progress("checkpoint.started", 1, at_s=-5, path="/c"), waited(1, "alpha"), silent=0)
    assert _found("checkpoint.unfinished", items) == [0]
    assert not _found("checkpoint.started", items)


@pytest.mark.parametrize("later", ["checkpoint.saved", "train.step"])
def test_a_save_that_ended_or_after_which_the_training_went_on_is_none(later: str) -> None:
    started = _progress("checkpoint.started", 1, at_s=-5, path="/c")
    assert not _found("checkpoint.unfinished", _derived(started, _progress(later, 2, at_s=-2), waited(1, "alpha")))


@pytest.mark.parametrize(("begun_s", "counts"), [(0, True), (MAX_LATE_S - 5, True), (MAX_LATE_S + 15, False)])
def test_a_save_that_begins_long_after_the_others_began_to_wait_is_none(begun_s: int, counts: bool) -> None:
    items = _derived(_progress("checkpoint.started", 1, at_s=begun_s, path="/c"), waited(1, "alpha"))
    assert bool(_found("checkpoint.unfinished", items)) is counts


@pytest.mark.parametrize(("world", "waiting", "node"), [(4, (0, 1), None), (4, (0,), "alpha"), (2, (0, 1), "alpha")])
def test_a_save_of_a_node_whose_ranks_all_wait_themselves_is_of_nobody_known(
    world: int, waiting: tuple[int, ...], node: str | None
) -> None:
    """In a job of several nodes; else the node is the whole job."""
    said = [placed(rank, "alpha", world=world) for rank in (0, 1)]
    facts = Facts()
    for one in said:
        facts.learn(one)
    lines = [
        msgspec.structs.replace(one, source="job") for one in (*said, *(waited(rank, "alpha") for rank in waiting))
    ]
    events = [_progress("checkpoint.started", 1, at_s=-5, path="/c"), *lines]
    items = [
        Resolved(
            episode=e, subject=e.subject, crowd_ranks=frozenset(m.rank for m in e.crowd.values() if m.rank is not None)
        )
        for e in of_events(events, RULES.coalescing)
    ]
    stalls = [item for item in items if item.episode.name == "nccl.watchdog.timeout"]
    (save,) = (i for i in derive(items, stalls, PlacementMap(facts), None) if i.episode.name == "checkpoint.unfinished")
    assert save.subject == Entity(node=node)


@pytest.mark.parametrize(("last", "unfinished"), [("40", True), ("67", False)])
def test_a_bar_is_judged_by_its_last_line(last: str, unfinished: bool) -> None:
    bars = [_progress("progress.bar", n, at_s=n, what="Preparing shards", done=done, total="67")
            for n, done in ((1, "24"), (9, last))]  # fmt: skip
    items = _derived(*bars, waited(1, "alpha"), silent=0)
    assert bool(_found("data.preprocess.unfinished", items)) is unfinished
    if unfinished:
        assert [i.episode.attributes["done"] for i in items if i.episode.name == "data.preprocess.unfinished"] == ["40"]


def test_the_bar_of_the_training_is_no_preparation() -> None:
    bar = _progress("progress.bar", 1, what="Epoch 3", done="24", total="67")
    assert not _found("data.preprocess.unfinished", _derived(bar, waited(1, "alpha"), silent=0))


def test_a_rank_that_waits_itself_is_not_blamed_for_its_own_download() -> None:
    load = _progress("data.download", 1, at_s=-5, rank=1, state="downloading")
    assert not _found("data.download.unfinished", _derived(load, waited(1, "alpha")))


def test_without_a_stall_nothing_is_unfinished() -> None:
    assert not _found("checkpoint.unfinished", _derived(_progress("checkpoint.started", 1, path="/c")))


# --- stores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ok_s", "left_out"), [(-60, True), (60, False)])
def test_a_server_that_answered_again_before_the_stall_led_to_nothing(ok_s: int, left_out: bool) -> None:
    lost = event("nfs.stall", source="kern", offset=1, at_ns=T0 - 90 * SECOND, attributes={"server": "s"})
    found = event("nfs.ok", source="kern", offset=2, at_ns=T0 + ok_s * SECOND, attributes={"server": "s"})
    items = _derived(lost, found, waited(1, "alpha", at_ns=T0 + 601 * SECOND))
    assert (not _found("nfs.stall", items)) is left_out


@pytest.mark.parametrize(
    ("label", "blocked_in"),
    [("storage/nfs_stall", "nfs"), ("storage/fs_stall", "file system"), ("hardware/gpu_hang", None)],
)
def test_a_hung_task_waits_for_what_its_stack_shows(label: str, blocked_in: str | None) -> None:
    task = event("host.hung_task", source="kern", offset=1, pid=800)
    stack = event("host.stack", source="kern", offset=2, attributes={"family": "x"})
    stack = type(stack)(**{**{f: getattr(stack, f) for f in stack.__struct_fields__}, "label": label})
    (hung,) = (item for item in _derived(task, stack) if item.episode.name == "host.hung_task")
    assert hung.episode.attributes.get("blocked_in") == blocked_in


def test_a_task_waits_for_what_its_own_stack_shows_and_not_for_what_a_later_one_does() -> None:
    at_s = {"host.hung_task": (0, 200), "host.stack": (201,)}
    lines = [
        event(name, source="kern", offset=at, pid=at, at_ns=T0 + at * SECOND)
        for name, times in at_s.items() for at in times
    ]  # fmt: skip
    lines[2] = msgspec.structs.replace(lines[2], label="storage/nfs_stall")
    hung = [item for item in _derived(*lines) if item.episode.name == "host.hung_task"]
    assert {item.subject.pid: item.episode.attributes.get("blocked_in") for item in hung} == {0: None, 200: "nfs"}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each time that two lines are compared."""
    calls: list[None] = []

    def counting(a: Event, b: Event) -> Order:
        calls.append(None)
        return order(a, b)

    for module in (ports, scene, stores):
        monkeypatch.setattr(module, "order", counting)
    return calls


MANY = 256


def _kernel(name: str, at_s: int, **fields: Any) -> Event:
    return event(name, node="beta", source="kern", offset=at_s, at_ns=T0 + at_s * SECOND, **fields)


@pytest.mark.parametrize("steps_at_s", [-100, 5_000, 100_000])
def test_a_port_that_flaps_all_the_time_is_not_compared_with_all_steps_each_time(
    steps_at_s: int, compared: list[None]
) -> None:
    flaps = [
        _kernel(name, 100 * number + later_s, nic=f"ens{number % 2}np0", role=role)
        for number in range(MANY)
        for name, later_s, role in (("nic.link.down", 0, "cause"), ("nic.link.up", 20, "context"))
    ]
    steps = [
        event("train.step", source=f"rank{rank}", rank=rank, at_ns=T0 + steps_at_s * SECOND, role="context")
        for rank in range(MANY)
    ]
    items = [Resolved(episode=e, subject=e.subject) for e in of_events([*flaps, *steps, waited(0, "alpha")], {})]
    kept = [item for item in derive(items, [], NOWHERE, None) if item.episode.name == "nic.link.down"]
    assert len(kept) == sum(100 * number + 20 >= steps_at_s for number in range(MANY))
    assert len(compared) < 20 * MANY


def test_tasks_that_hang_all_the_time_are_not_compared_with_all_stacks(compared: list[None]) -> None:
    tasks = [_kernel("host.hung_task", 4 * number, pid=number) for number in range(MANY)]
    stacks = [
        msgspec.structs.replace(_kernel("host.stack", 4 * number + 1, pid=number), label="storage/nfs_stall")
        for number in range(MANY)
    ]
    items = [Resolved(episode=e, subject=e.subject) for e in of_events([*tasks, *stacks], {})]
    hung = [item for item in derive(items, [], NOWHERE, None) if item.episode.name == "host.hung_task"]
    assert [item.episode.attributes.get("blocked_in") for item in hung] == ["nfs"] * MANY
    assert len(compared) < 20 * MANY


def test_a_server_that_is_lost_all_the_time_is_not_compared_with_all_its_answers(compared: list[None]) -> None:
    lines = [
        _kernel(name, 1_000 * number + later_s, attributes={"server": "s"})
        for number in range(MANY)
        for name, later_s in (("nfs.stall", 0), ("nfs.ok", 2))
    ]
    items = [Resolved(episode=e, subject=e.subject) for e in of_events(lines, {})]
    assert len(derive(items, [], NOWHERE, None)) == len(items) > MANY
    assert len(compared) < 20 * MANY


# --- what a root pattern may say -----------------------------------------------------------------------------------


def _chain(class_: str, items: list[Resolved]) -> Chain:
    (chain,) = (chain for chain in chains_of(items, RULES, Known(heard=True)) if chain.rule.class_ == class_)
    return chain


def test_a_report_in_hindsight_explains_the_time_out_that_stands_before_it() -> None:
    report = event("collective.desync", source="job", offset=9_999, at_ns=T0 + 700 * SECOND,
                   attributes={"ranks": "7", "what": "finished collective"})  # fmt: skip
    chain = _chain("software/collective_mismatch", _derived(_waits(0, 88), report))
    assert [step.item.episode.name for step in chain.steps] == ["collective.desync", "nccl.watchdog.timeout"]
    assert (chain.strength, chain.confidence) != (chain.rule.strength, chain.rule.confidence)


def test_another_root_does_not_explain_what_stands_before_it() -> None:
    late = event("dataloader.timeout", source="job", offset=9_999, rank=1, at_ns=T0 + 700 * SECOND)
    assert _chain("software/dataloader_deadlock", _derived(_waits(0, 88), late)).effects == 0


def test_the_culprit_of_a_job_has_only_what_all_its_lines_agree_on() -> None:
    lines = [event("python.exception", node=node, source=node, rank=rank, role="cause",
                   attributes={"message": "No CUDA GPUs are available", "type": "RuntimeError"})
             for rank, node in enumerate(("alpha", "alpha"))]  # fmt: skip
    assert _chain("software/config_error", _derived(*lines)).subject == Entity(node="alpha")


def test_a_task_that_is_gone_does_not_run_where_somebody_misses_it() -> None:
    missed = event("jax.task_lost", node="alpha", source="coordinator", rank=2, attributes={"task": "2"})
    (item,) = _derived(missed)
    assert item.subject == Entity(rank=2)


# --- whose an error without a name is -----------------------------------------------------------------------------


def _ended(pid: int, *, local_rank: int = 0, code: str = "1", source: str = "job", offset: int = 90) -> Event:
    return event("elastic.failed", source=source, offset=offset, pid=pid, local_rank=local_rank,
                 at_ns=T0 + 5 * SECOND, attributes={"exitcode": code, "pid": str(pid)})  # fmt: skip


def _row(rank: int, pid: int, *, code: str = "1", offset: int = 95) -> Event:
    return event("elastic.rank_failed", node="alpha", source="job", offset=offset + rank, rank=rank, local_rank=rank,
                 pid=pid, at_ns=T0 + 6 * SECOND, attributes={"exitcode": code, "pid": str(pid)})  # fmt: skip


def _raised(offset: int = 40, *, rank: int | None = None) -> Event:
    return event("python.exception", source="job", offset=offset, rank=rank, at_ns=T0, role="cause",
                 attributes={"type": "KeyError"})  # fmt: skip


def _whose(*events: Event) -> list[tuple[int | None, int | None]]:
    found = [item.subject for item in _derived(*events) if item.episode.name == "python.exception"]
    return [(subject.rank, subject.pid) for subject in found]


def test_an_error_without_a_name_is_of_the_process_whose_end_the_launcher_saw_first() -> None:
    assert _whose(_raised(), _ended(811), _row(0, 811), _row(1, 812, code="-15")) == [(0, 811)]


def test_an_error_that_names_its_process_stays_with_it() -> None:
    assert _whose(_raised(rank=3), _ended(811), _row(0, 811)) == [(3, None)]


def test_of_two_agents_in_one_file_nobody_knows_whose_the_error_is() -> None:
    assert _whose(_raised(), _ended(811), _ended(911, offset=91)) == [(None, None)]


def test_an_error_that_many_printed_is_of_one_only_where_all_others_lost_a_peer() -> None:
    twice = [_raised(), _raised(offset=44), _ended(812, local_rank=1), _row(0, 811), _row(1, 812)]
    lost = event("gloo.closed", source="job", offset=60, at_ns=T0 + SECOND)
    assert _whose(*twice) == [(None, None)]
    assert _whose(*twice, lost) == [(1, 812)]


def test_of_several_that_ended_in_one_look_of_the_launcher_the_first_in_its_list_says_nothing() -> None:
    lost = event("gloo.closed", source="job", offset=60, at_ns=T0 + SECOND)
    both = [_ended(811, local_rank=0), _row(0, 811), _row(1, 812), lost]
    assert _whose(_raised(), *both) == [(None, None)]
    save = msgspec.structs.replace(_raised(), name="checkpoint.write_failed")
    assert _found("checkpoint.write_failed", _derived(save, *both)) == [0]


def test_a_process_that_was_killed_printed_no_exception() -> None:
    assert _whose(_raised(), _ended(811, code="-9"), _row(0, 811, code="-9")) == [(None, None)]


def test_the_row_of_the_table_names_the_rank_of_the_process_that_ended() -> None:
    assert _found("elastic.failed", _derived(_ended(811), _row(2, 811))) == [2]
    assert _found("elastic.failed", _derived(_ended(811), _row(2, 812))) == [None]


@pytest.mark.parametrize(("task", "rank"), [(0, 1), (3, None), (None, None)])
def test_the_ranks_of_the_agent_of_task_0_begin_at_0(task: int | None, rank: int | None) -> None:
    ended = _ended(811, local_rank=1)
    ended = msgspec.structs.replace(ended, printer=Printer(task=task))
    assert _found("elastic.failed", _derived(ended)) == [rank]


# --- whom the kernel killed ---------------------------------------------------------------------------------------


def _kill(pid: int, offset: int, *, at_s: int = 0, source: str = "kern", **said: str) -> Event:
    return event("host.oom.kill", source=source, offset=offset, pid=pid, at_ns=T0 + at_s * SECOND, role="cause",
                 attributes={"pid": str(pid), "process": f"p{pid}", **said})  # fmt: skip


def _killed(*events: Event) -> list[tuple[int | None, str]]:
    items = [item for item in _derived(*events) if "kind" in item.episode.attributes]
    return [(item.subject.pid, item.episode.attributes["process"]) for item in items]


def test_the_process_that_died_is_the_one_that_the_second_line_of_an_old_kernel_names() -> None:
    chosen = _kill(71, 100, kind="memcg", score="912")
    assert _killed(chosen, _kill(75, 200)) == [(75, "p75")]
    assert _killed(chosen, _kill(71, 200)) == [(71, "p71")]
    assert _killed(chosen, _kill(75, 200), _kill(80, 300, kind="memcg", score="3"), _kill(84, 400)) == [
        (75, "p75"), (84, "p84"),
    ]  # fmt: skip


def test_a_kill_of_another_file_of_before_or_of_later_says_nothing_of_who_died() -> None:
    chosen = _kill(71, 100, kind="memcg", score="912")
    for other in (_kill(75, 200, source="syslog"), _kill(75, 50), _kill(75, 200, at_s=90)):
        assert _killed(chosen, other) == [(71, "p71")]
    assert _killed(_kill(71, 100, kind="memcg"), _kill(75, 200)) == [(71, "p71")], "new kernels print one line"


def _kinds(*events: Event) -> list[str]:
    return [kind for item in _derived(*events) if (kind := item.episode.attributes.get("kind"))]


def test_a_kill_of_which_only_machines_tell_may_be_anybodys() -> None:
    kill = msgspec.structs.replace(_kill(71, 100, kind="memcg"), source_kind="kernel")
    link = msgspec.structs.replace(event("ib.port.down", source="kern", offset=7), source_kind="kernel")

    assert _kinds(kill, link) == ["memcg, unheard"]
    assert _kinds(kill, event("train.step", source="log")) == ["memcg"]
    assert _kinds(kill, event("nccl.init", source="rank0", rank=0, pid=800, role="context")) == ["memcg"]


# --- a process that holds a processor -----------------------------------------------------------------------------


def _locked(pid: int, offset: int, seconds: int = 22) -> Event:
    return event("host.soft_lockup", source="kern", offset=offset, pid=pid, at_ns=T0 + offset * SECOND,
                 role="intermediate", attributes={"pid": str(pid), "seconds": str(seconds)})  # fmt: skip


@pytest.mark.parametrize(
    ("lockups", "lasting"),
    [
        ([_locked(7, 0), _locked(7, 40), _locked(7, 80)], True),
        ([_locked(7, 0, seconds=74)], True),
        ([_locked(7, 0), _locked(7, 40)], False),
        ([_locked(7, 0), _locked(8, 40), _locked(9, 80)], False),
    ],
)
def test_a_process_that_is_stuck_for_a_minute_in_all_is_told_apart(lockups: list[Event], lasting: bool) -> None:
    found = [item.episode.attributes.get("lasting") == "yes" for item in _derived(*lockups)]
    assert any(found) is lasting
    assert all(found) is lasting


# --- a firmware that fell silent ----------------------------------------------------------------------------------


def _gpu(name: str, at_s: int, *, bus: str | None = None, node: str = "beta", **said: str) -> Event:
    made = event(name, node=node, source="kern", offset=at_s, bus=bus, at_ns=T0 + at_s * SECOND, role="cause",
                 attributes=said)  # fmt: skip
    return msgspec.structs.replace(made, source_kind="kernel")


def _given_up(bus: str, at_s: int, *, node: str = "beta", to: str = "GPU Reset Required") -> Event:
    return _gpu("gpu.xid", at_s, bus=bus, node=node, xid="154", action_to_name=to)


ONE, TWO = "0000:5e:00.0", "0000:1b:00.0"


@pytest.mark.parametrize(
    ("after", "bus"),
    [
        ([_given_up(ONE, 4)], ONE),
        ([_gpu("gpu.xid", 4, bus=ONE, xid="119"), _given_up(ONE, 9)], ONE),
        ([_given_up(ONE, 4), _given_up(TWO, 5)], None),
        ([_given_up(ONE, 4, to="Node Reboot Required")], None),
        ([_given_up(ONE, 4, node="gamma")], None),
        ([_given_up(ONE, 4_000)], None),
        ([], None),
    ],
)
def test_a_silent_firmware_is_of_the_one_gpu_that_is_given_up_after_it(after: list[Event], bus: str | None) -> None:
    (silent,) = [item for item in _derived(_gpu("gpu.gsp_silent", 0), *after) if item.episode.name == "gpu.gsp_silent"]
    assert silent.subject.pci_bus_id == bus
