"""What flight-recorder dumps say together, as events: each takes the place of the line of the rank that it is about.

The text of such an event is what the dump says of the group concerned, under the dump's own names.
"""

import json
from collections.abc import Collection
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.chains import Resolved
from pipeline.core.flight.analysis import Findings, Stuck, analyse, first_of_each
from pipeline.core.flight.mismatch import Crossed, GroupKey, Mismatch
from pipeline.core.flight.state import GroupState, Op, RankState, read_state
from pipeline.core.flight.table import Waiting
from pipeline.core.flight.words import circle_said, crossed_said, group_text, missing_said, stuck_said, together_said
from pipeline.core.placement import PlacementMap
from schemas.records import Entity
from schemas.vocabulary import Role

DUMP: Final = "flight.dump"
# Names and attributes that no signal gives.
EVENTS: Final = frozenset(
    (
        "flight.behind", "flight.missing", "flight.stalled", "flight.waiting", "flight.queued", "flight.mismatch",
        "flight.deadlock",
    )
)  # fmt: skip
ATTRIBUTES: Final = {"flight.mismatch": frozenset(("differ",)), "flight.deadlock": frozenset(("ranks",))}
# What the dump of a rank shows that waits for another one.
WAITERS: Final = frozenset(("flight.waiting", "flight.queued"))
# Of these the job does not go on.
FAILURES: Final = EVENTS - WAITERS
# So many ranks that dumped nothing are named one by one.
MAX_MISSING: Final = 64


class FlightEvidence(Struct, frozen=True, kw_only=True):
    """The items with what the dumps say together, and what that comes to.

    `silent`: the ranks that stopped, as far as the dumps can tell; `waiting`: those that wait for others. `is_guess`:
    the silent ones left no dump, which may also lie elsewhere. `said` is the sentence on it, `why` what would decide
    the cause; both empty where no dump says anything.
    """

    items: list[Resolved]
    silent: list[int] = []
    waiting: frozenset[int] = frozenset()
    is_guess: bool = False
    said: str = ""
    why: str = ""


def flight_evidence(items: list[Resolved], placement: PlacementMap, reporters: Collection[int] = ()) -> FlightEvidence:
    """Compare the dumps of all ranks. The order of the items does not matter. `reporters`: the ranks that say in a line
    of their own that they waited. That the dump of one of these is not there is no sign of its death.
    """
    dumps = [item for item in items if item.episode.name == DUMP]
    if not dumps:
        return FlightEvidence(items=items)
    states: dict[int, list[tuple[Resolved, RankState]]] = {}
    for item in dumps:
        state = read_state(item.episode.attributes.get("state", ""))
        if state is not None:
            states.setdefault(state.rank, []).append((item, state))
    found = analyse(state for pairs in states.values() for _, state in pairs)
    found = msgspec.structs.replace(found, awaited=[rank for rank in found.awaited if rank not in reporters])
    changed = _Events(found, states, placement).all()
    said, why = _words(found)
    return FlightEvidence(
        items=[one for item in items for one in changed.get(id(item), [_quiet(item)])],
        silent=_silent(found),
        waiting=_waiting(found), is_guess=bool(found.awaited), said=said, why=why,
    )  # fmt: skip


def _silent(found: Findings) -> list[int]:
    """The ranks that stopped. Where most ranks never came to where few wait, nobody can tell who is wrong."""
    if found.stuck:
        return [one.rank for one in found.stuck] if len(found.stuck) * 2 <= len(found.ranks) else []
    return found.awaited[:MAX_MISSING]


def _waiting(found: Findings) -> frozenset[int]:
    """The ranks that wait for others. Of one that has no dump and is not missed otherwise nobody knows where it is."""
    known = {*found.ranks, *found.awaited}
    return frozenset(wait.rank for wait in found.waiting if not known.isdisjoint(wait.on))


def _quiet(item: Resolved) -> Resolved:
    """A dump that shows nothing is context."""
    if item.episode.name != DUMP:
        return item
    return _with(item, DUMP, "context", item.subject, item.episode.first.body, {})


