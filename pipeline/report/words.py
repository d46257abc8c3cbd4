"""Incidents in words: what a terminal and a web page both say. Pure text, no colour, no markup, no clock."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pipeline.core.calibration import missing_kinds
from pipeline.report.class_words import CLASS_WORDS
from schemas.records import Action, Coverage, Culprit, Edge, Gap, Incident, Recovery
from schemas.vocabulary import IncidentState

_UNITS: Final[tuple[tuple[int, int, str], ...]] = (
    # below this many ns, divided by, unit
    (1_000, 1, "ns"),
    (1_000_000, 1_000, "µs"),
    (1_000_000_000, 1_000_000, "ms"),
    (120_000_000_000, 1_000_000_000, "s"),
)
_STEPS: Final[tuple[tuple[int, str, int, str], ...]] = (
    # below this many seconds, larger unit of so many seconds, smaller unit
    (7_200, "min", 60, "s"),
    (172_800, "h", 3_600, "min"),
)
_ACTIONS: Final[dict[str, str]] = {
    "none": "Nothing to repair",
    "restart_in_place": "Restart the job on the same nodes",
    "restart_excluding_node": "Restart the job without {target}",
    "reset_gpu": "Reset {target}",
    "drain_node": "Drain {target}",
    "replace_gpu": "Take {target} out of service and replace the GPU",
    "fix_code": "Fix the code: {target}",
    "fix_config": "Change the configuration: {target}",
    "check_network": "Check the network: {target}",
    "check_storage": "Check the storage: {target}",
    "contact_support": "Contact support about {target}",
}
_NO_TARGET: Final[dict[str, str]] = {
    "restart_excluding_node": "Restart the job without the faulty node",
    "reset_gpu": "Reset the GPU",
    "drain_node": "Drain the node",
    "replace_gpu": "Take the node out of service and replace the GPU",
    "fix_code": "Fix the code",
    "fix_config": "Fix the configuration",
    "check_network": "Check the network",
    "check_storage": "Check the storage",
    "contact_support": "Contact support",
}
ROLE_WORDS: Final[dict[str, str]] = {
    "root": "root cause", "cascade": "followed", "symptom": "symptom", "context": "context",
}  # fmt: skip
ORDER_WORDS: Final[dict[str, str]] = {
    "certain": "order certain",
    "probable": "order probable",
    "concurrent": "clocks cannot order them",
}

_LACKS: Final[dict[tuple[str, ...], str]] = {
    (): "",
    ("kernel",): " without any kernel log",
    ("application",): " without any log of the job",
    ("application", "kernel"): " without the log of any known node",
}
_STATES: Final[dict[IncidentState, str]] = {
    "open": "nothing says yet that it is over",
    "resolved": "it is over",
    "retracted": "it was taken back: harmless after all",
    "superseded": "it is replaced",
}

TEXT_LIMIT: Final = 2_000
NAME_LIMIT: Final = 120
LIST_LIMIT: Final = 10
MAX_NS: Final = 10**19


def visible(text: str) -> str:
    """The text with every control, direction and other unprintable character spelled out (log text is untrusted)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _spelled(c) for c in text)


def see(reference: str) -> str:
    """What introduces a reference: only an address can be followed."""
    return "See" if reference.startswith(("https://", "http://")) else "Look up:"


def reference_line(reference: str) -> str:
    """Where to read more on an action."""
    return f"{see(reference)} {visible(reference)}"


def _spelled(character: str) -> str:
    if character in "\t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}":
        return " "
    code = ord(character)
    if code < 0x100:
        return {"\n": "\\n", "\r": "\\r"}.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    """At most `limit` characters, visible, and how many were left off."""
    rest = len(text) - limit
    return visible(text) if rest <= 0 else f"{visible(text[:limit])} … (+{grouped(rest)} characters)"


def short(name: str) -> str:
    """A name that may stand in a line: visible, and cut where somebody made it a novel."""
    return shortened(name, NAME_LIMIT)


def listed(items: Sequence[str], *, separator: str = ", ", limit: int = LIST_LIMIT) -> str:
    """The first items, and how many more there are."""
    rest = len(items) - limit
    shown = separator.join(items[:limit])
    return shown if rest <= 0 else f"{shown} … and {grouped(rest)} more"


def first_lines(lines: Sequence[str], limit: int = 2 * LIST_LIMIT) -> list[str]:
    """As `listed`, for items that are lines of their own."""
    rest = len(lines) - limit
    return [*lines[:limit], *([f"… and {grouped(rest)} more"] if rest > 0 else [])]


def grouped(number: int) -> str:
    """18231 as `18,231`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 rank`, `512 ranks`."""
    return f"{grouped(number)} {noun}" if number == 1 else f"{grouped(number)} {noun}s"


def sure_line(incident: Incident) -> str:
    """What the percentages rest on; empty where they are the rules' own estimates."""
    on = incident.engine.calibrated_on
    if not on:
        return ""
    lacks = _LACKS[tuple(missing_kinds(incident.coverage))]
    return f"percentages say how often such verdicts{lacks} were right on {visible(on)}; excerpts were not among them"


