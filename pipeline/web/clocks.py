"""The newest clock segments of every node, in memory and bounded, and what they say of a node's clock. No clock of its
own: when it is, is an argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from msgspec import Struct

from pipeline.core.clocks.brokers import broker_clocks
from pipeline.core.shown_times import rfc3339
from pipeline.web.answers import ClockListing, ClockState, NodeClock
from pipeline.web.health import Health
from pipeline.web.query import ClockQuery
from schemas.records import ClockSegment

# Align tells of every node about every 16 s, also that its clock is not measured: who is not told of is away.
SILENT_MS: Final = 120_000
# A live node that is away for so long is no node any more, as far as clocks go.
FORGET_MS: Final = 3_600_000
# No time daemon that works leaves a wall clock so far off, nor does the order of lines need it.
WALL_OFF_NS: Final = 1_000_000_000
# Of a node's brokers only those count that were heard of so shortly before the last one.
TOGETHER_MS: Final = 60_000
BROKERS_OF_A_NODE: Final = 16
WORST_FIRST: Final[tuple[ClockState, ...]] = get_args(ClockState)
UNUSABLE: Final[tuple[ClockState, ...]] = ("none", "silent")
NS_OF_A_MS: Final = 1_000_000
_LAST_MS: Final = 4_102_444_800_000  # the year 2100

Name = tuple[str, str, str, str]


class _Told(Struct, frozen=True, kw_only=True):
    segment: ClockSegment
    at_ms: int


class _Jump(Struct, frozen=True, kw_only=True):
    step_ns: int
    at_ms: int
    told_ms: int
    boot_id: str
    through_raw_ns: int


class _Node(Struct, kw_only=True):
    boot_id: str
    heard_ms: int
    brokers: dict[int, _Told] = {}
    jump: _Jump | None = None


@dataclass(kw_only=True)
class ClockBook:
    """Nodes by run, cluster and name, those last heard of last. Reading a message again is harmless."""

    keep_nodes: int = 20_000
    _nodes: dict[Name, _Node] = field(default_factory=dict, init=False)

    def apply(self, segment: ClockSegment, at_ms: int) -> bool:
        """Take a segment in; `at_ms` is the broker's time of its message. True where it tells of a new jump of a live
        node's wall clock.
        """
        at_ms = min(max(at_ms, 0), _LAST_MS)
        name = (segment.run, segment.run_id, segment.cluster, segment.node)
        node = self._nodes.get(name) or _Node(boot_id=segment.boot_id, heard_ms=at_ms)
        known = node.brokers.get(segment.broker_id)
        if segment.boot_id != node.boot_id:
            if at_ms < node.heard_ms:
                return False
            node = _Node(boot_id=segment.boot_id, heard_ms=at_ms, jump=node.jump)
        elif known is not None and at_ms < known.at_ms:
            return False
        node.heard_ms = max(node.heard_ms, at_ms)
        node.brokers[segment.broker_id] = _Told(segment=segment, at_ms=at_ms)
        if len(node.brokers) > BROKERS_OF_A_NODE:
            del node.brokers[min(node.brokers, key=lambda broker: node.brokers[broker].at_ms)]
        self._nodes.pop(name, None)
        self._nodes[name] = node
        while len(self._nodes) > self.keep_nodes:
            del self._nodes[next(iter(self._nodes))]
        return _learn_jump(node, segment, at_ms) and segment.run == "live"

    def __len__(self) -> int:
        """Nodes held, of all runs."""
        return len(self._nodes)

    def clusters(self) -> list[str]:
        """Every cluster of which a node is held."""
        return sorted({cluster for _, _, cluster, _ in self._nodes})

    def select(self, query: ClockQuery, now_ms: int) -> list[NodeClock]:
        """The clocks that a query asks for, worst first, without its limit."""
        found = [_view(name, node, now_ms) for name, node in self._asked(query, now_ms)]
        return sorted((clock for clock in found if not query.bad or _is_bad(clock)), key=_badness)

    def listing(self, query: ClockQuery, now_ms: int, health: Health) -> ClockListing:
        """The answer to a query."""
        everyone = self.select(replace(query, bad=False), now_ms)
        shown = [clock for clock in everyone if not query.bad or _is_bad(clock)]
        counts: dict[str, int] = dict.fromkeys(reversed(WORST_FIRST), 0)
        for clock in everyone:
            counts[clock.state] += 1
        others: dict[str, int] = {}
        for (run, _, _, _), _ in self._asked(replace(query, run="all"), now_ms):
            if query.run not in ("all", run):
                others[run] = others.get(run, 0) + 1
        usable = [clock for clock in everyone if clock.state not in UNUSABLE]
        told = [clock for clock in everyone if clock.wall_offset_ns is not None and clock.state != "silent"]
        return ClockListing(
            clocks=shown[: query.limit], total=len(shown), counts=counts,
            widest=max(usable, key=lambda clock: clock.bound_ns or 0, default=None),
            walls_off=sum(clock.is_wall_off for clock in everyone),
            farthest=max(told, key=lambda clock: abs(clock.wall_offset_ns or 0), default=None),
            all_silent=self._all_silent(now_ms), other_runs=others,
            clusters=tuple(sorted({name[2] for name, _ in self._asked(replace(query, cluster=""), now_ms)})),
            brokers=tuple(broker_clocks(_newest(node) for _, node in self._asked(query, now_ms))),
            following=health.ok, reason=health.reason,
        )  # fmt: skip

    def _all_silent(self, now_ms: int) -> bool:
        """Whether nothing was told of any live node for two minutes, whatever its cluster."""
        heard = [node.heard_ms for _, node in self._asked(ClockQuery(), now_ms)]
        return bool(heard) and now_ms - max(heard) > SILENT_MS

    def _asked(self, query: ClockQuery, now_ms: int) -> Iterator[tuple[Name, _Node]]:
        for name, node in self._nodes.items():
            run, _, cluster, _ = name
            gone = run == "live" and now_ms - node.heard_ms >= FORGET_MS
            if not gone and query.run in ("all", run) and query.cluster in ("", cluster):
                yield name, node


def _newest(node: _Node) -> list[ClockSegment]:
    """The segments of a node of the last minute that it was heard, one for each broker."""
    return [told.segment for told in node.brokers.values() if node.heard_ms - told.at_ms <= TOGETHER_MS]


def _learn_jump(node: _Node, segment: ClockSegment, at_ms: int) -> bool:
    """Keep the last jump of the wall clock: every broker of a node shows it, and it is one."""
    last = node.jump
    if segment.wall_step_ns == 0:
        return False
    if last is not None and last.boot_id == segment.boot_id and segment.t_from_raw_ns < last.through_raw_ns:
        return False
    if last is not None and at_ms < last.told_ms:
        return False
    node.jump = _Jump(
        step_ns=segment.wall_step_ns, at_ms=_end_ms(segment, at_ms), told_ms=at_ms, boot_id=segment.boot_id,
        through_raw_ns=segment.t_to_raw_ns,
    )  # fmt: skip
    return True


def _end_ms(segment: ClockSegment, at_ms: int) -> int:
    """Reference time at the end of a segment; that of its message where the clock is not measured."""
    span = segment.t_to_raw_ns - segment.t_from_raw_ns
    end_ms = (segment.t_to_raw_ns + segment.a_ns + segment.b_ppb * span // 1_000_000_000) // NS_OF_A_MS
    return end_ms if segment.quality != "none" and 0 < end_ms < _LAST_MS else at_ms


def _reference(node: _Node) -> _Told:
    """The broker by which a node's clock is told: the best of those heard of last, then the lowest number."""
    heard = [told for told in node.brokers.values() if told.at_ms >= node.heard_ms - TOGETHER_MS]
    return min(heard, key=lambda t: (-WORST_FIRST.index(t.segment.quality), t.segment.broker_id))


