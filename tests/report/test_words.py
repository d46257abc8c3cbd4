"""What is said in words of an incident's parts."""

import msgspec

from pipeline.report.words import order_words
from schemas.records import Edge


def test_a_probable_order_says_how_likely_it_is() -> None:
    edge = Edge(from_=1, to=2, why="", order="probable", odds=0.9971)
    assert order_words(edge) == "order probable, 99.7 %"
    assert order_words(msgspec.structs.replace(edge, order="certain", odds=None)) == "order certain"
