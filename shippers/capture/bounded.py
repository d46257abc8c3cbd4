"""Steps that may hang, each in a thread with a deadline: one that does not come back is left behind, and counted."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Final

MAX_HANGING: Final = 4


class Steps:
    """Runs steps. While too many of them hang, none is begun."""

    def __init__(self) -> None:
        self._hanging: list[threading.Thread] = []

    def run(self, step: Callable[[], str], timeout_s: float) -> str:
        """What the step gives, or in brackets why it gives nothing."""
        self._hanging = [each for each in self._hanging if each.is_alive()]
        if len(self._hanging) >= MAX_HANGING:
            return f"[not asked: {MAX_HANGING} earlier questions still hang]"
        said: list[str] = []

        def ask() -> None:
            try:
                said.append(step())
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                said.append(f"[{error}]")

        thread = threading.Thread(target=ask, name="capture step", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if said:
            return said[0]
        self._hanging.append(thread)
        return f"[did not answer within {timeout_s:.0f} s]"


def output_of(command: Sequence[str], timeout_s: float, max_bytes: int) -> str:
    """What a program that only reads prints; it is killed at the deadline. Raises OSError, SubprocessError."""
    answer = subprocess.run(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    text = answer.stdout[-max_bytes:].decode("utf-8", "replace")
    return text if answer.returncode == 0 else f"{text}\n[{command[0]} ended with {answer.returncode}]"
