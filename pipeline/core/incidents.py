"""A conclusion, written as the incident that people read: times, chain, edges, action, coverage."""

from collections import Counter
from typing import Final

import msgspec

from pipeline.core.calibration import kind_of
from pipeline.core.causes import Rule, RuleSet, names_in
from pipeline.core.chains import Step
from pipeline.core.code_path import failure_of, repeats
from pipeline.core.conclusion import Conclusion
from pipeline.core.derived.flight import WAITERS as FLIGHT_WAITERS
from pipeline.core.episodes import Episode
from pipeline.core.marks import STALLED
from pipeline.core.operator_lines import operator_lines
from pipeline.core.order import Place, canonical, lag_ns
from pipeline.core.run_state import phase_of, runs_again, saved_of
from pipeline.core.shown_times import error_ns, rfc3339, shown_at, to_middle_ns
from pipeline.core.signs import FAILURES, STALLS, WAITERS
from pipeline.core.unknown import has_last_words, interruption_of
from schemas.records import (
    Action,
    Alternative,
    BlastRadius,
    ChainStep,
    Coverage,
    Culprit,
    Edge,
    Engine,
    Entity,
    Event,
    Evidence,
    Gap,
    Incident,
    Job,
    Recovery,
    Suppressed,
)
from schemas.vocabulary import EdgeOrder, IncidentSeverity, Phase, Run, VerdictState

MAX_STEPS: Final = 30
MAX_RANKS_NAMED: Final = 64
MAX_KEPT: Final = 8
# How lines about a memory module name it: by its label in EDAC, by its sensor in the BMC's log.
_PARTS: Final = ("dimm", "sensor")
_KEEP_FIRST: Final = {"root": 0, "cascade": 1, "symptom": 2, "context": 3}


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What all incidents of an investigation share."""

    version: str
    rules: RuleSet
    run: Run
    run_id: str
    cluster: str
    job: Job | None
    nodes: list[str]
    verdict: VerdictState
    episodes: list[Episode]
    known_ranks: list[int]
    world_size: int | None
    coverage: dict[str, Coverage]
    gaps: list[Gap]


def write(incident_id: str, conclusion: Conclusion, frame: Frame) -> Incident:
    """The incident of one conclusion."""
    rule = conclusion.rule
    groups = _folded(conclusion)
    root = conclusion.steps[0].item.episode.first
    sure = confidence_of(conclusion, frame)
    culprits = [_culprit(entity, sure) for entity in conclusion.culprits]
    stall_ns = _stall_start(conclusion)
    # Without a cause the stall is all that is known of the beginning; its reports come later.
    began_ns = stall_ns if rule is None else None
    timed = [s.item.episode for s in conclusion.steps if s.item.episode.first.quality != "none"]
    last = max(timed, key=lambda e: e.end_ns, default=None)
    return Incident(
        incident_id=incident_id,
        engine=Engine(version=frame.version, rules_digest=frame.rules.digest, calibrated_on=frame.rules.calibration.on),
        run=frame.run,
        run_id=frame.run_id,
        synthetic=frame.run == "drill",
        cluster=frame.cluster,
        class_=conclusion.class_,
        verdict=frame.verdict,
        state="resolved" if _is_over(conclusion, frame) else "open",
        severity=_severity(conclusion),
        jobs=[frame.job] if frame.job and not conclusion.outside else [],
        started_at=rfc3339(began_ns[0]) if began_ns else shown_at(root),
        started_error_ns=began_ns[1] if began_ns else error_ns(root),
        ended_at=rfc3339(last.end_ns + to_middle_ns(last.first)) if last else None,
        ended_error_ns=error_ns(last.first) if last else None,
        stall_started_at=rfc3339(stall_ns[0]) if stall_ns else None,
        stall_started_error_ns=stall_ns[1] if stall_ns else None,
        labels=list(dict.fromkeys(s.item.episode.first.label for s in conclusion.steps if s.item.episode.first.label)),
        xid=_xid(conclusion),
        sxid=_sxid(conclusion),
        culprits=culprits,
        why_unknown=conclusion.why_unknown,
        confidence=round(sure, 3),
        alternatives=[_alternative(other, conclusion, frame) for other in conclusion.alternatives],
        phase=_phase(conclusion, frame, root),
        interruption=rule.interruption if rule else interruption_of(conclusion),
        chain=[_chain_step(number, group, conclusion) for number, group in enumerate(groups, 1)],
        edges=_edges(groups, conclusion),
        blast_radius=_blast_radius(conclusion, frame),
        suppressed=_suppressed(groups, conclusion),
        explanation=_explanation(conclusion, frame, culprits),
        action=_action(incident_id, conclusion, frame, culprits),
        recovery=_recovery(conclusion, frame, root, last.end_ns if last else None),
        coverage=frame.coverage,
        failure=failure_of(conclusion.root_item.episode.first),
        repeats=repeats(conclusion.root_item.episode, frame.episodes) if rule is not None and rule.dies else 0,
        not_network_because=_not_network(conclusion, culprits),
        gaps=frame.gaps,
    )


# --- chain --------------------------------------------------------------------------------------------------------


def _folded(conclusion: Conclusion) -> list[list[int]]:
    """Steps of the chain as groups of indices: what many ranks print alike is one step. At most 30, roots first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, step in enumerate(conclusion.steps):
        episode = step.item.episode
        # What a kernel says of several devices are several facts.
        device = (step.item.subject.pci_bus_id or "") if episode.first.source_kind == "kernel" else ""
        exitcode, xid = episode.attributes.get("exitcode", ""), episode.attributes.get("xid", "")
        alike = (step.role, episode.name, xid, exitcode, device)
        name = alike if step.role == "symptom" else (*alike, str(index))
        groups.setdefault(name, []).append(index)
    kept = sorted(groups.values(), key=lambda group: _KEEP_FIRST[conclusion.steps[group[0]].role])[:MAX_STEPS]
    return _told(kept, conclusion)


