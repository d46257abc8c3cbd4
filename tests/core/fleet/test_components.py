"""Every class is counted in one place."""

import pytest

from pipeline.core.fleet import components
from pipeline.core.fleet.components import CATEGORIES, COMPONENTS, PLACES, category_of, component_of
from schemas.vocabulary import CLASSES, QUIET_CLASSES


def test_every_class_has_a_place_and_nothing_else_has() -> None:
    assert set(PLACES) == CLASSES


def test_no_class_is_placed_twice() -> None:
    assert not set(components._UNDEBATED) & set(components._DEBATED)


def test_every_component_and_category_is_used() -> None:
    assert {place.component for place in PLACES.values()} == set(COMPONENTS)
    assert {place.category for place in PLACES.values()} == set(CATEGORIES)


@pytest.mark.parametrize("class_", sorted(CLASSES))
def test_hardware_is_infrastructure_and_quiet_endings_are_planned(class_: str) -> None:
    if class_.startswith("hardware/"):
        assert category_of(class_) == "infrastructure"
    if class_ in QUIET_CLASSES:
        assert category_of(class_) == "planned"
    assert (component_of(class_) == "unknown") == (category_of(class_) == "unknown")


def test_a_class_that_nobody_knows_is_unknown() -> None:
    assert (component_of("hardware/of_tomorrow"), category_of("")) == ("unknown", "unknown")
