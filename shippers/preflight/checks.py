"""What is right and what is wrong with what was seen, and what to set. Facts have their source beside them."""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from shippers.preflight.seen import Seen

State = Literal["ok", "bad", "unsure"]

_TORCH: Final = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_RECORDER: Final = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
_NCCL: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
# Of version 2.9 the recorder's variables are named for it; it still takes the older names.
_RENAMED: Final = (2, 9)
_RECORDS: Final = "2000"
_HEARTBEAT_S: Final = 480
_MIB: Final = 1024 * 1024
_SHM: Final = "/dev/shm"  # noqa: S108 (its name)
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 (their names)
_LEAST_SHM_BYTES: Final = 1024 * _MIB
_LEAST_NOFILE: Final = 65_536


class Finding(Struct, frozen=True, kw_only=True):
    """One check: what it says, the exports and other commands that put it right, and where the fact stands."""

    name: str
    state: State
    says: str
    exports: tuple[tuple[str, str], ...] = ()
    fix: str = ""
    source: str = ""


def findings(seen: Seen) -> list[Finding]:
    """All checks, in a fixed order."""
    return [*_recorder(seen), *_times(seen), *_nccl(seen), _errors(seen), _placement(seen), *_limits(seen)]


def _recorder(seen: Seen) -> Iterator[Finding]:
    environment = seen.environment
    size = environment.get("TORCH_FR_BUFFER_SIZE") or environment.get("TORCH_NCCL_TRACE_BUFFER_SIZE", "")
    names = [
        *(["TORCH_NCCL_TRACE_BUFFER_SIZE"] if seen.torch is None or seen.torch < _RENAMED else []),
        *(["TORCH_FR_BUFFER_SIZE"] if seen.torch is None or seen.torch >= _RENAMED else []),
    ]
    is_on = size.isdecimal() and int(size) > 0
    yield Finding(
        name="flight recorder", state="ok" if is_on else "bad",
        says=f"keeps the last {size} collectives of a rank" if is_on else "off: a hang leaves no record of who waits",
        exports=() if is_on else tuple((name, _RECORDS) for name in names), source=_RECORDER,
    )  # fmt: skip
    dumps = environment.get("TORCH_NCCL_DUMP_ON_TIMEOUT", "") in ("1", "true", "TRUE", "y", "Y", "yes")
    yield Finding(
        name="dump on time-out", state="ok" if dumps else "bad",
        says="on" if dumps else "off: the record is not written when a collective times out",
        exports=() if dumps else (("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),), source=_TORCH,
    )  # fmt: skip
    yield _dump_folder(seen)


def _dump_folder(seen: Seen) -> Finding:
    folder = seen.dump
    # Slurm may give each job a /tmp of its own, which goes with it.
    passes = folder.passes or (seen.environment.get("SLURM_JOB_ID", "") != "" and folder.path in _TEMPORARY)
    kind = f" ({folder.file_system})" if folder.file_system else ""
    if folder.exists and folder.is_writable and not passes:
        return Finding(name="dump folder", state="ok", says=f"{folder.path}{kind} can be written", source=_RECORDER)
    says = f"{folder.path}{kind} goes with the job or the machine"
    if not folder.exists:
        says = f"{folder.path} does not exist"
    elif not folder.is_writable:
        says = f"{folder.path} cannot be written"
    job = seen.environment.get("SLURM_JOB_ID", "")
    prefix = f"{seen.better.path}/nccl-trace-{f'{job}-' if job.isdecimal() else ''}rank_"
    names = ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",)
    if seen.torch is None or seen.torch >= _RENAMED:
        names = (*(names if seen.torch is None else ()), "TORCH_FR_DUMP_TEMP_FILE")
    return Finding(
        name="dump folder", state="bad" if not folder.is_writable else "unsure", says=says, source=_RECORDER,
        exports=tuple((name, prefix) for name in names) if seen.better.path else (),
        fix="" if seen.better.path else "set TORCH_NCCL_DEBUG_INFO_TEMP_FILE to a file on a shared file system",
    )  # fmt: skip


def _times(seen: Seen) -> Iterator[Finding]:
    beat = seen.environment.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "")
    beat_s = int(beat) if beat.isdecimal() and len(beat) < 7 else _HEARTBEAT_S
    whole_s = seen.timeout_s + beat_s
    said = f"a hang is told after {seen.timeout_s} s, a stuck watchdog {beat_s} s later"
    if seen.left_s is None:
        yield Finding(
            name="time-out", state="unsure", says=f"{said}; the scheduler says no end (SLURM_JOB_END_TIME)",
            source=_TORCH,
        )  # fmt: skip
        return
    fits = whole_s < seen.left_s
    yield Finding(
        name="time-out", state="ok" if fits else "bad", source=_TORCH,
        says=f"{said}; the job ends in {seen.left_s} s" + ("" if fits else ", before that"),
        fix="" if fits else "give init_process_group a shorter timeout, or the job more time",
    )  # fmt: skip


def _nccl(seen: Seen) -> Iterator[Finding]:
    environment = seen.environment
    level = environment.get("NCCL_DEBUG", "").upper()
    speaks = level in ("WARN", "INFO", "TRACE")
    yield Finding(
        name="NCCL_DEBUG", state="ok" if speaks else "bad", source=_NCCL,
        says=level if speaks else f"{level or 'not set'}: NCCL does not say what failed",
        exports=() if speaks else (("NCCL_DEBUG", "INFO" if not level else "WARN"),),
    )  # fmt: skip
    file, folder = environment.get("NCCL_DEBUG_FILE", ""), seen.nccl_files
    if not file or folder is None:
        ready = seen.better.path
        into = f"; the export puts them into files in {ready}" if ready else ""
        yield Finding(
            name="NCCL_DEBUG_FILE", state="unsure",
            says=f"not set: NCCL's lines are mixed into the program's output{into}",
            exports=(("NCCL_DEBUG_FILE", f"{ready}/nccl-%h-%p.log"),) if ready else (), source=_NCCL,
        )  # fmt: skip
        return
    is_own = "%h" in file and "%p" in file
    says = "a file for each process" if is_own else "several processes write into one file: name it with %h and %p"
    if not folder.is_writable:
        says = f"{folder.path} cannot be written"
    base = file.rpartition("/")[0] or "."
    yield Finding(
        name="NCCL_DEBUG_FILE", state="ok" if is_own and folder.is_writable else "bad", says=says, source=_NCCL,
        exports=() if is_own else (("NCCL_DEBUG_FILE", f"{base}/nccl-%h-%p.log"),),
    )  # fmt: skip


def _errors(seen: Seen) -> Finding:
    environment = seen.environment
    mode = environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", environment.get("NCCL_ASYNC_ERROR_HANDLING", "3"))
    waits = environment.get("TORCH_NCCL_BLOCKING_WAIT", "0")
    state: State = "bad" if mode == "0" else "unsure" if waits not in ("", "0") else "ok"
    says = {
        "bad": "off: a failed rank leaves the others hanging",
        "unsure": "TORCH_NCCL_BLOCKING_WAIT is set: the watchdog does not act, each wait raises by itself",
        "ok": f"on ({mode})",
    }[state]
    return Finding(
        name="error handling", state=state, says=says,
        exports=(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),) if state == "bad" else (), source=_TORCH,
    )  # fmt: skip


