"""Programs of the machine that are asked: with a time limit, in English and in UTC, never through a shell."""

import os
import shutil
import subprocess

from shippers.probes.probe import Refused
from shippers.probes.thresholds import thresholds


def found(*names: str) -> str | None:
    """The first of these programs that is there; the folders of system programs are searched too."""
    folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return next((path for name in names if (path := shutil.which(name, path=folders))), None)


def output(*arguments: str, accepted: int = 0) -> str:
    """What a program prints. `accepted` are bits of exit codes that are no failure. Raises Refused."""
    limit_s = thresholds().limits["command_s"]
    name = os.path.basename(arguments[0])  # noqa: PTH119
    try:
        done = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"{name} has not answered within {limit_s:.0f} s") from None
    except OSError as error:
        raise Refused(f"{name} cannot be started: {error.strerror}") from None
    if done.returncode & ~accepted:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise Refused(f"{name} failed with code {done.returncode}: {said or 'it said nothing'}")
    return done.stdout.decode("utf-8", "replace")