def _told(groups: list[list[int]], conclusion: Conclusion) -> list[list[int]]:
    """Groups in the order of telling: by time, but nothing before what it hangs on or what leads to it."""
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    needs: dict[int, set[int]] = {number: set() for number in range(len(groups))}
    for number, group in enumerate(groups):
        step = conclusion.steps[group[0]]
        if step.parent is not None and step.parent in group_of:
            needs[number].add(group_of[step.parent])
        if step.leads_to is not None and step.leads_to in group_of:
            needs[group_of[step.leads_to]].add(number)
    waiting = dict(enumerate(groups))
    told: list[list[int]] = []
    while waiting:
        ready = [number for number in waiting if not (needs[number] - {number}) & waiting.keys()]
        number = min(ready or waiting, key=lambda n: _first_line(waiting[n], conclusion))
        told.append(waiting.pop(number))
    return told


def _first_line(group: list[int], conclusion: Conclusion) -> Place:
    return min(canonical(conclusion.steps[i].item.episode.first) for i in group)


def _chain_step(number: int, group: list[int], conclusion: Conclusion) -> ChainStep:
    first = min((conclusion.steps[i] for i in group), key=lambda s: canonical(s.item.episode.first))
    event = first.item.episode.first
    ranks = sorted({rank for i in group for rank in conclusion.steps[i].item.ranks})
    crowd = len({name for i in group for name in conclusion.steps[i].item.episode.crowd})
    root = conclusion.steps[0].item.episode.first
    lag = lag_ns(root, event)
    return ChainStep(
        step=number,
        event=event.name,
        label=event.label,
        role=first.role,
        where=_where(first.item.subject, ranks, crowd),
        when=shown_at(event),
        error_ns=error_ns(event),
        lag_ns=sum(lag) // 2 if lag and "none" not in (root.quality, event.quality) else None,
        evidence=Evidence(
            source=event.source, text=event.prefix + event.body, line_no=event.line_no,
            offset=None if event.line_no is not None else event.offset,
        ),
        count=sum(conclusion.steps[i].item.episode.count for i in group),
        ranks=ranks[:MAX_RANKS_NAMED] if len(ranks) > 1 else [],
    )  # fmt: skip


def _edges(groups: list[list[int]], conclusion: Conclusion) -> list[Edge]:
    number_of = {index: number for number, group in enumerate(groups, 1) for index in group}
    edges = []
    for number, group in enumerate(groups, 1):
        step = conclusion.steps[group[0]]
        sure, odds = _surest(group, conclusion)
        parent = number_of.get(step.parent) if step.parent is not None else None
        later = number_of.get(step.leads_to) if step.leads_to is not None else None
        if parent is not None and parent != number:
            edges.append(Edge(from_=parent, to=number, why=step.why, order=sure, odds=odds))
        if later is not None and later != number:
            edges.append(Edge(from_=number, to=later, why=step.why, order=sure, odds=odds))
    return edges


