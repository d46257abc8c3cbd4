"""What the engine says of a job when all of some events is read."""

from pipeline.core.investigation import Investigation
from pipeline.rules import load_rules
from schemas.records import Event, Incident
from tests.strategies import JOB_KEY, SECOND, T0, event_batch, incident_of, node_progress, verdicts

END_NS = T0 + 4_000 * SECOND
RULES = load_rules()


def concluded(*events: Event) -> Incident:
    """The incident that speaks for the failure of the job."""
    investigation = Investigation.new(RULES, "test", JOB_KEY)
    nodes = sorted({each.node for each in events})
    outputs = [
        out
        for number, node in enumerate(nodes, 1)
        for record in (
            event_batch(node, number, [each for each in events if each.node == node]),
            node_progress(node, END_NS, ended=True),
        )
        for out in investigation.apply(record, now_ns=END_NS)
    ]
    last = {verdict.verdict_id: verdict for verdict in verdicts(outputs)}
    (main,) = (incident_of(v) for v in last.values() if v.main and not v.withdrawn)
    return main
