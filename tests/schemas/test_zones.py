"""Offsets from UTC as text."""

import pytest

from schemas.zones import zone_offset_s, zone_text


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [
        ("Z", 0),
        ("UTC", 0),
        ("+0800", 28_800),
        ("-05:30", -19_800),
        ("", None),
        ("CET", None),
        ("+08", 28_800),
        ("+14:00", 50_400),
        ("+14:15", None),
        ("+02:60", None),
        ("+0²00", None),
        ("+0:200", None),
        ("+02:", None),
        (None, None),
    ],
)
def test_an_offset_from_utc_is_read_in_these_forms_and_no_other(zone: str | None, seconds: int | None) -> None:
    assert zone_offset_s(zone) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "+00:00"), (-19_800, "-05:30"), (50_400, "+14:00")])
def test_an_offset_is_written_as_it_is_read(seconds: int, text: str) -> None:
    assert zone_text(seconds) == text
    assert zone_offset_s(text) == seconds