def _surest(group: list[int], conclusion: Conclusion) -> tuple[EdgeOrder, float | None]:
    """How sure the order of a whole group is: as sure as that of the one least sure, with its odds."""
    steps = [conclusion.steps[i] for i in group]
    if all(step.order == "certain" for step in steps):
        return "certain", None
    odds = [step.odds for step in steps if step.odds is not None]
    if odds and all(step.order != "concurrent" for step in steps):
        return "probable", min(odds)
    return "concurrent", None


def _where(subject: Entity, ranks: list[int], crowd: int) -> str:
    """Rank, device and node in words."""
    if len(ranks) > 1 and len(ranks) >= crowd:
        return f"{len(ranks)} ranks"
    if crowd > 1:
        return f"{crowd} processes"
    parts = []
    if subject.rank is not None:
        parts.append(f"rank {subject.rank}")
    if subject.nic:
        parts.append(subject.nic)
    elif subject.pci_bus_id:
        parts.append(f"GPU {subject.pci_bus_id}")
    if subject.node:
        parts.append(f"on {subject.node}")
    return " ".join(parts) or "job"


def _suppressed(groups: list[list[int]], conclusion: Conclusion) -> Suppressed:
    counts: Counter[str] = Counter()
    shown = {i for group in groups for i in group}
    for group in groups:
        total = sum(conclusion.steps[i].item.episode.count for i in group)
        counts[conclusion.steps[group[0]].item.episode.name] += total - 1
    for index, step in enumerate(conclusion.steps):
        if index not in shown:
            counts[step.item.episode.name] += step.item.episode.count
    by_event = {name: count for name, count in sorted(counts.items()) if count}
    return Suppressed(count=sum(by_event.values()), by_event=by_event)


# --- fields -------------------------------------------------------------------------------------------------------


def _culprit(entity: Entity, confidence: float) -> Culprit:
    return Culprit(**msgspec.structs.asdict(entity), confidence=round(confidence, 3))


def confidence_of(conclusion: Conclusion, frame: Frame) -> float:
    """How often such a conclusion is right: of rivals that nothing tells apart each has its share."""
    kind = kind_of(conclusion.class_, frame.coverage, names_somebody=bool(conclusion.culprits))
    return frame.rules.calibration.of(conclusion.confidence, kind) / conclusion.rivals


def _alternative(other: Conclusion, main: Conclusion, frame: Frame) -> Alternative:
    """Another reading: the alternatives share what the main one leaves."""
    left = (1 - confidence_of(main, frame)) / len(main.alternatives)
    sure = left * confidence_of(other, frame)
    return Alternative(
        class_=other.class_,
        culprits=[_culprit(e, sure) for e in other.culprits],
        confidence=round(sure, 3),
        why_less_likely=f"explains less of what failed than {main.rule.title if main.rule else main.class_}",
    )


def _xid(conclusion: Conclusion) -> int | None:
    """The Xid that the conclusion rests on: of the root pattern, else the first on the chain's root side."""
    for step in conclusion.steps:
        attributes = step.item.episode.attributes
        xid = attributes.get("previous_xid") or attributes.get("xid")
        if xid and step.role in ("root", "cascade") and conclusion.class_.startswith(("hardware/", "software/")):
            return int(xid)
    return None


def _sxid(conclusion: Conclusion) -> int | None:
    """The number of the NVSwitch error that is the root."""
    sxid = conclusion.root_item.episode.attributes.get("sxid")
    return int(sxid) if sxid else None


def _stall_start(conclusion: Conclusion) -> tuple[int, int] | None:
    """When the collective began to wait: the line's time minus the duration it states. (ns, error ns)."""
    starts = []
    for step in conclusion.steps:
        event = step.item.episode.first
        ran_ms = event.attributes.get("ran_for_ms")
        if (
            event.name == "nccl.watchdog.timeout"
            and ran_ms
            and ran_ms.isdecimal()
            and len(ran_ms) < 10
            and event.aligned_time_unix_nano is not None
        ):
            error = error_ns(event)
            if error is not None:
                at_ns = event.aligned_time_unix_nano + to_middle_ns(event)
                starts.append((at_ns - int(ran_ms) * 1_000_000, error))
    return min(starts) if starts else _marks_end(conclusion)


