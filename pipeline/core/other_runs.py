"""What to say where the run that is asked for knows nothing, and others do."""

from collections.abc import Mapping


def left_out(attempts: Mapping[str, int]) -> list[str]:
    """One sentence, without its full stop, per run that was not asked for, with how many attempts it knows."""
    return [
        f"{count} {'attempt' if count == 1 else 'attempts'} of run {run}, not shown: add --run {run}"
        for run, count in sorted(attempts.items())
    ]
