"""What a fleet report says. Pure values; the JSON of `rootrank mtbf` is their msgspec form.

Rates are per 1,000 unit-days, times in hours. An upper bound of None is infinite: nothing failed, or too little was
seen to bound it. Every rate stands with its count, its exposure and the kind of it, an interval, the dispersion and
how few units carry the count.
"""

from typing import Literal

from msgspec import Struct

from pipeline.core.fleet.propagation import Propagation
from pipeline.core.fleet.records import Category, Defect, ExposureKind, UnitKind

By = Literal["all", "cluster", "sku", "rack", "position", "driver", "firmware", "batch", "component", "class"]
RepairStep = Literal["drain", "repair", "trusted"]
IntervalKind = Literal["Garwood", "bootstrap over units"]


class Estimate(Struct, frozen=True):
    """A value with its interval. `value` None: nothing was counted, only the bound holds."""

    value: float | None
    lo: float | None
    hi: float | None


class RateRow(Struct, frozen=True, kw_only=True):
    """Failures of one category in one cohort, component or class.

    One count, three denominators: `system_mtbf_hours` is wall clock over n, `node_mtbf_hours` node-hours over n,
    `gpu_mtbf_hours` GPU-hours over n. `rate` and `interval` are of `unit_kind`. `uncounted`: failures on units that
    were not at risk, no part of n. `nobody`: failures of n that are blamed on no unit. `top_unit` has the most.
    """

    by: By
    value: str
    category: Category
    n: int
    exposure_kind: ExposureKind
    unit_kind: UnitKind
    units: int
    exposure_hours: float
    gpu_hours: float
    rate: Estimate
    system_mtbf_hours: Estimate
    node_mtbf_hours: Estimate | None
    gpu_mtbf_hours: Estimate | None
    interval: IntervalKind
    dispersion: float | None
    top_1_share: float | None
    top_10_share: float | None
    top_unit: str
    nobody: int
    uncounted: int
    unobserved_share: float | None


class TrendRow(Struct, frozen=True, kw_only=True):
    """Whether failures became more frequent. Laplace z above 0 and a Crow-AMSAA beta above 1: worse with time."""

    cluster: str
    category: Category
    n: int
    laplace_z: float | None
    laplace_p: float | None
    beta: Estimate | None
    verdict: str


class CurvePoint(Struct, frozen=True):
    """The share that had no failure at an age of `hours`, with its band and how many were at risk."""

    hours: float
    survival: float
    lo: float
    hi: float
    at_risk: int


class Survival(Struct, frozen=True, kw_only=True):
    """Time to the first failure of units in the window, by Kaplan-Meier, with what two models say of it.

    A unit that failed before the window counts as the others: its earlier failures are not known.

    `clock` says since when hours count: `age` since the unit was installed, entered at its age at the begin of the
    window; `window` since the begin of the window where no installation is known. The curve begins at `from_hours`,
    before which too few were seen for one failure not to end it; median and mean are of the time after that.
    """

    unit_kind: UnitKind
    clock: Literal["age", "window"]
    from_hours: float
    units: int
    failed: int
    points: list[CurvePoint]
    median_hours: float | None
    restricted_mean_hours: float | None
    horizon_hours: float
    exponential_mttf_hours: float | None
    weibull_scale_hours: float | None
    weibull_shape: float | None
    exponential_p: float | None
    exponential_is_wrong: bool
    why: str


class Incidence(Struct, frozen=True, kw_only=True):
    """The share of units whose first failure by `hours` was of this component, others competing; log-log bounds."""

    unit_kind: UnitKind
    component: str
    failed: int
    hours: float
    share: float
    lo: float
    hi: float


class RepairTime(Struct, frozen=True, kw_only=True):
    """How long one step of a repair takes. Open ones are censored; `closed_mean_hours` leaves them out: too low."""

    step: RepairStep
    n: int
    still_open: int
    median_hours: float | None
    restricted_mean_hours: float | None
    horizon_hours: float
    closed_mean_hours: float | None
    closed_median_hours: float | None


class RepeatRow(Struct, frozen=True, kw_only=True):
    """Of the repairs by one action, those after which the unit failed again within 7 and 28 days.

    `judged`: those that ended so long before the end of the window.
    """

    action: str
    repairs: int
    judged_7_days: int
    within_7_days: int
    judged_28_days: int
    within_28_days: int


