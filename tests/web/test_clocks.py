"""Clocks of nodes in the feed: which segment tells a node's clock, and how page, API, health and metrics say it."""

import html
import time
from collections.abc import Callable

import msgspec
import pytest
from starlette.testclient import TestClient

from pipeline.core.segments import NOT_MEASURED, NOT_YET
from pipeline.report import clock_words
from pipeline.web.answers import ClockListing, NodeClock
from pipeline.web.app import create_app
from pipeline.web.clocks import FORGET_MS, SILENT_MS, ClockBook
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.query import ClockQuery
from tests.web.clocks import MS, T0_MS, UNMEASURED, S, fleet, segment, unmeasured

replace = msgspec.structs.replace
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[2J\r\n"
FOLLOWING = Health(state="following")


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def client(feed: Feed, healthy: Callable[[], Health]) -> TestClient:
    return TestClient(create_app(feed, healthy))


def now_ms() -> int:
    return time.time_ns() // MS


def only(book: ClockBook, at_ms: int = T0_MS) -> NodeClock:
    (clock,) = book.select(ClockQuery(), at_ms)
    return clock


def listing_of(client: TestClient, path: str = "/api/clocks") -> ClockListing:
    return msgspec.json.decode(client.get(path).content, type=ClockListing)


def test_the_newest_segment_tells_a_nodes_clock() -> None:
    book = ClockBook()
    book.apply(segment(lo_ns=-9 * MS), T0_MS)
    book.apply(segment(t_from_raw_ns=16 * S), T0_MS + 16_000)
    clock = only(book, T0_MS + 20_000)
    assert (clock.state, clock.wall_offset_ns, clock.bound_ns, clock.u99_ns) == ("good", -2_113_482, 655_000, 480_000)
    assert (clock.reference_broker, clock.drift_ppb, clock.age_s) == (1, -1_840, 4)
    assert clock.reported_at == "2026-03-01T10:00:16.000000Z"


def test_the_bound_is_the_farther_side() -> None:
    book = ClockBook()
    book.apply(segment(lo_ns=-4 * MS, hi_ns=1 * MS), T0_MS)
    assert only(book).bound_ns == 4 * MS


def test_of_several_brokers_the_best_of_those_just_heard_of_is_the_reference() -> None:
    book = ClockBook()
    book.apply(segment(broker_id=1, quality="holdover"), T0_MS)
    book.apply(segment(broker_id=3), T0_MS)
    book.apply(segment(broker_id=2), T0_MS)
    assert only(book).reference_broker == 2
    book.apply(segment(broker_id=4, quality="holdover"), T0_MS + 61_000)
    assert only(book).reference_broker == 4


def test_a_reboot_begins_anew_and_what_the_old_boot_said_is_no_news() -> None:
    book = ClockBook()
    book.apply(segment(broker_id=1), T0_MS)
    book.apply(unmeasured("gpu-001"), T0_MS + 1)
    book.apply(replace(segment(broker_id=2, quality="holdover"), boot_id="b2"), T0_MS + 2)
    book.apply(segment(broker_id=1), T0_MS + 1)
    assert (only(book).reference_broker, only(book).quality) == (2, "holdover")


def test_an_older_message_that_is_read_again_changes_nothing() -> None:
    book = ClockBook()
    told = [(segment(wall_step_ns=S), T0_MS), (segment(t_from_raw_ns=16 * S, epoch=3), T0_MS + 16_000)]
    assert [book.apply(*one) for one in told] == [True, False]
    before = book.select(ClockQuery(), T0_MS)
    assert [book.apply(*one) for one in told] == [False, False]
    assert book.select(ClockQuery(), T0_MS) == before


def test_a_jump_that_every_broker_shows_is_one_and_is_kept() -> None:
    book = ClockBook()
    first = segment(wall_step_ns=-5 * S, t_from_raw_ns=16 * S, t_to_raw_ns=32 * S)
    told = [first, replace(first, broker_id=2, t_from_raw_ns=20 * S, t_to_raw_ns=36 * S)]
    assert [book.apply(one, T0_MS + 32_000) for one in told] == [True, False]
    later = [segment(t_from_raw_ns=32 * S), replace(first, t_from_raw_ns=48 * S, t_to_raw_ns=64 * S)]
    assert [book.apply(one, T0_MS + 64_000) for one in later] == [False, True]
    clock = only(book, T0_MS + 65_000)
    assert clock.last_wall_step_ns == -5 * S
    assert clock.last_wall_step_at == "2026-03-01T10:01:03.999000Z"  # the raw clock runs 1.84 ppm fast: rounded down
    assert clock.last_wall_step_age_s == 1


def test_a_node_that_is_not_told_of_falls_silent_and_is_forgotten() -> None:
    book = ClockBook()
    book.apply(segment(), T0_MS)
    assert only(book, T0_MS + SILENT_MS).state == "good"
    assert only(book, T0_MS + SILENT_MS + 1).state == "silent"
    assert book.select(ClockQuery(), T0_MS + FORGET_MS) == []
    book.apply(segment(), T0_MS + FORGET_MS)
    assert only(book, T0_MS + FORGET_MS).state == "good"


def test_runs_never_mix_and_a_replay_does_not_age() -> None:
    book = ClockBook()
    book.apply(segment("live-node"), T0_MS)
    assert not book.apply(segment("played", run="replay", run_id="r1", wall_step_ns=S), T0_MS)
    book.apply(segment("played", run="replay", run_id="r2"), T0_MS)
    assert [clock.node for clock in book.select(ClockQuery(), T0_MS)] == ["live-node"]
    replayed = book.select(ClockQuery(run="replay"), T0_MS + 2 * FORGET_MS)
    assert [(c.node, c.run_id, c.state) for c in replayed] == [("played", "r1", "good"), ("played", "r2", "good")]
    listing = book.listing(ClockQuery(), T0_MS, FOLLOWING)
    assert (listing.counts["good"], listing.other_runs) == (1, {"replay": 2})


def test_memory_is_bounded_by_nodes_and_brokers() -> None:
    book = ClockBook(keep_nodes=10)
    for n in range(25):
        book.apply(segment(f"n{n}"), T0_MS + n)
    for broker in range(100):
        book.apply(segment("n24", broker_id=broker), T0_MS + 100 + broker)
    assert len(book) == 10
    assert {clock.node for clock in book.select(ClockQuery(), T0_MS)} == {f"n{n}" for n in range(15, 25)}
    newest = next(c for c in book.select(ClockQuery(), T0_MS) if c.node == "n24")
    assert newest.reference_broker == 84


def test_the_worst_clock_stands_first(client: TestClient, feed: Feed) -> None:
    for told in fleet(40):
        feed.clocks.apply(told, now_ms())
    feed.clocks.apply(segment("gone"), now_ms() - SILENT_MS - 1_000)
    found = listing_of(client).clocks
    assert [clock.node for clock in found[:5]] == ["gpu-007", "gone", "gpu-033", "gpu-021", "gpu-013"]
    page = client.get("/clocks").text
    places = [page.index(name) for name in ("gpu-007", "gone", "gpu-033", "gpu-001")]
    assert places == sorted(places)


def test_the_page_says_what_a_person_needs_of_each_clock(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(wall_step_ns=-5 * S), now_ms())
    feed.clocks.apply(unmeasured("gpu-002"), now_ms())

    page = client.get("/clocks").text

    for text in ("Clocks of 2 nodes", "-2.11 ms", "± 655 µs", "-1.8 ppm", "<b>-5 s</b>", UNMEASURED, "widest bound"):
        assert text in page
    assert 'href="/clocks"' in client.get("/").text


def test_only_bad_ones_are_shown_when_asked_for_and_all_are_counted(client: TestClient, feed: Feed) -> None:
    for told in fleet(40):
        feed.clocks.apply(told, now_ms())
    listing = listing_of(client, "/api/clocks?bad=1")
    assert [clock.state for clock in listing.clocks] == ["none", "stepped", "holdover"]
    assert (listing.total, listing.counts["good"]) == (3, 37)
    assert listing.widest is not None
    assert listing.widest.node == "gpu-021"
    assert "gpu-001" not in client.get("/clocks?bad=1").text


def test_where_all_are_good_nobody_looks_at_an_empty_table(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(), now_ms())
    assert "All 1 are good" in client.get("/clocks?bad=1").text


def test_clusters_are_told_apart(client: TestClient, feed: Feed) -> None:
    for cluster in ("alpha", "beta"):
        feed.clocks.apply(segment(cluster=cluster), now_ms())
    assert listing_of(client, "/api/clocks?cluster=beta").total == 1
    assert "<small>beta/</small>gpu-001" in client.get("/clocks").text
    assert "<small>" not in client.get("/clocks?cluster=beta").text


def test_an_empty_page_says_what_to_do(client: TestClient, feed: Feed) -> None:
    page = client.get("/clocks").text
    assert "No live node has sent clock beacons yet" in page
    assert "rootrank-shipper check" in page
    feed.clocks.apply(segment(run="drill", run_id="d"), now_ms())
    assert '<a href="/clocks?run=drill">1 of run drill</a>' in client.get("/clocks").text


def test_without_its_topic_the_page_says_so_and_the_feed_is_well(feed: Feed) -> None:
    waiting = Health(state="starting", reason="waiting for the topic clock.segments to be created")
    client = TestClient(create_app(feed, lambda: FOLLOWING, clock_health=lambda: waiting))
    page = client.get("/clocks").text
    assert "waiting for the topic clock.segments" in page
    assert "No live node" not in page
    assert (listing_of(client).following, listing_of(client).reason) == (False, waiting.reason)
    health = client.get("/healthz")
    assert health.status_code == 200
    assert health.json()["warnings"] == [f"clocks are not known: {waiting.reason}"]
    assert "waiting for the topic" not in client.get("/").text


def test_health_names_unusable_clocks_and_stays_well(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(), now_ms())
    assert client.get("/healthz").json()["warnings"] == []
    for n in range(7):
        feed.clocks.apply(unmeasured(f"u{n}"), now_ms())
    feed.clocks.apply(segment("gone"), now_ms() - SILENT_MS - 1_000)

    answer = client.get("/healthz")

    assert answer.status_code == 200
    assert answer.json()["clocks"] == {"good": 1, "holdover": 0, "stepped": 0, "silent": 1, "none": 7}
    assert answer.json()["warnings"] == [
        "the clock of 7 nodes is not measured: u0, u1, u2, u3, u4 … and 2 more",
        "of 1 node no clock was told for two minutes: gone",
    ]
    home = client.get("/").text
    assert "the clock of 7 nodes is not measured: u0" in home
    assert 'href="/clocks?bad=1"' in home
    assert "is not measured" not in client.get("/?run=drill").text


def test_where_all_fall_silent_at_once_the_worker_is_suspected(client: TestClient, feed: Feed) -> None:
    for n in range(3):
        feed.clocks.apply(segment(f"n{n}"), now_ms() - SILENT_MS - 60_000)
    assert client.get("/healthz").json()["warnings"] == ["no clock was told of for 3 min: the worker or Kafka is away"]


def test_metrics_count_clocks(client: TestClient, feed: Feed) -> None:
    for told in fleet(40):
        feed.clocks.apply(told, now_ms())
    text = client.get("/metrics").text
    assert 'rootrank_clock_nodes{quality="good"} 37.0' in text
    assert 'rootrank_clock_nodes{quality="none"} 1.0' in text
    assert "rootrank_clock_unusable_nodes 1.0" in text
    assert "rootrank_clock_widest_bound_seconds 0.004009" in text


@pytest.mark.parametrize("path", ["/clocks", "/api/clocks"])
@pytest.mark.parametrize("asked", ["run=x", "bad=2", "limit=0", "limit=999999"])
def test_a_bad_question_is_answered_with_what_would_be_right(client: TestClient, path: str, asked: str) -> None:
    answer = client.get(f"{path}?{asked}")
    assert answer.status_code == 400
    assert "use one of" in answer.text or "from 1 to" in answer.text


def test_names_and_reasons_cannot_become_markup(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(HOSTILE, cluster=HOSTILE, reason=HOSTILE * 100, boot_id=HOSTILE), now_ms())
    feed.clocks.apply(unmeasured(f"{HOSTILE}2", HOSTILE), now_ms())
    page = client.get("/clocks").text
    assert "&lt;script&gt;alert(1)" in page
    for forbidden in ("<script>alert", "<img", "\x1b", "\u202e", "<style", " style="):
        assert forbidden not in page
    assert "\x1b" not in client.get("/healthz").text


def test_absurd_numbers_are_shown_and_break_nothing(client: TestClient, feed: Feed) -> None:
    big = 2**80
    absurd = segment(
        a_ns=big, b_ppb=-big, lo_ns=big, hi_ns=big, u99_ns=-big, wall_offset_ns=-big, wall_step_ns=big, epoch=big,
        t_to_raw_ns=-big, broker_id=-big,
    )  # fmt: skip
    for at_ms in (-5, 2**70, now_ms()):
        feed.clocks.apply(absurd, at_ms)
    for path in ("/clocks", "/api/clocks", "/healthz", "/metrics"):
        assert client.get(path).status_code == 200, path


def test_two_thousand_nodes_are_counted_whole_and_a_page_shows_the_worst(client: TestClient, feed: Feed) -> None:
    for told in fleet(2_000):
        feed.clocks.apply(told, now_ms())
    page, listing = client.get("/clocks").text, listing_of(client)
    assert (len(listing.clocks), listing.total) == (2_000, 2_000)
    assert page.count("<tr class") == 500
    assert '<a href="/clocks?limit=2000">1500 more</a>' in page
    assert client.get("/clocks?limit=2000").text.count("<tr class") == 2_000


# --- wall clocks that are seconds off ---------------------------------------------------------------------------------


def test_a_wall_clock_that_is_seconds_off_is_marked_counted_and_warned_of(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment("near", wall_offset_ns=-S), now_ms())
    assert client.get("/healthz").json()["warnings"] == []
    feed.clocks.apply(segment("ahead", wall_offset_ns=-4 * S), now_ms())
    feed.clocks.apply(segment("behind", wall_offset_ns=90 * S), now_ms())

    listing, bad = listing_of(client), listing_of(client, "/api/clocks?bad=1")

    assert [(c.node, c.state, c.is_wall_off) for c in bad.clocks] == [("behind", "good", True), ("ahead", "good", True)]
    assert (listing.walls_off, listing.counts["good"], listing.farthest) == (2, 3, bad.clocks[0])
    assert client.get("/healthz").json()["warnings"] == [
        "2 wall clocks off by more than 1 s: behind (90 s behind), ahead (4 s ahead)"
    ]
    page = client.get("/clocks?bad=1").text
    for text in ("wall clock 4 s ahead", "wall clock 90 s behind", "wall clocks off by more than 1 s"):
        assert text in page
    assert "rootrank_clock_widest_wall_offset_seconds 90.0" in client.get("/metrics").text


def test_wall_clocks_that_are_off_stand_below_unusable_clocks_and_above_wide_bounds(feed: Feed) -> None:
    for told in fleet(40):
        feed.clocks.apply(told, T0_MS)
    feed.clocks.apply(segment("off", wall_offset_ns=-2 * S), T0_MS)
    feed.clocks.apply(segment("farther", wall_offset_ns=3 * S), T0_MS)
    found = feed.clocks.select(ClockQuery(), T0_MS)
    assert [c.node for c in found[:5]] == ["gpu-007", "farther", "off", "gpu-033", "gpu-021"]


# --- silence ----------------------------------------------------------------------------------------------------------


def test_where_all_are_silent_no_node_is_blamed_and_it_is_said_once(client: TestClient, feed: Feed) -> None:
    for n in range(3):
        feed.clocks.apply(segment(f"n{n}", cluster=f"c{n}"), now_ms() - SILENT_MS - 60_000)
    page, listing = client.get("/clocks?cluster=c1").text, listing_of(client)
    assert listing.all_silent
    assert page.count("All nodes at once: the worker or Kafka is away") == 1
    assert "its shipper has stopped" not in page
    feed.clocks.apply(segment("played", run="replay", run_id="r"), now_ms())
    assert "is away" not in client.get("/clocks?run=replay").text


def test_of_the_only_node_its_shipper_may_be_away_too(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(), now_ms() - 300_000)
    assert "Nothing is told of the only node: its shipper, the worker or Kafka is away." in client.get("/clocks").text


def test_where_one_cluster_alone_is_silent_its_nodes_are_told_so(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(cluster="gone"), now_ms() - SILENT_MS - 60_000)
    feed.clocks.apply(segment(cluster="here"), now_ms())
    page = client.get("/clocks?cluster=gone").text
    assert "its shipper has stopped" in page
    assert "worker or Kafka is away" not in page


def test_where_the_feed_itself_is_not_current_no_node_is_blamed_for_its_silence(feed: Feed) -> None:
    away = Health(state="unreachable", reason="Kafka at k:1 cannot be reached")
    client = TestClient(create_app(feed, lambda: away))
    feed.clocks.apply(segment("a"), now_ms() - SILENT_MS - 60_000)
    feed.clocks.apply(segment("b"), now_ms() - SILENT_MS + 60_000)
    page = client.get("/clocks").text
    assert "nothing told for 3 min" in page
    assert "its shipper has stopped" not in page


def test_a_silent_nodes_bound_is_told_with_its_age_and_not_as_if_it_held_now(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment("gone", wall_offset_ns=-4 * S), now_ms() - 300_000)
    feed.clocks.apply(segment("here"), now_ms())
    (gone,) = listing_of(client, "/api/clocks?bad=1").clocks
    listing = listing_of(client)
    assert clock_words.why(gone, listing).startswith("nothing told for 5 min:")
    assert clock_words.why(gone, listing).endswith("; it was ± 655 µs then")
    assert (clock_words.bound_now(gone), clock_words.offset_now(gone), gone.is_wall_off) == ("", "", False)
    assert listing.farthest is not None
    assert listing.farthest.node == "here"
    assert client.get("/clocks?bad=1").text.count("± 655 µs") == 2  # its age beside it, and the widest of the fleet


# --- what to do -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "check", "switched_off"),
    [(NOT_MEASURED, True, True), (f"{NOT_MEASURED}; the clock runs 80 s ahead", True, True), (UNMEASURED, True, False),
     (NOT_YET, False, False)],
)  # fmt: skip
def test_of_a_clock_that_is_not_measured_it_is_said_where_to_look(
    client: TestClient, feed: Feed, reason: str, check: bool, switched_off: bool
) -> None:
    feed.clocks.apply(unmeasured("n", reason), now_ms())
    page = client.get("/clocks").text
    assert reason in page
    assert ("rootrank-shipper check" in page) is check
    assert ("[clock] beacon = false" in page) is switched_off


