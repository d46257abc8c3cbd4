import urllib.request
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pipeline import metrics as declared
from pipeline.embedded.ports import free_port
from pipeline.metrics import BUILD_INFO, DEFINITIONS, FEED_METRICS, Metrics, Readings, metrics_page, serve

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
HIGH_CARDINALITY = {"job", "job_id", "node", "host", "rank", "incident_id", "cluster"}


def exported(metrics: Metrics) -> dict[str, str]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        f"{f.name}_total" if f.type == "counter" else f.name: f.type
        for f in families
        if not f.name.endswith("_created")  # the client library's own birth dates of counters
    }


def test_the_feed_exports_its_own_metrics_and_no_other() -> None:
    assert exported(Metrics()) == {d.name: d.kind for d in (BUILD_INFO, *FEED_METRICS)}


def test_a_process_serves_what_it_counts_anyway() -> None:
    counted = {"align": 3.0}
    port = free_port()
    serve(Readings(lambda: [(declared.STAGE_MESSAGES, stage, n) for stage, n in counted.items()]), port)
    counted["align"] = 7.0

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()

    assert 'rootrank_stage_messages_total{stage="align"} 7.0' in text
    assert "rootrank_build_info{" in text


def test_every_metric_says_what_it_means_and_what_to_do() -> None:
    for definition in DEFINITIONS:
        assert definition.name.startswith("rootrank_")
        assert definition.name.endswith("_total") == (definition.kind == "counter")
        assert definition.meaning.endswith(".")
        assert definition.do.endswith(".")


def test_no_label_grows_with_the_fleet() -> None:
    assert not [d.name for d in DEFINITIONS if HIGH_CARDINALITY & set(d.labels)]


def test_two_processes_or_tests_share_no_numbers() -> None:
    one, other = Metrics(), Metrics(registry=CollectorRegistry())

    one.incidents.labels(domain="hardware", run="live").inc(5)

    assert b'rootrank_incidents_total{domain="hardware",run="live"} 5.0' in one.text()
    assert b'rootrank_incidents_total{domain="hardware",run="live"}' not in other.text()


def test_the_documentation_is_the_declaration() -> None:
    assert DOCS.read_text(encoding="utf-8") == metrics_page(), "run: python -m pipeline.metrics > docs/metrics.md"
