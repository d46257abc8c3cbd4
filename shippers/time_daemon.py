"""What this host's own time service says of the wall clock: chrony's bound, else the kernel's.

chrony (its FAQ): the error is at most root dispersion + root delay / 2 + the correction that is left to slew; the
dispersion grows by 1 ppm + skew + residual frequency. The kernel: `maxerror` of adjtimex(2), which it lets grow by
500 ppm. Neither is taken from a service that says it is not synchronised.
"""

import ctypes
import math
import shutil
import subprocess
import threading
import time
from typing import Final

from msgspec import Struct

from schemas.records import ClockClaim, ClockReading

ASK_EVERY_S: Final = 30.0
_OLD_S: Final = 120.0  # an answer that could not be renewed so long is none
_AHEAD_S: Final = 5.0  # a claim also holds until the next batch brings another
_TIMEOUT_S: Final = 1.0
_SECOND_NS: Final = 10**9
_MAX_BOUND_S: Final = 1e6
_FIELDS: Final = 14
_LOCAL_REFERENCE: Final = "7F7F0101"  # 127.127.1.1: chrony serves its own clock, which nothing corrects
_RAW_DRIFT_PPM: Final = 500.0  # the most that a wall clock may run off the raw one beside what is being corrected
_KERNEL_PPM: Final = 500.0
_TIME_ERROR: Final = 5
_STA_UNSYNC: Final = 0x40
_TIMEX_BYTES: Final = 256
_OFFSET_AT, _MAX_ERROR_AT, _EST_ERROR_AT, _STATUS_AT = 8, 24, 32, 40  # bytes into struct timex on 64-bit Linux
_STA_NANO: Final = 0x2000
_LIBC: Final = ctypes.CDLL(None)


class Tracking(Struct, frozen=True, kw_only=True):
    """chrony's opinion: the wall clock is within `bound_ns` now, and `ppm` per second more later."""

    source: str
    stratum: int
    bound_ns: int
    ppm: float


class KernelState(Struct, frozen=True, kw_only=True):
    """The kernel's opinion. `bound_ns` is None where the clock is not synchronised or nobody told a bound."""

    is_synchronised: bool
    max_error_ns: int
    bound_ns: int | None = None


def parse_tracking(text: str) -> Tracking | None:
    """What `chronyc -c -n tracking` prints; None where it is not that, or not synchronised to anything outside.

    Fields: reference id, its name, stratum, reference time, system time correction (s), last offset, RMS offset,
    frequency, residual frequency (ppm), skew (ppm), root delay (s), root dispersion (s), update interval, leap status.
    """
    fields = text.strip().split(",")
    if len(fields) != _FIELDS or fields[0].upper() in ("00000000", _LOCAL_REFERENCE):
        return None
    try:
        stratum = int(fields[2])
        correction, residual, skew, delay, dispersion = (float(fields[at]) for at in (4, 8, 9, 10, 11))
    except ValueError:
        return None
    bound_s = dispersion + delay / 2 + abs(correction)
    ppm = 1.0 + abs(skew) + abs(residual)
    is_sane = dispersion >= 0 and delay >= 0 and bound_s < _MAX_BOUND_S and math.isfinite(ppm)  # false for NaN
    if not is_sane or not 0 < stratum < 16 or fields[13] not in ("Normal", "Insert second", "Delete second"):
        return None
    return Tracking(source=fields[1] or fields[0], stratum=stratum, bound_ns=math.ceil(bound_s * _SECOND_NS), ppm=ppm)


def ask_chrony() -> Tracking | None:
    """Chrony's opinion now; None where it is not there or does not answer within a second."""
    program = shutil.which("chronyc")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-c", "-n", "tracking"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_tracking(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else None


def ask_kernel() -> KernelState | None:
    """The kernel's opinion now; None where adjtimex(2) is refused."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = _LIBC.adjtimex(timex)
    return None if state < 0 else parse_timex(state, timex.raw)


def parse_timex(state: int, timex: bytes) -> KernelState:
    """What adjtimex(2) returned and wrote."""

    def number(at: int, size: int = 8) -> int:
        return int.from_bytes(timex[at : at + size], "little", signed=True)

    status = number(_STATUS_AT, 4)
    is_synchronised = state != _TIME_ERROR and not status & _STA_UNSYNC
    max_error_ns = number(_MAX_ERROR_AT) * 1000
    bound_ns = None
    # systemd-timesyncd sets both errors to 0 at each correction: that is no measured bound.
    if is_synchronised and number(_EST_ERROR_AT) > 0:
        left_ns = abs(number(_OFFSET_AT)) * (1 if status & _STA_NANO else 1000)
        # The kernel lets maxerror grow once a second.
        bound_ns = max_error_ns + left_ns + math.ceil(_KERNEL_PPM * 1e-6 * _SECOND_NS)
    return KernelState(is_synchronised=is_synchronised, max_error_ns=max_error_ns, bound_ns=bound_ns)


class TimeDaemon:
    """Claims by the time service. chrony is asked by a thread of its own, so that nobody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[Tracking, ClockReading] | None = None
        self._asked_s = float("-inf")
        self._asker: threading.Thread | None = None

    def claim(self, now: ClockReading) -> ClockClaim | None:
        """What may be claimed of the wall clock at this reading and until the next batch."""
        self._ask_if_due(now)
        with self._lock:
            known = self._known
        claim = chrony_claim(*known, now) if known else None
        if claim is not None:
            return claim
        kernel = ask_kernel()
        if kernel is None or kernel.bound_ns is None:
            return None
        ahead_ns = math.ceil(_KERNEL_PPM * 1e-6 * _AHEAD_S * _SECOND_NS)
        return ClockClaim(offset_ns=0, bound_ns=kernel.bound_ns + ahead_ns, by="kernel")

    def _ask_if_due(self, now: ClockReading) -> None:
        with self._lock:
            is_asking = self._asker is not None and self._asker.is_alive()
            if is_asking or time.monotonic() - self._asked_s < ASK_EVERY_S:
                return
            self._asked_s = time.monotonic()
            self._asker = threading.Thread(target=self._ask, args=(now,), name="time-daemon", daemon=True)
            self._asker.start()

    def _ask(self, before: ClockReading) -> None:
        tracking = ask_chrony()
        with self._lock:
            self._known = (tracking, before) if tracking is not None else None


def chrony_claim(tracking: Tracking, then: ClockReading, now: ClockReading) -> ClockClaim | None:
    """What chrony said at `then`, grown older; None where it is too old or the wall clock was set since."""
    age_ns = now.raw_ns - then.raw_ns
    moved_ns = abs((now.wall_ns - then.wall_ns) - age_ns)
    width_ns = then.width_ns + now.width_ns
    may_move_ns = tracking.bound_ns + math.ceil(age_ns * _RAW_DRIFT_PPM * 1e-6) + width_ns
    if not 0 <= age_ns <= _OLD_S * _SECOND_NS or moved_ns > may_move_ns:
        return None
    grown_ns = math.ceil((age_ns + _AHEAD_S * _SECOND_NS) * tracking.ppm * 1e-6)
    return ClockClaim(offset_ns=0, bound_ns=tracking.bound_ns + grown_ns, by="chrony")
