"""Incidents of invented jobs, as a launcher's answer is worked out from them."""

from typing import Any

from pipeline.core import keys
from schemas import records as r

CLUSTER = "red"
JOB = "4711"


def job(attempt: int = 0, job_id: str = JOB) -> r.Job:
    return r.Job(job_id=job_id, attempt=attempt)


def culprit(node: str | None = "gpu07", confidence: float = 0.95) -> r.Culprit:
    return r.Culprit(node=node, confidence=confidence)


def failed(class_: str, attempt: int = 0, *, text: str = "", **fields: Any) -> r.Incident:
    """The incident that speaks for the failure of an attempt: settled, certain, with one root line."""
    jobs = fields.pop("jobs", [job(attempt)])
    own = keys.digest("incident", keys.job_key("", CLUSTER, jobs[0].job_id, jobs[0].attempt), "") if jobs else "node1"
    root = r.ChainStep(
        step=1, event="any", role="root", where="rank 3", label=fields.pop("label", "software/exception"),
        evidence=r.Evidence(source="rank3.log", line_no=7, text=text or f"{class_} failed"),
    )  # fmt: skip
    shape: dict[str, Any] = {
        "incident_id": own, "engine": r.Engine(version="0", rules_digest="0"), "run": "live", "run_id": "",
        "cluster": CLUSTER, "verdict": "settled", "jobs": jobs, "culprits": [culprit()], "confidence": 0.95,
        "chain": [root], "failure": f"{class_} failed", "ended_at": "2026-05-01T12:00:00.000000Z",
    }  # fmt: skip
    return r.Incident(class_=class_, **{**shape, **fields})
