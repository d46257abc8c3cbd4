"""Any bytes are input: nothing in a file makes reading fail, and what is read of it is text."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.diagnose import diagnose
from schemas import signals
from schemas.matching import load_prefixes
from tests.lines.reading import events_of

BODIES = [e.line for signal in signals.load().signals for e in signal.matches]
PREFIXES = [match.removesuffix("hello") for p in load_prefixes().prefixes for match in p.entry.matches]
PIECES = st.one_of(
    st.sampled_from(BODIES).map(str.encode),
    st.sampled_from(PREFIXES).map(str.encode),
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\r",
            b"\x00",
            b"\xff\xfe",
            b"\x1b[31m",
            b"{",
            b'{"log":"',
            b"\xed\xa0\x80",
            b"#012",
            b"9" * 400,
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25).map(b"".join), st.sampled_from(["application", "kernel", "service"]))
def test_any_text_is_read_without_failing(data: bytes, kind: str) -> None:
    for event in events_of(data.decode("utf-8", "replace"), kind):
        assert event.name
        assert event.lo_unix_nano <= event.hi_unix_nano
        event.body.encode("utf-8")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=25).map(b"".join), min_size=1, max_size=4))
def test_any_files_are_diagnosed_without_failing(contents: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for number, content in enumerate(contents):
            (Path(name) / f"node-{number}.log").write_bytes(content)
        assert diagnose([Path(name)]).shape()


@pytest.mark.parametrize(
    "damage", [b"", b"\x00", b"\xff" * 100, b"\n" * 1000, b"[" * 10_000, b"{" * 10_000, b" " * 10_000]
)
def test_odd_files_are_no_incident(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "odd.log").write_bytes(damage)
    assert diagnose([tmp_path]).incidents == []
