from collections.abc import Callable

import msgspec
import pytest
from starlette.testclient import TestClient

from pipeline.web.app import create_app
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from schemas.records import Gap, Incident, Related

replace = msgspec.structs.replace
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[2J\r\n\r\nid: forged\ndata: forged"


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def client(feed: Feed, healthy: Callable[[], Health]) -> TestClient:
    return TestClient(create_app(feed, healthy))


def hostile(incident: Incident) -> Incident:
    evidence = replace(incident.chain[0].evidence, text=HOSTILE, source=HOSTILE)
    chain = [replace(incident.chain[0], evidence=evidence, where=HOSTILE), *incident.chain[1:]]
    return replace(
        incident, incident_id=HOSTILE.partition("\r")[0],
        explanation=HOSTILE, why_unknown=HOSTILE, cluster=HOSTILE, chain=chain,
        culprits=[replace(incident.culprits[0], node=HOSTILE, serial=HOSTILE)],
        jobs=[replace(incident.jobs[0], job_id=HOSTILE, owner=HOSTILE)],
        edges=[replace(edge, why=HOSTILE) for edge in incident.edges],
        action=replace(incident.action, target=HOSTILE, why=HOSTILE, reference=f"javascript:{HOSTILE}"),
        labels=[HOSTILE], related=[Related(incident_id=HOSTILE, why=HOSTILE)], not_network_because=HOSTILE,
        gaps=[Gap(source=HOSTILE, reason=HOSTILE, node=HOSTILE)],
    )  # fmt: skip


def test_the_page_is_a_snapshot_that_needs_no_script(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(fell_off)

    page = client.get("/").text

    assert "GPU fell off the bus (Xid 79)" in page
    assert "node aur-g017 · GPU 3 · rank 27" in page
    assert "Drain node aur-g017." in page
    assert "GPU has fallen off the bus." in page
    assert 'href="/incidents/7d2f4a90c1be"' in page


def test_an_empty_live_page_links_to_the_replayed_incidents(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(replace(fell_off, run="replay"))

    page = client.get("/").text

    assert "No live incidents" in page
    assert '<a href="/?run=replay">1 from a replay</a>' in page
    assert "GPU fell off the bus" not in page
    assert "GPU fell off the bus" in client.get("/?run=replay").text


def test_an_incident_page_says_the_sentence_first_and_proves_it_below(
    client: TestClient, feed: Feed, fell_off: Incident
) -> None:
    feed.apply(fell_off)

    page = client.get("/incidents/7d2f4a90c1be").text

    order = [page.index(text) for text in (fell_off.explanation, "Do now", "How it went", "Facts", "Revisions")]
    assert order == sorted(order)
    assert "aur-g017/kern.log:8812" in page
    assert "kernel: seen on 7 of 8 nodes, silent: aur-g022" in page


def test_an_older_revision_is_shown_when_asked_for_and_says_so(
    client: TestClient, feed: Feed, fell_off: Incident
) -> None:
    feed.apply(replace(fell_off, revision=1, explanation="First guess."))
    feed.apply(fell_off)

    older = client.get("/incidents/7d2f4a90c1be?revision=1").text

    assert "First guess." in older
    assert "A newer one exists." in older
    assert client.get("/incidents/7d2f4a90c1be?revision=8").status_code == 404


@pytest.mark.parametrize("path", ["/", "/incidents/{id}"])
def test_log_text_cannot_become_markup(client: TestClient, feed: Feed, fell_off: Incident, path: str) -> None:
    feed.apply(hostile(fell_off))
    quoted = client.get("/").text.partition('href="/incidents/')[2].partition('"')[0]

    answer = client.get(path.replace("{id}", quoted))

    assert answer.status_code == 200
    assert "&lt;script&gt;alert(1)" in answer.text
    for forbidden in ("<script>alert", "<img", 'href="javascript', "\x1b", "\u202e"):
        assert forbidden not in answer.text


@pytest.mark.parametrize(
    "path", ["/", "/incidents/no", "/api/incidents", "/healthz", "/static/rootrank.css", "/nothing"]
)
def test_every_answer_carries_a_strict_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers

    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_pages_hold_no_inline_script_or_style(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(fell_off)

    for path in ("/", "/incidents/7d2f4a90c1be"):
        page = client.get(path).text
        assert "<style" not in page
        assert " style=" not in page
        assert "<script>" not in page


def test_the_api_gives_the_objects_of_the_contract(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(fell_off)

    answer = client.get("/api/incidents").json()

    assert msgspec.convert(answer["incidents"], list[Incident]) == [fell_off]
    assert answer["total"] == 1
    assert answer["last_event_id"] == "7d2f4a90c1be:3"


def test_the_api_counts_what_the_limit_and_the_run_leave_out(
    client: TestClient, feed: Feed, fell_off: Incident, timed_out: Incident
) -> None:
    for incident in (fell_off, timed_out, replace(fell_off, incident_id="r", run="replay")):
        feed.apply(incident)

    answer = client.get("/api/incidents?limit=1").json()

    assert [i["incident_id"] for i in answer["incidents"]] == [timed_out.incident_id]
    assert answer["total"] == 2
    assert answer["other_runs"] == {"replay": 1}


def test_the_api_filters_by_cluster_and_state(
    client: TestClient, feed: Feed, fell_off: Incident, out_of_memory: Incident
) -> None:
    feed.apply(fell_off)
    feed.apply(out_of_memory)

    assert client.get("/api/incidents?cluster=borealis").json()["total"] == 1
    assert client.get("/api/incidents?state=open").json()["total"] == 1
    assert client.get("/api/incidents?state=open,resolved").json()["total"] == 2


def test_one_incident_comes_with_its_revisions(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(replace(fell_off, revision=1))
    feed.apply(fell_off)

    answer = client.get("/api/incidents/7d2f4a90c1be").json()

    assert answer["incident"]["revision"] == 3
    assert [r["revision"] for r in answer["revisions"]] == [1, 3]


@pytest.mark.parametrize("path", ["/api/incidents?run=x", "/api/incidents?limit=-1", "/events?run=x", "/?state=x"])
def test_a_bad_question_is_answered_with_what_would_be_right(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 400
    assert "use one of" in answer.text or "from 1 to" in answer.text


def test_an_unknown_incident_is_a_page_that_leads_back(client: TestClient) -> None:
    answer = client.get("/incidents/nope")

    assert answer.status_code == 404
    assert 'href="/"' in answer.text
    assert client.get("/api/incidents/nope").status_code == 404
    assert client.get("/nothing").status_code == 404


def test_health_follows_the_consumer(feed: Feed) -> None:
    health = Health(state="following")
    client = TestClient(create_app(feed, lambda: health))
    assert client.get("/healthz").status_code == 200

    health = Health(state="unreachable", reason="Kafka at 127.0.0.1:1 cannot be reached")

    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "Kafka at 127.0.0.1:1 cannot be reached"
    assert "Not up to date" in client.get("/").text
    assert "Nothing has broken" not in client.get("/").text


def test_metrics_are_served_for_prometheus(client: TestClient, feed: Feed, fell_off: Incident) -> None:
    feed.apply(fell_off)

    answer = client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "rootrank_feed_incidents 1.0" in answer.text
