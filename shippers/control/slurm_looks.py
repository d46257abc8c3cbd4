"""What is asked of Slurm, and how its answers become lines in shapes that Slurm's own tools print."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from schemas.records import Attempt, Span, Topology
from shippers.control.hostlist import expand
from shippers.control.kube_nodes import Head
from shippers.control.slurm import Ask, SlurmError, fields_of, slurm_ns
from shippers.control.told import SECOND_NS, Line, stamp, words
from shippers.pieces import Told as Record
from shippers.probes.probe import said

JOB_FIELDS: Final = (
    "JobID", "ArrayJobID", "State", "Reason", "UserName", "RestartCnt", "exit_code", "SubmitTime", "StartTime",
    "EndTime", "Partition", "NodeList",
)  # fmt: skip
# States in which a job does not run any more. While it ends it is in one of them too (COMPLETING stands beside it).
_ENDED: Final = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_ODD: Final = frozenset(("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "POWERED_DOWN", "INVAL"))


class Jobs:
    """Jobs: which began, ended and were requeued, with reason and user; attempts as records."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """What has changed. A job that waits for its first start tells nothing."""
        wanted = ",".join(f"{name}:|" for name in JOB_FIELDS)
        text = ask("squeue", ("--noheader", "--all", "--states=all", "-O", wanted))
        seen = set()
        for row in text.splitlines():
            values = [value.strip() for value in row.split("|")]
            if len(values) < len(JOB_FIELDS) or not values[0].isdecimal():
                raise SlurmError(f"squeue prints what is no row of jobs: {words(row)[:80]!r}")
            job = dict(zip(JOB_FIELDS, values, strict=False))
            name = f"job {job['JobID']}"
            seen.add(name)
            # Where it ran is kept: once it is requeued nobody says it any more.
            state = f"{job['State']} {job['RestartCnt']} {job['NodeList'] or told.get(name, '').rpartition(' ')[2]}"
            if told.get(name) == state or (job["State"] == "PENDING" and job["RestartCnt"] in ("", "0")):
                continue
            before = told.get(name, "")
            told[name] = state
            yield from self._changed(job, before, since_ns)
        for name in [name for name in told if name.startswith("job ") and name not in seen]:
            del told[name]

    def _changed(self, job: dict[str, str], before: str, since_ns: int) -> Iterator[Line | Record]:
        begun_ns, ended_ns = slurm_ns(job["StartTime"]), slurm_ns(job["EndTime"])
        restarts = int(job["RestartCnt"]) if job["RestartCnt"].isdecimal() else 0
        if restarts and f" {restarts} " not in before:
            yield from self._requeued({**job, "NodeList": before.rpartition(" ")[2]}, restarts, since_ns)
        if job["State"] == "RUNNING":
            yield from self._line(job, restarts, "began", begun_ns, self._row(job), since_ns)
            yield self._attempt(job, restarts, begun_ns, None)
        elif job["State"] in _ENDED:
            yield from self._line(job, restarts, "ended", ended_ns, self._account(job), since_ns)
            if begun_ns and job["NodeList"]:
                yield self._attempt(job, restarts, begun_ns, ended_ns)

    def _requeued(self, job: dict[str, str], restarts: int, since_ns: int) -> Iterator[Line]:
        """It was stopped and waits again: preempted, its node lost, or by hand. Slurm does not keep why."""
        at_ns = slurm_ns(job["SubmitTime"])
        text = said(
            "slurm.requeued", job=job["JobID"], user=job["UserName"], restarts=restarts, reason=job["Reason"] or None,
        )  # fmt: skip
        yield from self._line(job, restarts - 1, "requeued", at_ns, text, since_ns)

    def _line(
        self, job: dict[str, str], attempt: int, what: str, at_ns: int, text: str, since_ns: int
    ) -> Iterator[Line]:
        if at_ns < since_ns or not at_ns:
            return
        names = [job["JobID"], job["ArrayJobID"]] if job["ArrayJobID"] not in ("", job["JobID"]) else [job["JobID"]]
        about = {"jobs": ",".join(names), "attempt": str(attempt), "node": job["NodeList"], "user": job["UserName"]}
        yield Line(
            generation=f"slurm/job/{job['JobID']}/{attempt}/{what}", offset=at_ns // SECOND_NS, at_ns=at_ns, text=text,
            attributes={name: value for name, value in about.items() if value},
        )  # fmt: skip

    def _row(self, job: dict[str, str]) -> str:
        nodes = job["NodeList"]
        return (
            f"squeue: JOBID={job['JobID']}, PARTITION={words(job['Partition'])}, USER={words(job['UserName'])}, ST=R, "
            f"NODES={len(expand(nodes))}, NODELIST(REASON)={nodes}"
        )

    def _account(self, job: dict[str, str]) -> str:
        nodes = f", NodeList={job['NodeList']}" if job["NodeList"] else ""
        return (
            f"sacct: JobID={job['JobID']}, User={words(job['UserName'])}, Partition={words(job['Partition'])}, "
            f"State={job['State']}, ExitCode={exit_code(job['exit_code'])}, Restarts={job['RestartCnt']}, "
            f"Reason={words(job['Reason'])}{nodes}"
        )

    def _attempt(self, job: dict[str, str], attempt: int, begun_ns: int, ended_ns: int | None) -> Attempt:
        nodes = expand(job["NodeList"])
        return Attempt(
            **self._head, node=nodes[0] if nodes else "", job_id=job["JobID"], attempt=attempt,
            start_unix_nano=begun_ns, end_unix_nano=ended_ns, owner=job["UserName"] or None,
            outcome=job["State"].lower() if ended_ns else None, source="slurm",
        )  # fmt: skip


class Nodes:
    """Nodes that are down or drained, why and by whom; and their return."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """What has changed."""
        for row in ask("scontrol", ("-o", "show", "node")).splitlines():
            found = fields_of(row, {"NodeName": " ", "State": " ", "Reason": "", "Comment": ""})
            name, state = found.get("NodeName", ""), found.get("State", "").rstrip("*$~#!%@^-")
            if not name or not state:
                continue
            odd = sorted(_ODD & set(state.split("+")))
            why, _, by = found.get("Reason", "").rpartition(" [")
            user, _, when = by.rstrip("]").partition("@")
            value = f"{'+'.join(odd)} {slurm_ns(when)} {words(why)[:120]}" if odd else ""
            before = told.get(name, "")
            if value == before:
                continue
            if odd:
                told[name] = value
                yield from self._is_odd(name, odd, words(why), words(user), slurm_ns(when) or now_ns, since_ns)
            else:
                del told[name]
                yield from self._is_back(name, before, now_ns)

    def _is_odd(
        self, name: str, odd: list[str], why: str, user: str, at_ns: int, since_ns: int
    ) -> Iterator[Line | Record]:
        yield Span(**self._head, node=name, kind="drain", start_unix_nano=at_ns, outcome=why or None, source="slurm")
        if at_ns < since_ns:
            return
        state, is_lost = odd[0].lower(), "DOWN" in odd and why == "Not responding"
        text = (
            f"error: Nodes {name} not responding, setting DOWN"
            if is_lost
            else (
                f"sinfo: REASON={why or 'none'}, USER={user or 'unknown'}, TIMESTAMP={stamp(at_ns)[:19]}, "
                f"STATE={state}, NODELIST={name}"
            )
        )
        yield Line(
            generation=f"slurm/node/{name}/{'+'.join(odd)}", offset=at_ns // SECOND_NS, text=text, at_ns=at_ns,
            attributes={"node": name, "state": "+".join(odd), "user": user, "reason": why},
        )  # fmt: skip

    def _is_back(self, name: str, before: str, now_ns: int) -> Iterator[Line | Record]:
        since = before.split(" ")[1]
        began_ns = int(since) if since.isdecimal() else 0
        if began_ns:
            span = Span(**self._head, node=name, kind="drain", start_unix_nano=began_ns, source="slurm")
            yield replace(span, end_unix_nano=now_ns)
        yield Line(
            generation=f"slurm/node/{name}/back", offset=began_ns // SECOND_NS, text=f"Node {name} returned to service",
            at_ns=now_ns, attributes={"node": name},
        )  # fmt: skip


class Reservations:
    """Maintenance: reservations with the flag MAINT, once they have begun."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """Each node of a maintenance as a span. One that was called off before it began is none."""
        seen = set()
        wanted = {"ReservationName": " ", "StartTime": " ", "EndTime": " ", "Nodes": " ", "Flags": " "}
        for row in ask("scontrol", ("-o", "show", "reservation")).splitlines():
            found = fields_of(row, wanted)
            name, begun_ns = found.get("ReservationName", ""), slurm_ns(found.get("StartTime", ""))
            ends_ns = slurm_ns(found.get("EndTime", ""))
            if not name or "MAINT" not in found.get("Flags", "").split(",") or not 0 < begun_ns <= now_ns:
                continue
            seen.add(name)
            value = f"{begun_ns} {ends_ns} {found.get('Nodes', '')}"
            if told.get(name) != value:
                told[name] = value
                yield from self._spans(name, value, ends_ns)
        for name in [name for name in told if name not in seen]:
            value = told.pop(name)
            if now_ns < int(value.split(" ")[1]):
                yield from self._spans(name, value, now_ns)

    def _spans(self, name: str, value: str, ends_ns: int) -> Iterator[Line | Record]:
        began, _, nodes = value.split(" ", 2)
        begun_ns = int(began)
        for node in expand(nodes):
            yield Span(
                **self._head, node=node, kind="maintenance", start_unix_nano=begun_ns, end_unix_nano=ends_ns or None,
                source=f"slurm reservation {name}",
            )  # fmt: skip
            end = f" end={stamp(ends_ns)}" if ends_ns else ""
            yield Line(
                generation=f"slurm/reservation/{name}/{node}/{begun_ns}", offset=ends_ns // SECOND_NS, at_ns=begun_ns,
                text=f"rootrank: span kind=maintenance node={node} start={stamp(begun_ns)}{end}",
                attributes={"node": node, "reservation": words(name)},
            )  # fmt: skip


class Switches:
    """The switch of each node, from `scontrol show topology`."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """Nodes that hang elsewhere than was told."""
        leaves = leaves_of(ask("scontrol", ("-o", "show", "topology")))
        yield from hung_elsewhere(
            self._head, "slurm topology", {n: {"leaf_switch": s} for n, s in leaves.items()}, told, now_ns
        )


def leaves_of(text: str) -> dict[str, str]:
    """The leaf switch of each node: of `scontrol show topology`, or of a file topology.conf."""
    leaves: dict[str, str] = {}
    for row in text.splitlines():
        found = {key.lower(): value for key, _, value in (part.partition("=") for part in row.split("#")[0].split())}
        if found.get("switchname") and found.get("nodes") and not found.get("switches"):
            leaves |= dict.fromkeys(expand(found["nodes"]), found["switchname"])
    return leaves


def hung_elsewhere(
    head: Head, source: str, now: dict[str, dict[str, str]], told: dict[str, str], now_ns: int
) -> Iterator[Topology]:
    """Records for the nodes whose place is not what was told, the end of the old one first."""
    for node in sorted({*now, *told}):
        value = ",".join(f"{what}={each}" for what, each in sorted(now.get(node, {}).items()))
        since, _, was = told.get(node, "").partition(" ")
        if value == was:
            continue
        if was:
            parts = dict(part.partition("=")[::2] for part in was.split(","))
            yield Topology(
                **head,
                node=node,
                source=source,
                start_unix_nano=int(since),
                end_unix_nano=now_ns,
                **parts,
            )
        if value:
            told[node] = f"{now_ns} {value}"
            yield Topology(**head, node=node, source=source, start_unix_nano=now_ns, **now[node])  # type: ignore[arg-type]
        else:
            del told[node]


def exit_code(text: str) -> str:
    """`exit:signal`; a plain number is what wait() gave."""
    if not text.isdecimal():
        return text if text.replace(":", "").isdecimal() else "0:0"
    return f"{int(text) >> 8}:{int(text) & 127}"
