"""How the folder of jobs is made. Loads nothing of the agent: `annotate` must start fast."""

import shlex

OF_ROOT = "jobs"
OF_ALL = "marks"
MAKE_IT = "; make it with "


def make_commands(folder: str) -> tuple[str, str]:
    """What an administrator types, one after the other."""
    inner = (shlex.quote(f"{folder}/{part}") for part in (OF_ROOT, OF_ALL))
    return f"install -d {shlex.quote(folder)} {next(inner)}", f"install -d -m 1733 {next(inner)}"


def make_command(folder: str) -> str:
    """The same in one line."""
    return " && ".join(make_commands(folder))