def _words(found: Findings) -> tuple[str, str]:
    if found.stuck:
        return stuck_said(found)
    if found.awaited:
        return missing_said(found)
    if found.circle:
        return circle_said(found)
    if found.crossed is not None:
        return crossed_said(found.crossed)
    return together_said(found) if found.together else ("", "")


class _Events:
    """Turns findings into events of the lines on which they rest."""

    def __init__(
        self, found: Findings, states: dict[int, list[tuple[Resolved, RankState]]], placement: PlacementMap
    ) -> None:
        self._found = found
        self._states = states
        self._placement = placement
        self._changed: dict[int, list[Resolved]] = {}

    def all(self) -> dict[int, list[Resolved]]:
        """The events by the line (its id) whose place they take."""
        found = self._found
        held = {one.rank for one in found.stuck} | set(found.awaited)
        is_held = {id(wait.on): not held.isdisjoint(wait.on) for wait in first_of_each(found.waiting)}
        for wait in found.waiting:
            # Those in a collective that a rank holds up, and those behind them.
            name = "flight.queued" if wait.op.is_p2p or not is_held[id(wait.on)] else "flight.waiting"
            self._put(wait.rank, wait.group, name, _waiting_text(wait), {"seq": str(wait.op.seq)})
        for together in found.together:
            for rank in together.ranks:
                text = _op_text(together.group, together.op, self._op_of(rank, together.group, together.op))
                self._put(rank, together.group, "flight.stalled", text, {"seq": str(together.op.seq)})
        for stuck in found.stuck:
            text = self._status_text(stuck.rank, stuck.group)
            self._put(stuck.rank, stuck.group, "flight.behind", text, _of_stuck(stuck))
        self._circle()
        if found.crossed is not None:
            self._crossed(found.crossed)
        for mismatch in found.mismatches[:1]:
            self._mismatch(mismatch)
        for rank in found.awaited[:MAX_MISSING]:
            self._missing(rank)
        return self._changed

    def _circle(self) -> None:
        """Ranks that wait for each other: with sends and receives one of them may also have stopped elsewhere."""
        waits = [wait for wait in self._found.waiting if wait.rank in self._found.circle]
        if waits and not any(wait.op.is_p2p for wait in waits):
            self._deadlock(self._found.circle, [])
            return
        for wait in waits:
            self._put(wait.rank, wait.group, "flight.stalled", _waiting_text(wait), {})

    def _missing(self, rank: int) -> None:
        """A rank of which nothing is there: the line of one that waits for it names it."""
        wait = next(wait for wait in first_of_each(self._found.waiting) if rank in wait.on)
        item, _ = self._line(wait.rank, wait.group)
        subject = self._subject(rank, wait.group)
        text = self._status_text(wait.rank, wait.group)
        self._changed.setdefault(id(item), []).append(
            _with(item, "flight.missing", "symptom", subject, text, {"waiting_rank": str(wait.rank)})
        )

    def _mismatch(self, mismatch: Mismatch) -> None:
        """Each odd rank; of a tie nobody."""
        differ = (
            f"another {mismatch.what} than on the other ranks at number {mismatch.seq} of {group_text(mismatch.group)}"
        )
        for rank in mismatch.odd or mismatch.others[:1]:
            own = self._op_of(rank, mismatch.group, mismatch.odd_op)
            text = f"{_op_text(mismatch.group, own, own)}, others {_op_text(mismatch.group, mismatch.other_op)}"
            subject = self._subject(rank, mismatch.group) if mismatch.odd else Entity()
            self._put(rank, mismatch.group, "flight.mismatch", text, {"differ": differ}, role="cause", subject=subject)

    def _crossed(self, crossed: Crossed) -> None:
        text = f"{_op_text(crossed.first, crossed.first_op)}, {_op_text(crossed.second, crossed.second_op)}"
        self._deadlock(crossed.odd or crossed.others, crossed.odd, text)

    def _deadlock(self, ranks: list[int], odd: list[int], text: str = "") -> None:
        """The ranks that wait for each other; one line stands for it, of the odd one where there is one."""
        attributes = {"ranks": ", ".join(map(str, ranks[:MAX_MISSING]))}
        rank = ranks[0]
        group = next((wait.group for wait in self._found.waiting if wait.rank == rank), ("", "", ""))
        own = next((_waiting_text(wait) for wait in self._found.waiting if wait.rank == rank), "")
        subject = self._subject(rank, group) if len(odd) == 1 else Entity()
        self._put(rank, group, "flight.deadlock", text or own, attributes, role="cause", subject=subject)

    # --- the lines ----------------------------------------------------------------------------------------------------

    def _put(
        self, rank: int, group: GroupKey, name: str, text: str, attributes: dict[str, str], *, role: Role = "symptom",
        subject: Entity | None = None,
    ) -> None:  # fmt: skip
        item, _ = self._line(rank, group)
        who = self._subject(rank, group) if subject is None else subject
        event = _with(item, name, role, who, text, {"group": group_text(group), **attributes})
        self._changed[id(item)] = [event]

    def _line(self, rank: int, group: GroupKey) -> tuple[Resolved, GroupState | None]:
        """The line of a rank that tells of a group, else its first one."""
        for item, state in self._states[rank]:
            for one in state.groups:
                if (one.name, one.desc) == group[:2] and one.ranks in (group[2], ""):
                    return item, one
        return self._states[rank][0][0], None

    def _op_of(self, rank: int, group: GroupKey, wanted: Op) -> Op:
        """The operation of that number on that rank."""
        _, state = self._line(rank, group)
        ops = (*state.past, *state.ops) if state is not None else ()
        return next((op for op in ops if op.seq == wanted.seq and op.is_p2p == wanted.is_p2p), wanted)

    def _subject(self, rank: int, group: GroupKey) -> Entity:
        known = self._placement.ranks.get(rank) or Entity(rank=rank)
        return msgspec.structs.replace(known, process_group=group_text(group)) if any(group) else known

    def _status_text(self, rank: int, group: GroupKey) -> str:
        """What the dump of a rank says of a group: the numbers, and its first pending operation."""
        _, state = self._line(rank, group)
        said: dict[str, Any] = {"process_group": list(group[:2]), "ranks": group[2]}
        if state is not None:
            said |= {
                "last_enqueued_collective": state.enqueued, "last_started_collective": state.started,
                "last_completed_collective": state.completed, "entries": [_said(op) for op in state.ops[:1]],
            }  # fmt: skip
        return json.dumps(said, ensure_ascii=False)


