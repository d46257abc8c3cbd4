"""Incidents to draw, and what a drawing or a page is made of."""

from html.parser import HTMLParser
from xml.etree import ElementTree

from pipeline.report.timeline import render_timeline
from schemas.records import BlastRadius, ChainStep, Culprit, Edge, Engine, Evidence, Incident

ROLES = ("root", "cascade", "symptom", "context")


def step(number: int, where: str, seconds: float | None = None, **more: object) -> ChainStep:
    """A step `seconds` after noon, known to 5 ms."""
    given = {
        "role": "root" if number == 1 else "symptom",
        "event": f"event.{number}",
        "when": None if seconds is None else f"2026-02-03T12:{int(seconds) // 60:02d}:{seconds % 60:09.6f}Z",
        "error_ns": None if seconds is None else 5_000_000,
        "evidence": Evidence(source=f"n1/rank{number}.log", line_no=number, text=f"line of step {number}"),
        **more,
    }
    return ChainStep(step=number, where=where, **given)  # type: ignore[arg-type]


def incident(*steps: ChainStep, edges: tuple[tuple[int, int, str], ...] = (), **more: object) -> Incident:
    given = {"class_": "hardware/gpu_xid_79", "explanation": "A GPU was lost.", "verdict": "settled", **more}
    return Incident(
        incident_id="i1", engine=Engine(version="0", rules_digest="0"), run="post_mortem", run_id="r", cluster="c",
        chain=list(steps), edges=[Edge(from_=a, to=b, why="because", order=order) for a, b, order in edges],  # type: ignore[arg-type]
        **given,  # type: ignore[arg-type]
    )  # fmt: skip


def fleet(ranks: int = 16_384) -> Incident:
    """One rank fails, all others wait: what a collapse of a whole fleet leaves of itself."""
    silent = list(range(1001, ranks, 2))
    waiting = {"ranks": list(range(64)), "count": ranks - 1}
    return incident(
        step(1, "rank 3 GPU 0000:5e:00.0 on big-0001", 0),
        step(2, f"{ranks - 1} ranks", 600, **waiting),
        *(step(n, f"rank {n} on big-{n:04d}", 600 + n) for n in range(4, 30)),
        edges=((1, 2, "certain"), *((2, n, "concurrent") for n in range(4, 30))),
        culprits=[Culprit(node="big-0001", rank=3, pci_bus_id="0000:5e:00.0", confidence=0.9)],
        blast_radius=BlastRadius(ranks=ranks, nodes=ranks // 8, silent_ranks=silent, reporting_ranks=ranks - 1),
    )


def drawing(found: Incident) -> ElementTree.Element:
    """The timeline as a tree: it is well-formed, whatever it shows."""
    return ElementTree.fromstring(str(render_timeline(found, lambda number: f"#s{number}")))


def with_class(tree: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """The elements of a class, in the order of drawing."""
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def words_in(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def lanes(tree: ElementTree.Element) -> list[str]:
    """What is written at each lane, from top to bottom."""
    return [" ".join(words_in(text) for text in lane.iter("text")) for lane in with_class(tree, "lane")]


class Page(HTMLParser):
    """The start tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.style = ""
        self._in = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._in = tag

    def handle_data(self, data: str) -> None:
        if self._in == "style":
            self.style += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._in = ""