def _marks_end(conclusion: Conclusion) -> tuple[int, int] | None:
    """When the marks of progress stopped, where they did."""
    for step in conclusion.steps:
        episode, error = step.item.episode, error_ns(step.item.episode.first)
        if episode.name == STALLED and error is not None:
            return episode.start_ns, error
    return None


def _blast_radius(conclusion: Conclusion, frame: Frame) -> BlastRadius:
    waiters = WAITERS | FLIGHT_WAITERS
    waiting = {rank for s in conclusion.steps if s.item.episode.name in waiters for rank in s.item.ranks}
    # Whom a report names as silent did not print it.
    reporting = [s for s in conclusion.steps if s.role != "context" and _printer(s) not in conclusion.silent_ranks]
    timed = [s for s in reporting if _printer(s) is not None]
    first = min(timed, key=lambda s: canonical(s.item.episode.first), default=None)
    return BlastRadius(
        ranks=frame.world_size or len(set(frame.known_ranks).union(*(s.item.ranks for s in conclusion.steps))) or None,
        nodes=len(frame.nodes) or None,
        first_failing_rank=_printer(first) if first else None,
        silent_ranks=conclusion.silent_ranks,
        reporting_ranks=len(waiting),
    )


def _printer(step: Step) -> int | None:
    """The rank of the first line of a step."""
    subject = step.item.subject
    return subject.rank if subject.rank is not None else step.item.episode.first.subject.rank


def _action(incident_id: str, conclusion: Conclusion, frame: Frame, culprits: list[Culprit]) -> Action:
    rule = conclusion.rule
    if rule is None:
        nodes = sorted({culprit.node for culprit in culprits if culprit.node})
        kept = f"keep {', '.join(nodes[:MAX_KEPT])} out of use" if nodes else "keep the logs of all ranks and nodes"
        return Action(kind="none", why=f"no cause is known; {kept} until what would decide is gathered")
    sure = culprits if conclusion.rivals == 1 else []
    reason = f"rootrank {conclusion.class_}, incident {incident_id}"
    return Action(
        kind=rule.action.kind,
        target=_target(rule, conclusion, culprits),
        why=_filled(rule.action.why, culprits),
        reference=rule.action.reference,
        commands=operator_lines(rule.action.kind, sure, frame.episodes, run=frame.run, reason=reason),
    )


def _target(rule: Rule, conclusion: Conclusion, culprits: list[Culprit]) -> str:
    """What the action is done to. Where no line names the part, it is its node; where not even that, nothing."""
    template, blamed = rule.action.target, culprits[0] if culprits else Culprit()
    said = [step.item.episode.attributes for step in conclusion.steps if step.role in ("root", "cascade")]
    part = next((one[name] for one in said for name in _PARTS if name in one), None)
    known = msgspec.structs.asdict(blamed) | {"part": part, "who": culprits or None, "gpu": culprits or None}
    if any(known[name] is None for name in names_in(template)):
        return blamed.node if blamed.node and template.startswith("{node} ") else ""
    return _filled(template, culprits, part)


def _explanation(conclusion: Conclusion, frame: Frame, culprits: list[Culprit]) -> str:
    if conclusion.rule is not None:
        # Numbers come from a comparison, not from a line: they hold no braces.
        numbers = conclusion.root_item.episode.attributes.get("numbers", "")
        said = _filled(conclusion.rule.explanation.replace("{numbers}", numbers), culprits)
        noticed = _filled(conclusion.rule.consequence, culprits) if _was_noticed(conclusion) else ""
        return _begun(said, culprits) + (f"; {noticed}." if noticed else ".")
    if conclusion.said:
        return conclusion.said
    if conclusion.silent_ranks:
        names = ", ".join(str(rank) for rank in conclusion.silent_ranks)
        if has_last_words(conclusion.steps, conclusion.silent_ranks):
            return (
                f"Rank {names} ended with an error of its own while all others waited for it in a collective; "
                "what led to the error is not in these logs."
            )
        if interruption_of(conclusion) == "soft":
            return f"Rank {names} ended before all others, as its launcher saw; nothing says why."
        return f"Rank {names} fell silent while all others waited for it in a collective; nothing says why."
    if not any(s.item.episode.name in STALLS for s in conclusion.steps):
        return "A process of the job ended; no line before it names a cause."
    return "A collective timed out; no line from before the stall names a cause."


