"""One GPU or rank far from its peers in memory, temperature or the time it waits for data: worth a look, no cause."""

from collections.abc import Callable
from math import exp
from typing import Final, NamedTuple

from pipeline.core.derived.peers import MIN_PEERS, is_few, measured_in, spread, whole
from pipeline.core.derived.scene import Changes, Scene, as_finding, last_of

OUTLIER: Final = "compare.outlier"
# One departs by so much at least: memory of which one GPU needs 2 GiB more than the others hints at data of another
# size, and GPUs at the two ends of an air flow differ by some ten degrees.
LEAST_MIB: Final = 2_048.0
LEAST_CELSIUS: Final = 15.0
LEAST_DATA_MS: Final = 50.0
_SHARE: Final = 1.05


class _Kind(NamedTuple):
    """A measure, by how much one departs at least, and how it is said, in which unit."""

    measure: str
    least: float
    label: str
    words: str
    unit: float = 1


_KINDS: Final = (
    _Kind("memory_used_mib", LEAST_MIB, "software/oom", "{0:.1f} GiB used, median of {2} others {1:.1f} GiB", 1_024),
    _Kind("temperature_celsius", LEAST_CELSIUS, "hardware/gpu_thermal", "{0:.0f} C, median of {2} others {1:.0f} C"),
    _Kind(
        "data_ms", LEAST_DATA_MS, "software/dataloader", "waits {0:.0f} ms for data, median of {2} others {1:.0f} ms"
    ),
)


def outliers(scene: Scene) -> Changes:
    """Who is above its peers in one of the measures."""
    for kind in _KINDS:
        measured = measured_in(scene, kind.measure)
        if len(measured) <= MIN_PEERS:
            continue
        values = {name: exp(whole(one.readings, kind.measure).mean) for name, one in measured.items()}
        middle, bound = spread(values.values(), kind.least)
        above = sorted(
            (name for name, value in values.items() if value - middle >= bound and value >= middle * _SHARE),
            key=_worst(values),
        )
        if not is_few(above, measured):
            continue
        for name in above[:1]:
            item = measured[name].items[kind.measure]
            numbers = kind.words.format(values[name] / kind.unit, middle / kind.unit, len(values) - 1)
            finding = as_finding(
                item, last_of(item), OUTLIER, item.subject, role="context", label=kind.label,
                attributes={"measure": kind.measure, "numbers": numbers},
            )  # fmt: skip
            yield id(item), [item, finding]


def _worst(values: dict[str, float]) -> Callable[[str], tuple[float, str]]:
    return lambda name: (-values[name], name)