def _of_stuck(stuck: Stuck) -> dict[str, str]:
    return {
        "where": stuck.kind, "seq": str(stuck.seq), "op": stuck.op, "pending": str(stuck.pending),
        "enqueued": str(stuck.enqueued), "completed": str(stuck.completed),
    }  # fmt: skip


def _waiting_text(wait: Waiting) -> str:
    return _op_text(wait.group, wait.op)


def _op_text(group: GroupKey, op: Op, own: Op | None = None) -> str:
    return json.dumps({"process_group": list(group[:2]), **_said(own or op)}, ensure_ascii=False)


def _said(op: Op) -> dict[str, Any]:
    """An entry under the dump's own names."""
    said: dict[str, Any] = {"record_id": op.record_id, "collective_seq_id": op.seq}
    if op.is_p2p:
        said["p2p_seq_id"] = op.p2p_seq
    said |= {"profiling_name": op.profiling_name, "state": op.state, "sizes": op.shape, "dtypes": op.dtype_in}
    return said | ({"called_at": op.where} if op.where else {})


def _with(item: Resolved, name: str, role: Role, subject: Entity, text: str, attributes: dict[str, str]) -> Resolved:
    first = msgspec.structs.replace(
        item.episode.first, name=name, role=role, body=text, attributes=attributes,
        label="software/collective_mismatch" if role == "cause" else item.episode.first.label,
    )  # fmt: skip
    return Resolved(episode=msgspec.structs.replace(item.episode, first=first, last=None), subject=subject)
