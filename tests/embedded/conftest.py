"""Helpers to watch processes of the embedded parts."""

import time
from collections.abc import Callable

import pytest

POLL_S = 0.02


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait until a condition holds; fail with the given text after 30 s."""

    def wait(condition: Callable[[], bool], text: str) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, text
            time.sleep(POLL_S)

    return wait