def _view(name: Name, node: _Node, now_ms: int) -> NodeClock:
    run, run_id, cluster, node_name = name
    told = _reference(node)
    segment, jump = told.segment, node.jump
    measured = segment.quality != "none"
    silent = run == "live" and now_ms - node.heard_ms > SILENT_MS
    return NodeClock(
        run=run, run_id=run_id, cluster=cluster, node=node_name,
        state="silent" if silent else segment.quality, quality=segment.quality,
        wall_offset_ns=segment.wall_offset_ns,
        bound_ns=max(segment.hi_ns, -segment.lo_ns) if measured else None,
        u99_ns=segment.u99_ns if measured else None, drift_ppb=segment.b_ppb if measured else None,
        reference_broker=segment.broker_id if segment.broker_id >= 0 else None,
        epoch=segment.epoch, boot_id=segment.boot_id, reason=segment.reason,
        last_wall_step_ns=jump.step_ns if jump else None,
        last_wall_step_at=rfc3339(jump.at_ms * NS_OF_A_MS) if jump else None,
        last_wall_step_age_s=_age_s(now_ms, jump.at_ms) if jump else None,
        reported_at=rfc3339(told.at_ms * NS_OF_A_MS) or "", age_s=_age_s(now_ms, told.at_ms),
        is_wall_off=not silent and abs(segment.wall_offset_ns or 0) > WALL_OFF_NS,
    )  # fmt: skip


def _is_bad(clock: NodeClock) -> bool:
    return clock.state != "good" or clock.is_wall_off


def _badness(clock: NodeClock) -> tuple[bool, int, int, bool, int, int, str, str, str]:
    """Unusable ones, wall clocks that are off (the farthest first), then by state, jump and bound."""
    off_ns = abs(clock.wall_offset_ns or 0)
    return (
        clock.state not in UNUSABLE, -off_ns if clock.is_wall_off else 0, WORST_FIRST.index(clock.state),
        clock.last_wall_step_ns is None, -(clock.bound_ns or 0), -off_ns, clock.cluster, clock.node, clock.run_id,
    )  # fmt: skip


def _age_s(now_ms: int, at_ms: int) -> int:
    return max(0, now_ms - at_ms) // 1_000