def _placement(seen: Seen) -> Finding:
    """Whether anything says which rank runs on which node."""
    environment = seen.environment
    told = [
        name for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JAX_PROCESS_ID") if environment.get(name)
    ]
    ranks = ", ".join(f"{name}={environment[name]}" for name in told)
    sizes = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "SLURM_NNODES", "SLURM_JOB_NODELIST")
    known = ", ".join(f"{name}={environment[name][:80]}" for name in sizes if environment.get(name))
    if environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE"):
        return Finding(
            name="ranks and nodes", state="ok", source=_NCCL,
            says=f"NCCL prints them; {ranks or 'no rank here'}; {known}".rstrip("; "),
        )  # fmt: skip
    return Finding(
        name="ranks and nodes", state="unsure", source=_NCCL,
        says=f"{ranks or 'no variable names a rank'}; {known or 'nor how many there are'}; only the agent tells them: "
        "its task prolog, or rootrank_marks",
        exports=() if environment.get("NCCL_DEBUG") else (("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "INIT,ENV")),
    )  # fmt: skip


def _limits(seen: Seen) -> Iterator[Finding]:
    locked = seen.memlock_bytes
    yield Finding(
        name="ulimit -l", state="ok" if locked is None else "bad", source=_TROUBLE,
        says="unlimited" if locked is None else f"{locked // 1024} KiB: RDMA cannot register its buffers",
        fix="" if locked is None else "ulimit -l unlimited; for Slurm: LimitMEMLOCK=infinity in slurmd's unit",
    )  # fmt: skip
    files, most = seen.nofile, seen.nofile_most
    enough = files is None or files >= _LEAST_NOFILE
    raisable = most is None or most > (files or 0)
    yield Finding(
        name="ulimit -n", state="ok" if enough else "unsure", source=_TROUBLE,
        says="unlimited" if files is None else f"{files} open files" + ("" if enough else ": many workers need more"),
        fix="" if enough else "ulimit -n $(ulimit -Hn)" if raisable else "raise nofile in limits.conf or the unit",
    )  # fmt: skip
    size = seen.shm_bytes
    if size is None:
        yield Finding(name=_SHM, state="bad", says="is not there", source=_TROUBLE)
        return
    large = size >= _LEAST_SHM_BYTES
    yield Finding(
        name=_SHM, state="ok" if large else "bad", source=_TROUBLE,
        says=f"{size // _MIB} MiB" + ("" if large else ": NCCL and data loaders run out of it"),
        fix="" if large else "docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory",
    )  # fmt: skip