def standing(incident: Incident) -> str:
    """How final the verdict is, and whether it is over, in words."""
    said = _STATES[incident.state]
    if incident.superseded_by:
        said += f" by incident {short(incident.superseded_by)}"
    if incident.run == "post_mortem":
        return "the verdict on all files that were given" + (f"; {said}" if incident.state != "open" else "")
    is_final = incident.verdict == "settled"
    final = "final, all lines of that time are in" if is_final else "may still change, lines are coming in"
    return f"{final} (revision {incident.revision}); {said}"


def percent(confidence: float) -> str:
    """A confidence of 0 to 1 as a percentage; never 100 %, which no verdict is."""
    share = min(max(confidence, 0.0), 1.0) if confidence == confidence else 0.0
    return f"{min(99, round(share * 100))} %"


def duration(ns: int) -> str:
    """A length of time in the unit a person would use."""
    size = min(abs(ns), MAX_NS)
    for below, divisor, unit in _UNITS:
        if size < below:
            value = size / divisor
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    seconds = round(size / 1_000_000_000)
    for under, large, divisor, small in _STEPS:
        if seconds < under:
            major, rest = divmod(seconds, divisor)
            return f"{major} {large} {rest if small == 's' else rest // 60} {small}"
    return f"{seconds / 86_400:.1f} days"


def lag(ns: int | None) -> str:
    """Time since the root: `+4.2 s`; nothing where it is not known or none at all."""
    if not ns:
        return ""
    sign = "+" if ns >= 0 else "-"
    return f"{sign}{duration(ns)}"


def error(ns: int | None) -> str:
    """How wrong a time may be: `± 5 s`; nothing where it is not known."""
    return "" if ns is None else f"± {duration(ns)}"


def instant_ns(when: str | None) -> int:
    """RFC 3339 text as ns since 1970, to microseconds; 0 where there is none or it is not one."""
    if when is None:
        return 0
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        return 0
    return round(moment.timestamp() * 1_000_000) * 1_000


def day(when: str | None) -> str:
    """The date of an RFC 3339 time, or nothing."""
    return visible(when).partition("T")[0] if when else ""


def first_day(incident: Incident) -> str:
    """The day of the first time that an incident gives."""
    return day(incident.started_at or next((step.when for step in incident.chain if step.when), None))


def clock(when: str | None, *, on_day: str = "") -> str:
    """Time of day to the millisecond (UTC); with its date where that is not `on_day`."""
    if not when:
        return ""
    date, _, rest = visible(when).rstrip("Z").partition("T")
    whole, dot, fraction = rest.partition(".")
    time = f"{whole}{dot}{fraction[:3]}"
    return time if date == on_day else f"{date} {time}"


def name_of(incident: Incident, incident_id: str = "") -> str:
    """What tells an incident apart in the feed: its id, behind its run id where it is not live (a replay has the same
    ids as the run it replays). `incident_id`: another incident of the same run.
    """
    name = incident_id or incident.incident_id
    return name if incident.run in ("live", "post_mortem") else f"{incident.run_id}~{name}"


def class_words(name: str) -> str:
    """A class of the vocabulary in words; a class that this version does not know is shown as it is."""
    return CLASS_WORDS.get(name) or short(name.partition("/")[2].replace("_", " ") or name)


def headline(incident: Incident) -> str:
    """What happened, in a few words."""
    words = class_words(incident.class_)
    if incident.xid is not None:
        return f"{words} (Xid {incident.xid})"
    if incident.sxid is not None:
        return f"{words} (SXid {incident.sxid})"
    return words


def place(culprit: Culprit) -> str:
    """The short name of a culprit: `node gpu-a07 · GPU 3 · rank 27`."""
    gpu = culprit.gpu_index if culprit.gpu_index is not None else culprit.pci_bus_id or culprit.gpu_uuid
    parts = (
        ("switch", culprit.switch),
        ("NVLink domain", culprit.nvlink_domain),
        ("node", culprit.node),
        ("GPU", gpu),
        ("NIC", culprit.nic),
        ("link", culprit.link),
        ("rank", culprit.rank),
    )
    named = [f"{noun} {short(str(value))}" for noun, value in parts if value is not None]
    if not named and culprit.pid is not None:
        named = [f"process {culprit.pid}"]
    return " · ".join(named) or "unnamed"


def identifiers(culprit: Culprit) -> list[tuple[str, str]]:
    """The further identifiers of a culprit, for whoever must find the part."""
    parts = (
        ("PCI bus", culprit.pci_bus_id),
        ("UUID", culprit.gpu_uuid),
        ("serial", culprit.serial),
        ("machine id", culprit.machine_id),
        ("local rank", culprit.local_rank),
        ("pid", culprit.pid),
        ("process group", culprit.process_group),
    )
    return [(noun, short(str(value))) for noun, value in parts if value is not None]


def culprit_line(incident: Incident) -> str:
    """All culprits in one line, or that none is named."""
    return listed([place(c) for c in incident.culprits]) or "no culprit named"