def test_a_cluster_that_nobody_knows_is_told_from_one_without_beacons(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(cluster="alpha"), now_ms())
    page = client.get("/clocks?cluster=nope").text
    assert "No node of cluster nope is known. Known: alpha." in page
    assert "has sent clock beacons" not in page


def test_the_page_explains_its_states(client: TestClient, feed: Feed) -> None:
    feed.clocks.apply(segment(), now_ms())
    page = html.unescape(client.get("/clocks").text)
    for state, meaning in clock_words.MEANINGS.items():
        assert f"<b>{state}</b>: {meaning}" in page


@pytest.mark.parametrize(("ppb", "said"), [(-20, "+0.0 ppm"), (-60, "-0.1 ppm"), (0, "+0.0 ppm"), (1_840, "+1.8 ppm")])
def test_a_drift_of_nothing_has_no_minus(ppb: int, said: str) -> None:
    assert clock_words.drift(ppb) == said


def test_brokers_that_nodes_measure_both_are_compared() -> None:
    book = ClockBook()
    for broker_id, ahead_ns in ((1, 0), (2, 8 * MS)):
        for node in ("n1", "n2"):
            book.apply(segment(node, broker_id=broker_id, a_ns=T0_MS * MS + ahead_ns, lo_ns=-MS, hi_ns=MS), T0_MS)
    listing = book.listing(ClockQuery(), T0_MS + 1, FOLLOWING)
    (line,) = clock_words.broker_lines(listing)
    assert line == "the clock of broker 2 is +8 ms ± 2 ms of broker 1's, by 2 nodes"
    assert line in clock_words.fleet_lines(listing)