def _begun(said: str, culprits: list[Culprit]) -> str:
    """A sentence with a capital at its start; a name stays as it is spelled."""
    blamed = culprits[0] if culprits else Culprit()
    if blamed.node and said.startswith(blamed.node):
        return f"Node {said}"
    return said if blamed.nic and said.startswith(blamed.nic) else f"{said[:1].upper()}{said[1:]}"


def _severity(conclusion: Conclusion) -> IncidentSeverity:
    """What the rule says of it, and an error at least where the job failed of it."""
    severity = conclusion.rule.severity if conclusion.rule else "error"
    return "error" if severity == "warning" and _failed(conclusion) else severity


def _failed(conclusion: Conclusion) -> bool:
    """Whether a failure of the job is on the chain."""
    return any(step.item.episode.name in FAILURES for step in conclusion.steps)


def _is_over(conclusion: Conclusion, frame: Frame) -> bool:
    """Whether the job failed by it, was started anew by its launcher, and trains again without standing still."""
    stands_still = any(episode.name == STALLED for episode in frame.episodes)
    if not conclusion.main or not _failed(conclusion) or stands_still:
        return False
    told = [step.item.episode for step in conclusion.steps if step.role != "context"]
    told += [episode for episode in frame.episodes if episode.name in FAILURES]
    lines = [line for episode in told for line in (episode.first, episode.last, *episode.crowd.values())]
    return runs_again(frame.episodes, [line for line in lines if line is not None])


def _was_noticed(conclusion: Conclusion) -> bool:
    """Whether any other rank reports something that hangs on the root."""
    return any(step.role == "symptom" for step in conclusion.steps)


def _not_network(conclusion: Conclusion, culprits: list[Culprit]) -> str | None:
    rule = conclusion.rule
    if rule is None or rule.not_network_because is None or not _was_noticed(conclusion):
        return None
    return _filled(rule.not_network_because, culprits)


# What stands in a sentence for an identifier that no line gives.
_UNNAMED: Final = {
    "node": "an unnamed node", "gpu": "an unnamed GPU", "pci_bus_id": "at an unknown address",
    "link": "the connection", "nic": "the network adapter", "switch": "the switch",
}  # fmt: skip


class _Identifiers(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return _UNNAMED.get(key, "?")


def _filled(template: str, culprits: list[Culprit], part: str | None = None) -> str:
    """A rule's sentence with the first culprit's identifiers. `{who}` is the process or device, `{gpu}` the GPU."""
    named = _Identifiers({"part": part} if part else {})
    if not culprits:
        return template.replace("{who}", "an unknown process or device").format_map(named)
    known = {k: v for k, v in msgspec.structs.asdict(culprits[0]).items() if v is not None}
    who = [f"rank {known['rank']}"] if "rank" in known else []
    if "pci_bus_id" in known:
        who.append(f"(GPU {known['pci_bus_id']})" if who else f"GPU {known['pci_bus_id']}")
    if "nic" in known:
        who.append(f"{known['nic']}")
    if "link" in known and "node" not in known:
        who.append(f"the connection {known['link']}")
    if "node" in known:
        who.append(f"on {known['node']}" if who else f"node {known['node']}")
    place = f" on {known['node']}" if "node" in known else ""
    bus = f"GPU {known['pci_bus_id']}" if "pci_bus_id" in known else "a GPU"
    if "rank" in known:
        bus = f"the GPU of rank {known['rank']}" + (f" ({bus})" if "pci_bus_id" in known else "")
    gpu = f"{bus}{place}"
    named |= {**known, "who": " ".join(who) or "a process", "gpu": gpu}
    return template.format_map(named)


def _phase(conclusion: Conclusion, frame: Frame, root: Event) -> Phase:
    waits = [s.item.episode.first for s in conclusion.steps if s.item.episode.name in WAITERS]
    return phase_of(conclusion.class_, frame.episodes, root, waits)


def _recovery(conclusion: Conclusion, frame: Frame, root: Event, ended_ns: int | None) -> Recovery:
    interruption = conclusion.rule.interruption if conclusion.rule else interruption_of(conclusion)
    if interruption == "slow" and _failed(conclusion):
        # It was slow until the others gave up.
        interruption = "soft"
    saved = saved_of(frame.episodes, root, ended_ns, frame.world_size, interruption)
    return Recovery(
        last_checkpoint=saved.last.attributes.get("path") if saved.last else None,
        checkpoint_at=shown_at(saved.last) if saved.last else None,
        lost_gpu_hours=saved.lost_gpu_hours,
        resume_from=saved.resume_from,
    )
