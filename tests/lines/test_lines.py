"""Every line shape of the field, with values of our own, is read as what it is."""

import pytest

from schemas.vocabulary import SEVERITY_NUMBER
from tests.lines.reading import Line, corpus, events_of

LINES = corpus()
READ = [line for line in LINES if not line.unread]


@pytest.mark.parametrize("line", [x for x in READ if x.event], ids=lambda x: f"{x.catalogue}: {x.text[:60]}")
def test_a_line_is_the_event_it_should_be(line: Line) -> None:
    events = events_of(line.text, line.kind)
    event = next((e for e in events if e.name == line.event), None)
    assert event is not None, [e.name for e in events]
    assert line.label in (None, event.label)
    assert line.role in (None, event.role)
    assert {name: event.attributes.get(name) for name in line.attributes} == line.attributes
    assert {name: getattr(event.subject, name) for name in line.subject} == line.subject


@pytest.mark.parametrize("line", [x for x in READ if not x.event], ids=lambda x: f"{x.catalogue}: {x.text[:60]}")
def test_a_harmless_line_warns_of_nothing(line: Line) -> None:
    said = [e.name for e in events_of(line.text, line.kind) if SEVERITY_NUMBER[e.severity] >= 13]
    assert said == []


def test_of_a_hundred_shapes_ninety_nine_are_read() -> None:
    unread = [line for line in LINES if line.unread]
    assert len(unread) <= len(LINES) / 100, [f"{line.catalogue}: {line.unread}" for line in unread]
