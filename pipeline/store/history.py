"""What the store keeps of one job, in one piece."""

from typing import Any

from msgspec import Struct

from schemas.records import Incident


class JobHistory(Struct, frozen=True, kw_only=True):
    """Rows of `attempts_of_job`, `marks_of_job` and `nodes_of_job` as objects, the incidents that name the job.

    `other_runs` counts the attempts of other runs, where the one asked for has none.
    """

    attempts: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    incidents: list[Incident] = []
    other_runs: dict[str, int] = {}

    def clusters(self) -> set[str]:
        """The clusters in which the job is known."""
        return {str(row["cluster"]) for row in self.attempts} | {incident.cluster for incident in self.incidents}
