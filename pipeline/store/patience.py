"""Waiting for a service that does not answer: growing pauses, said once, until it does or we are told to stop."""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0

T = TypeVar("T")


class StoppedError(Exception):
    """The wait was ended from outside before the call succeeded."""


def persist(
    call: Callable[[], T],
    *,
    failures: tuple[type[Exception], ...],
    stop: threading.Event,
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> T:
    """The result of `call`, tried again with growing pauses while it raises one of `failures`.

    The first failure is logged, then only one of another kind. Raises StoppedError when `stop` is set.
    """
    pause_s = FIRST_PAUSE_S
    said: tuple[object, ...] = ()
    while True:
        try:
            result = call()
        except failures as error:
            kind = (type(error), getattr(error, "code", None))
            if kind != said:
                log.warning("%s; waiting, nothing is lost", error)
                said = kind
            if stop.wait(pause_s):
                raise StoppedError from None
            pause_s = min(pause_s * 2, longest_pause_s)
        else:
            if said:
                log.warning("it answers again")
            return result
