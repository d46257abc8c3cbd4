"""Waiting for a condition, with a deadline instead of a fixed pause."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], *, timeout_s: float = 60.0, what: str = "") -> T:
    """The first true value of `condition`; fails with its last value at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what or condition}; last value {value!r}")
        time.sleep(0.1)
