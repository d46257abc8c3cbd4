"""`rootrank-shipper annotate`: a training script says how far it is, in the folder that the agent watches.

No socket and no agent is needed to be there: the line waits in the folder. Loads nothing of the agent but the names of
variables, so that it costs a script the start of Python and no more.
"""

import argparse
import os
import re
import stat
import sys
import time

from shippers.jobs.environment import Seat, seat_of
from shippers.jobs.making import MAKE_IT, make_command

DEFAULT_DIR = "/var/spool/rootrank"
_PHASES = "train, init, compile, checkpoint_save, checkpoint_load, evaluation, shutdown"
# What people write for some phases.
_ALIASES = {"load": "checkpoint_load", "save": "checkpoint_save", "eval": "evaluation", "validation": "evaluation"}
_FINE, _USAGE, _UNREACHABLE = 0, 2, 3


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of the command."""
    text = "say which step or phase a job is in, for the agent of this node"
    _options(
        commands.add_parser(
            "annotate", help=text, description=text,
            epilog="example: rootrank-shipper annotate --step 1200 --phase train; in a script: ... || true",
        )
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the mark. Returns the exit code."""
    if options.step is None and options.phase is None and options.checkpoint is None:
        print("rootrank-shipper: annotate needs --step, --phase or --checkpoint", file=sys.stderr)
        return _USAGE
    phase = _ALIASES.get(options.phase, options.phase)
    if phase is not None and not re.fullmatch(r"[a-z_]{1,20}", phase):
        print(f"rootrank-shipper: --phase is one word in lower case: {_PHASES}", file=sys.stderr)
        return _USAGE
    seat = seat_of(os.environ)
    job = options.job or (seat.job if seat else "")
    if not re.fullmatch(r"[A-Za-z0-9][\w.:@+-]{0,127}", job):
        print("rootrank-shipper: no variable of the scheduler names the job; say it with --job ID", file=sys.stderr)
        return _USAGE
    try:
        append(f"{options.dir}/marks/annotate-{os.geteuid()}-{job}", _line(job, phase, seat, options))
    except FileNotFoundError:
        how = f"{MAKE_IT}`{make_command(options.dir)}`, or say by --dir where [jobs] dir of the agent is"
        print(f"rootrank-shipper: {options.dir}/marks: No such file or directory{how}", file=sys.stderr)
        return _UNREACHABLE
    except OSError as error:
        print(f"rootrank-shipper: {options.dir}/marks: {error.strerror}; is it [jobs] dir?", file=sys.stderr)
        return _UNREACHABLE
    return _FINE


def main(arguments: list[str]) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(
        prog="rootrank-shipper annotate", description="say which step or phase a job is in, for the agent of this node",
        epilog="example: rootrank-shipper annotate --step 1200 --phase train; in a script: ... || true",
    )  # fmt: skip
    _options(parser)
    return run(parser.parse_args(arguments))


def append(path: str, line: str) -> None:
    """Put a line at the end of a file of one's own: never through a link, never waiting for a pipe. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(1, "the file there is somebody else's")
        os.write(fd, line.encode("utf-8", "replace"))
    finally:
        os.close(fd)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step", type=_count, metavar="N", help="the step that was done")
    parser.add_argument("--phase", metavar="NAME", help=f"{_PHASES}; load and save are those of a checkpoint")
    parser.add_argument("--checkpoint", choices=("start", "end"), help="a checkpoint is being written, or is written")
    parser.add_argument("--rank", type=_count, metavar="N", help="default: RANK, or what the launcher calls it")
    parser.add_argument("--job", metavar="ID", help="default: SLURM_JOB_ID, ROOTRANK_JOB_ID or TORCHELASTIC_RUN_ID")
    parser.add_argument("--attempt", type=_count, metavar="N", help="default: SLURM_RESTART_COUNT or ROOTRANK_ATTEMPT")
    parser.add_argument(
        "--dir", default=os.environ.get("ROOTRANK_JOBS_DIR", DEFAULT_DIR), metavar="FOLDER",
        help="the agent's [jobs] dir (default: ROOTRANK_JOBS_DIR, else %(default)s)",
    )  # fmt: skip


def _line(job: str, phase: str | None, seat: Seat | None, options: argparse.Namespace) -> str:
    now_ns = time.time_ns()
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 10**9))
    attempt = options.attempt if options.attempt is not None else seat.attempt if seat else 0
    rank = options.rank if options.rank is not None else seat.rank if seat else None
    values = {
        "job": job, "attempt": attempt, "rank": rank, "step": options.step, "phase": phase,
        "checkpoint": options.checkpoint,
    }  # fmt: skip
    said = " ".join(f"{key}={value}" for key, value in values.items() if value is not None)
    return f"{at}.{now_ns % 10**9:09d}Z rootrank: job.mark {said}\n"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise argparse.ArgumentTypeError("it is a number from 0 on")
    return int(text)
