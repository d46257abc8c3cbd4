"""One name per machine: what is told of a node by its name is told of the machine that bore the name then.

Agents say the machine id and the name with it, schedulers and inventories mostly the name alone. A span of a node whose
facts hold `name` says that the machine which is its unit bore that name; facts with `machine_id` say it the other way
round. Without either a name is a machine of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from pipeline.core.fleet.defects import of_span, place, when
from pipeline.core.fleet.installed import end_of
from pipeline.core.fleet.records import Defect, Failure, FleetSpan, JobAttempt

NAME: Final = "name"
MACHINE_ID: Final = "machine_id"
# (cluster, name) to [from, machine id], by time: a name is the machine's that took it last.
_Bearers = Mapping[tuple[str, str], list[tuple[int, str]]]


def by_machine(spans: Iterable[FleetSpan]) -> tuple[list[FleetSpan], list[Defect]]:
    """The spans with machine ids for names, cut where a name goes to another machine.

    A name that two machines bear at once is a defect (`name_of_two_machines`); the one that took it last has it.
    """
    given = list(spans)
    bearers, defects = _bearers(given)
    if not bearers:
        return given, defects
    return [part for span in given for part in _renamed(span, bearers)], defects


def failures_by_machine(failures: Iterable[Failure], spans: Iterable[FleetSpan]) -> list[Failure]:
    """The failures with the machine that bore their node's name then. `spans`: as told, before `by_machine`."""
    bearers, _ = _bearers(list(spans))
    found: list[Failure] = []
    for failure in failures:
        node = _bearer(bearers.get((failure.cluster, failure.node), []), failure.at_ns) or failure.node
        unit = failure.unit
        if failure.unit_kind == "node":
            unit = _bearer(bearers.get((failure.cluster, unit), []), failure.at_ns) or unit
        found.append(replace(failure, node=node, unit=unit))
    return found


def attempts_by_machine(attempts: Iterable[JobAttempt], spans: Iterable[FleetSpan]) -> list[JobAttempt]:
    """The attempts with the machines that bore their nodes' names when they began. `spans`: as for failures."""
    bearers, _ = _bearers(list(spans))
    return [
        replace(one, nodes=tuple(_bearer(bearers.get((one.cluster, n), []), one.from_ns) or n for n in one.nodes))
        for one in attempts
    ]


def _bearer(steps: list[tuple[int, str]], at_ns: int) -> str:
    """The machine at an instant; before anybody is known to bear the name, the first one; empty for none."""
    return next((machine for begin, machine in reversed(steps) if begin <= at_ns), steps[0][1] if steps else "")


def _bearers(spans: list[FleetSpan]) -> tuple[_Bearers, list[Defect]]:
    told: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    last: dict[tuple[str, str], FleetSpan] = {}
    defects: list[Defect] = []
    for span in sorted(spans, key=place):
        machine, name = _pair(span)
        if not machine or not name or machine == name:
            continue
        steps = told[span.cluster, name]
        other = last.get((span.cluster, name))
        if not steps or steps[-1][1] != machine:
            steps.append((span.from_ns, machine))
        # Who is told without an end has the name until another takes it.
        if other is not None and _pair(other)[0] != machine and other.to_ns is not None and other.to_ns > span.from_ns:
            text = f"{name} is {machine} from {when(span.from_ns)} and {_pair(other)[0]} until {when(other.to_ns)}"
            defects.append(of_span("name_of_two_machines", span, f"{text}; the later beginning counts"))
        last[span.cluster, name] = span
    return told, defects


def _pair(span: FleetSpan) -> tuple[str, str]:
    """Machine id and name, where a span says both."""
    if span.unit_kind != "node":
        return "", ""
    if MACHINE_ID in span.facts:
        return span.facts[MACHINE_ID], span.unit
    return span.unit, span.facts.get(NAME, "")


def _renamed(span: FleetSpan, bearers: _Bearers) -> list[FleetSpan]:
    name = span.unit if span.unit_kind == "node" else span.node
    steps = bearers.get((span.cluster, name))
    if not steps:
        return [span]
    # Before anybody is known to bear the name, it is the first one's.
    edges = [(0, steps[0][1]), *steps[1:]]
    parts: list[FleetSpan] = []
    for (begin, machine), until in zip(edges, [*(begin for begin, _ in edges[1:]), None], strict=True):
        from_ns, end = max(span.from_ns, begin), end_of(span)
        if (until is not None and until <= from_ns) or (begin >= end and begin > span.from_ns):
            continue
        to_ns = span.to_ns if until is None or end <= until else until
        more = {"unit": machine} if span.unit_kind == "node" else {}
        node = machine if span.unit_kind == "gpu" or span.node == name else span.node
        parts.append(replace(span, from_ns=from_ns, to_ns=to_ns, node=node, **more))
    return parts
