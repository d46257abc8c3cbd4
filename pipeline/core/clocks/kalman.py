"""Offset and drift by a Kalman filter over midpoints: the noise of many beacons averages out, certainty it has none."""

from typing import Final

from msgspec import Struct

OFFSET_NOISE: Final = 1e-5  # ns^2 of variance per ns: 0.1 us after a second
DRIFT_NOISE: Final = 1e-26  # per ns: 3 ppb after a second
FIRST_DRIFT: Final = 2e-5  # standard deviation of the drift of a clock that is not known


class Kalman(Struct):
    """Offset `x` (ns) and drift `v` (ns/ns) at `t`, and their covariance."""

    t: float
    x: float
    v: float = 0.0
    xx: float = 0.0
    xv: float = 0.0
    vv: float = FIRST_DRIFT * FIRST_DRIFT

    def add(self, t: float, x: float, variance: float) -> None:
        """Take in an offset that was measured at `t`."""
        dt = max(t - self.t, 0.0)
        ahead = self.x + self.v * dt
        xx = self.xx + dt * (2 * self.xv + dt * self.vv) + OFFSET_NOISE * dt
        xv = self.xv + dt * self.vv
        vv = self.vv + DRIFT_NOISE * dt
        gain_x, gain_v = xx / (xx + variance), xv / (xx + variance)
        off = x - ahead
        self.t, self.x, self.v = t, ahead + gain_x * off, self.v + gain_v * off
        self.xx, self.xv, self.vv = (1 - gain_x) * xx, (1 - gain_x) * xv, vv - gain_v * xv
