"""What the stages of a worker count, as metrics."""

from collections.abc import Iterator

from pipeline import metrics
from pipeline.agents.checkpoint import StageRunner
from pipeline.metrics import Definition


class StageReadings:
    """Sums over the lives of the app in this process: a restart of the app does not take counters back to zero."""

    def __init__(self) -> None:
        self._runners: list[StageRunner] = []
        self._before: dict[tuple[Definition, str], float] = {}

    def follow(self, runners: list[StageRunner]) -> None:
        """Count these from now on, on top of what was counted before."""
        self._before = {(definition, stage): number for definition, stage, number in self.read()}
        self._runners = list(runners)

    def read(self) -> Iterator[tuple[Definition, str, float]]:
        """(definition, stage, number) of everything counted."""
        now = dict(self._before)
        for runner in self._runners:
            counted = runner.counters
            for definition, number in (
                (metrics.STAGE_MESSAGES, counted.messages),
                (metrics.STAGE_OUTPUTS, counted.outputs),
                (metrics.STAGE_SNAPSHOTS, counted.snapshot_bytes),
                (metrics.STAGE_RESETS, counted.resets),
                (metrics.DEAD_LETTERS, counted.bad),
            ):
                name = (definition, runner.stage.name)
                now[name] = now.get(name, 0.0) + number
        for (definition, stage), total in sorted(now.items(), key=lambda item: (item[0][0].name, item[0][1])):
            yield definition, stage, total