def do_now(action: Action) -> str:
    """The action as an order. An action without a target still reads as a sentence."""
    if not action.target:
        if action.kind == "none" and action.why:
            return "First find out more"
        return _NO_TARGET.get(action.kind) or _ACTIONS[action.kind]
    return _ACTIONS[action.kind].format(target=short(action.target))


def sentence(text: str) -> str:
    """A reason as a sentence of its own: capital at the start, full stop at the end, control characters spelled out."""
    said = visible(text.strip())
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '!', '?')) else '.'}" if said else ""


def recovery_line(recovery: Recovery) -> str:
    """From where the run can go on, or nothing."""
    parts = []
    if recovery.resume_from == "in_place":
        parts.append("Can resume in place")
    if recovery.last_checkpoint:
        saved = f" ({clock(recovery.checkpoint_at)} UTC)" if recovery.checkpoint_at else ""
        parts.append(f"Last checkpoint {short(recovery.last_checkpoint)}{saved}")
    if recovery.lost_gpu_hours is not None:
        hours = recovery.lost_gpu_hours
        said = "under 0.1" if hours < 0.1 else f"{hours:.1f}" if hours < 1e9 else f"{hours:.3g}"
        parts.append(f"{said} GPU-hours lost")
    return "; ".join(parts)


def reach_line(incident: Incident) -> str:
    """How far it reached and what that did to the job."""
    reach = incident.blast_radius
    parts = []
    if reach.ranks is not None:
        parts.append(counted(reach.ranks, "rank"))
    if reach.nodes is not None:
        parts.append(f"{counted(reach.nodes, 'node')} hit" if reach.ranks is None else counted(reach.nodes, "node"))
    if reach.silent_ranks:
        parts.append(f"silent: {rank_list(reach.silent_ranks)}")
    if reach.first_failing_rank is not None:
        parts.append(f"first to report: rank {reach.first_failing_rank}")
    if reach.reporting_ranks:
        parts.append(f"{grouped(reach.reporting_ranks)} reported it")
    return ", ".join(parts)


def rank_list(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-7, 12`: runs folded."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = listed([str(a) if a == b else f"{a}-{b}" for a, b in runs], limit=2 * LIST_LIMIT)
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"{'rank' if single else 'ranks'} {text}" if runs else ""


def job_line(incident: Incident) -> str:
    """The jobs that were hit, with attempt and size."""
    jobs = []
    for job in incident.jobs:
        more = [f"attempt {job.attempt}"]
        if job.world_size:
            more.append(counted(job.world_size, "rank"))
        if job.owner:
            more.append(short(job.owner))
        jobs.append(f"{short(job.job_id)} ({', '.join(more)})")
    return listed(jobs)


def not_watched(coverage: dict[str, Coverage]) -> list[str]:
    """One sentence for each kind of source that was not seen on every node."""
    return [
        f"{visible(kind)}: seen on {grouped(c.seen)} of {counted(c.expected, 'node')}"
        + (f", silent: {listed([short(node) for node in c.silent])}" if c.silent else "")
        for kind, c in coverage.items()
        if c.seen < c.expected or c.silent
    ]


def watched(coverage: dict[str, Coverage]) -> list[str]:
    """The kinds of source that were seen on every node."""
    return [
        f"{visible(kind)} ({grouped(c.seen)} of {grouped(c.expected)})"
        for kind, c in coverage.items()
        if c.seen >= c.expected and not c.silent and c.expected
    ]


def gap_line(gap: Gap) -> str:
    """What was lost, where, and why."""
    lost = []
    if gap.lost_lines is not None:
        lost.append(counted(gap.lost_lines, "line"))
    if gap.lost_bytes is not None:
        lost.append(counted(gap.lost_bytes, "byte"))
    at = f" on {short(gap.node)}" if gap.node and gap.node != gap.source else ""
    amount = f" ({', '.join(lost)} lost)" if lost else ""
    return f"{short(gap.source)}{at}: {shortened(gap.reason)}{amount}"


def unwatched_lines(incident: Incident) -> list[str]:
    """What was not seen or was lost, the kinds of source first; at most as many lines as a person reads."""
    return first_lines(not_watched(incident.coverage) + [gap_line(gap) for gap in incident.gaps])


def address(source: str, line_no: int | None, offset: int | None) -> str:
    """`kern.log:8812`, or the byte offset where lines are not counted."""
    if line_no is not None:
        return f"{short(source)}:{line_no}"
    return short(source) if offset is None else f"{short(source)}@{offset}"


def order_words(edge: Edge) -> str:
    """How sure the clocks are of an order."""
    said = ORDER_WORDS[edge.order]
    return said if edge.odds is None else f"{said}, {edge.odds * 100:.1f} %"


def because(incident: Incident) -> dict[int, list[str]]:
    """Per step the sentences that tie it to another one. What only stands before a step says so itself."""
    roles = {step.step: step.role for step in incident.chain}
    said: dict[int, list[str]] = {}
    for edge in incident.edges:
        is_context = roles.get(edge.from_) == "context"
        own, other = (edge.from_, edge.to) if is_context else (edge.to, edge.from_)
        sentence = f"{'before' if is_context else 'after'} {other}: {visible(edge.why)} ({order_words(edge)})"
        said.setdefault(own, []).append(sentence)
    return said