class SizeRow(Struct, frozen=True, kw_only=True):
    """Attempts of jobs on `gpus_from` to `gpus_to` GPUs (0: nobody knows how many).

    `mttf_hours` is measured, `predicted_hours` what the rate of single nodes makes of their nodes; `is_misfit`: the
    interval leaves the prediction out. `ettr` is productive time by scheduled and queued time, `ettr_expected` what the
    rate, `restart_s` and saves every `save_every_s` (Daly-Young, for saves that block `write_s`) allow. With attempts
    in `queue_unknown`, `ettr` is an upper bound.
    """

    gpus_from: int
    gpus_to: int
    jobs: int
    failures: int
    busy_hours: float
    mttf_hours: Estimate
    predicted_hours: float | None
    is_misfit: bool
    nodes: float
    ettr: float | None
    ettr_expected: float | None
    queue_unknown: int
    save_every_s: float | None


class Jobs(Struct, frozen=True, kw_only=True):
    """Jobs by size. `per_1000_node_days` is the rate of the prediction, from failures that ended attempts on more than
    `above_gpus` GPUs (0: of all).
    """

    rows: list[SizeRow]
    per_1000_node_days: Estimate
    above_gpus: int
    write_s: float
    restart_s: float


class Goodput(Struct, frozen=True, kw_only=True):
    """Of the GPU-hours there were, which were spent on work that was kept."""

    capacity_gpu_hours: float
    busy_gpu_hours: float
    lost_gpu_hours: dict[Category, float]
    share: float | None
    without_a_price: int


class LemonRow(Struct, frozen=True, kw_only=True):
    """A unit beside the others of its cohort (SKU). `shrunk_rate`: per 1,000 unit-days, drawn to the cohort's.

    `p_value`: by chance, at the rate of the others. `cohort_p_value`: of a healthy unit of this cohort, whose rates
    differ by the coefficient of variation `cohort_cv`; None: they differ no more than chance does, or are too few to
    tell.
    """

    unit: str
    cohort: str
    n: int
    expected: float | None
    p_value: float
    cohort_p_value: float | None
    cohort_cv: float | None
    is_lemon: bool
    shrunk_rate: float


class SensitivityRow(Struct, frozen=True, kw_only=True):
    """Episodes of one kind of event by the window that joins lines into one; `rate` is per 1,000 unit-days.

    `uncounted`: episodes on units that were not at risk, no part of `episodes`. `lines` are those of all units.
    """

    name: str
    xid: int | None
    lines: int
    window_s: int | None
    episodes: int
    uncounted: int
    rate: Estimate
    unit_kind: UnitKind
    exposure_kind: ExposureKind
    exposure_hours: float
    interval: IntervalKind
    dispersion: float | None
    top_1_share: float | None
    unobserved_share: float | None


class ShareRow(Struct, frozen=True, kw_only=True):
    """Interruptions of one class in one week or month. `share` is of all of the period, the unknown ones included."""

    period: str
    class_: str
    category: Category
    n: int
    share: float
    unknown_share: float


class CostRow(Struct, frozen=True, kw_only=True):
    """What interruptions of one class cost, ranked by cost and by count."""

    class_: str
    category: Category
    n: int
    share_of_n: float
    lost_gpu_hours: float
    share_of_cost: float | None
    without_a_price: int
    rank_by_cost: int
    rank_by_count: int


class DefectCount(Struct, frozen=True, kw_only=True):
    """How often one kind of data cannot be true or cannot be counted, with the first of them."""

    kind: str
    n: int
    examples: list[Defect]


class Lemons(Struct, frozen=True, kw_only=True):
    """Units that fail far more than their peers, and whether the window is long enough to find any."""

    unit_kind: UnitKind
    rows: list[LemonRow]
    tested: int
    q: float
    smallest_window_days: int | None
    warning: str


class FleetReport(Struct, frozen=True, kw_only=True):
    """Everything `rootrank mtbf` prints, of the UTC days from `from_` to `to`, both counted.

    `as_of`: when it was or would have been issued, empty for now. `by`: what rates were asked by.
    """

    from_: str
    to: str
    as_of: str
    run: str
    clusters: list[str]
    nodes: int
    gpus: int
    window_hours: float
    node_hours: dict[ExposureKind, float]
    gpu_hours: dict[ExposureKind, float]
    level: float
    exposure_kind: ExposureKind
    by: list[By]
    rates: list[RateRow]
    trends: list[TrendRow]
    survival: list[Survival]
    incidence: list[Incidence]
    repair_times: list[RepairTime]
    repeats: list[RepeatRow]
    jobs: Jobs
    goodput: Goodput
    lemons: Lemons
    propagation: list[Propagation]
    sensitivity: list[SensitivityRow]
    shares: list[ShareRow]
    unknown_share: float | None
    costs: list[CostRow]
    defects: list[DefectCount]
