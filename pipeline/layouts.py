"""What the path of a log says: node, rank, job and attempt, by how launchers and schedulers name their files."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

KERNEL_NAMES: Final = frozenset(("kern", "kernel", "dmesg", "syslog", "messages", "kmsg", "journal"))
# Words of file names that say what a file is, not whose it is.
_NOT_NAMES: Final = KERNEL_NAMES | frozenset(
    (
        "log", "logs", "txt", "out", "err", "stdout", "stderr", "job", "slurm", "train", "training", "console",
        "output", "rank", "gz", "xz", "zst", "nccl", "debug", "alerts", "talos", "fabricmanager", "fm", "agent", "json",
        "node", "worker", "retry", "torchrun", "launcher", "trainer", "core", "empty", "elastic", "main", "nohup",
        "run", "script", "system", "host", "var", "pods", "containers", "tmp", "ray", "session", "latest", "error",
        "none", "default", "slurmd", "slurmctld", "slurmstepd", "kubelet", "containerd", "dockerd", "dcgm",
        "journalctl", "dump", "dumps", "flight", "recorder", "fr", "trace", "traces",
        "nvidia", "smi", "ibstat", "ibstatus", "dcgmi", "ipmitool", "stat", "srun",
    )
)  # fmt: skip
# Folders that hold files of anybody.
_PLACES: Final = frozenset(
    (
        "docker", "k8s", "kubernetes", "lib", "home", "mnt", "data", "opt", "user", "users", "shared", "scratch",
        "workspace", "results", "outputs", "experiments", "artifacts", "archive", "backup", "raw", "current",
        "checkpoint", "checkpoints", "ckpt", "ranks", "nodes", "hosts", "jobs", "cluster", "slurm", "bmc", "ipmi", "ib",
        "nvidia", "pytorch", "torch", "lightning_logs", "wandb", "tensorboard",
    )
)  # fmt: skip
# Numbers, ranks, attempts, dates and the ids of containers are no hosts; a short GPU number is one only where a line
# says so.
_NOT_A_HOST: Final = re.compile(
    r"(?:(?:attempt|rank|part|restart|default|local|epoch|step|train|job|version)[_.-]?)?\d*(?:_\d*)?"
    r"|(?:19|20)\d\d[-_.]?(?:0\d|1[0-2])[-_.]?[0-3]\d(?:[-_.t]?[0-2]\d[-_.:]?[0-5]\d(?:[-_.:]?[0-5]\d)?z?)?"
    r"|[\da-f]{20,64}|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}"
)
_GPU_NUMBER: Final = re.compile(r"gpu[_-]?\d")

_HOST: Final = r"(?P<node>[A-Za-z](?:[\w-]*\w)?(?:\.[\w.-]*[A-Za-z][\w-]*)?)"
# A number behind a name that has one of its own is not a part of it.
_NUMBERED_HOST: Final = r"(?P<node>[A-Za-z][\w-]*\d[A-Za-z]*(?:\.[\w.-]*[A-Za-z][\w-]*)?)"
_SLURM_NAME: Final = r"(?:[A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*[.-])?(?P<job>\d{4,12})[.-]"
# The whole end of a path, the first that fits counts. What stands before it may still name a node.
_LAYOUTS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # torchrun --log-dir: RUN_xxxxxxxx/attempt_0/3/stderr.log; the number is the local rank.
        r"(?:[\w.-]*_[a-z\d_]{8}/)?attempt_(?P<attempt>\d{1,4})/(?P<local_rank>\d{1,4})/(?:stdout|stderr|error)\.(?:log|json)",
        # Kubernetes: /var/log/pods/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log
        r"(?:var/log/)?(?:pods/)?[a-z\d-]+_(?P<pod>[a-z\d][a-z\d.-]*)_[\da-f-]{32,36}/[a-z\d-]+/\d{1,4}\.log(?:\.\d{8}-\d{6})?",
        # /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log
        r"(?:var/log/)?(?:containers/)?(?P<pod>[a-z\d][a-z\d.-]*)_[a-z\d-]+_[a-z\d-]+-[\da-f]{64}\.log",
        # mpirun --output-filename: DIR/1/rank.3/stderr
        r"(?:[\w@-]+/)?rank\.(?P<rank>\d{1,7})/(?:stdout|stderr|stddiag)",
        # submitit: JOB_TASK_log.out in a folder of the job
        r"(?:\d{3,12}(?:_\d{1,6})?/)?(?P<job>\d{3,12}(?:_\d{1,6})?)_(?P<task>\d{1,6})_log\.(?:out|err)",
        # Slurm: slurm-%j.out, slurm-%A_%a.out, job.%j.%t.out, %x-%j-%N-%t.out, %j-%N.out
        r"slurm[._-](?P<job>\d{2,12}(?:_\d{1,6})?)(?:[._-](?P<task>\d{1,6}))?\.(?:out|err|log|txt)",
        r"job[._-](?P<job>\d{3,12}(?:_\d{1,6})?)(?:[._-](?P<task>\d{1,6}))?(?:[._-](?:out|err|log|txt|stdout|stderr))+",
        rf"{_SLURM_NAME}{_NUMBERED_HOST}[.-](?P<task>\d{{1,6}})\.(?:out|err|log|txt)",
        rf"{_SLURM_NAME}{_HOST}\.(?:out|err|log|txt)",
        # PyTorch's flight recorder: nccl_trace_rank_3; some put the host before the rank
        rf"(?:nccl|comm_lib)_trace_rank_(?:{_HOST}_)?(?P<rank>\d{{1,7}})(?:\.(?:pkl|pickle|bin|json))?",
        # NCCL_DEBUG_FILE=nccl.%h.%p.log
        rf"nccl[._-](?:debug[._-])?(?!debug){_HOST}[._-](?P<pid>\d{{2,10}})(?:\.(?:log|txt|out))?",
        # Ray: worker-ID-JOB-PID.out, python-core-worker-ID_PID.log
        r"(?:session_[\w-]+/)?(?:logs/)?worker-[\da-f]{20,64}-[\da-f]{8}-(?P<pid>\d{1,10})\.(?:out|err)",
        r"(?:session_[\w-]+/)?(?:logs/)?python-core-(?:worker|driver)-[\da-f]{20,64}_(?P<pid>\d{1,10})\.log",
        r"(?:session_[\w-]+/)?(?:logs/)?(?:raylet|gcs_server|monitor|dashboard|dashboard_agent|log_monitor)\.(?:out|err|log)",
        # NeMo: nemo_log_globalrank-3_localrank-3.txt
        r"[\w-]*globalrank-(?P<rank>\d{1,7})_localrank-(?P<local_rank>\d{1,4})\.(?:txt|log)",
        # kubectl logs POD > POD.log: what job controllers call their pods
        r"(?P<pod>[a-z\d](?:[a-z\d-]*[a-z\d])?-(?:master|worker|launcher|chief|evaluator|head|ps|trainer)-\d{1,4})(?:\.(?:log|txt|out))",
    )
)
# A folder of one job, or of one task of an array of jobs.
_JOB_FOLDER: Final = re.compile(
    r"(?:^|/)(?:(?:job|slurm)[._-]|(?!(?:19|20)\d\d(?:\d{4})?/))(?P<job>\d{4,12}(?:_\d{1,6})?)(?=/)"
)
_ATTEMPT: Final = re.compile(r"(?:^|/)attempt[_-](\d{1,4})(?=/)")
_RANK: Final = re.compile(r"(?:^|(?<!local)[._/-])(?:global)?rank[_-]?(\d{1,7})(?=[._/-]|$)")
_LOCAL_RANK: Final = re.compile(r"(?:^|[._/-])local[_-]?rank[_-]?(\d{1,4})(?=[._/-]|$)")


class Layout(Struct, frozen=True, kw_only=True):
    """What a path says. `task` is a rank where one task is one rank. `rest`: the part that may still name a node."""

    node: str | None = None
    pod: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    pid: int | None = None
    attempt: int | None = None
    job_id: str | None = None
    rest: str = ""


def layout_of(name: str) -> Layout:
    """What the path of a log, relative to the folder that was given, says."""
    plain = _without_compression(name)
    lower = plain.lower()
    rank, local_rank, attempt = (pattern.search(lower) for pattern in (_RANK, _LOCAL_RANK, _ATTEMPT))
    groups, rest = _named(plain)
    job = groups.get("job") or (found["job"] if (found := _JOB_FOLDER.search(plain)) else None)

    def number(group: str, found: re.Match[str] | None = None) -> int | None:
        value = groups.get(group)
        return int(value) if value else int(found[1]) if found else None

    return Layout(
        node=groups.get("node"), pod=groups.get("pod"), local_rank=number("local_rank", local_rank),
        rank=number("rank", rank), task=number("task"), pid=number("pid"),
        attempt=number("attempt", attempt), job_id=job, rest=rest,
    )  # fmt: skip


def _named(name: str) -> tuple[dict[str, str | None], str]:
    """The groups of the layout that the end of a path has, and what stands before it."""
    starts = [0, *(at + 1 for at, character in enumerate(name) if character == "/")]
    for layout in _LAYOUTS:
        for start in starts:
            found = layout.fullmatch(name, start)
            # `cn-0418.torchrun.out` is no job of a node that is called `torchrun`.
            if found is not None and not is_tool(found.groupdict().get("node") or "-"):
                return found.groupdict(), name[:start]
    return {}, name


def _without_compression(name: str) -> str:
    for ending in (".gz", ".xz", ".zst"):
        name = name.removesuffix(ending)
    return name


def words_of(name: str) -> set[str]:
    """The words of a path."""
    return set(re.split(r"[._/-]", name.lower()))


def possible_hosts(path: str) -> Iterator[str]:
    """All words of a path that `host_in` may take for a host."""
    *folders, file = path.split("/")
    for piece in (*folders, *file.split(".")):
        yield from _candidates(piece)


def is_tool(name: str) -> bool:
    """Whether all words of a name say what a file or a line is of, and not whose: `nvidia-smi`."""
    return all(word in _NOT_NAMES for word in re.split(r"[-_.]", name.lower()))


def host_in(path: str, said: set[str]) -> str | None:
    """A host name in a path: one that some line mentions, else a folder that reads like one, else such a file name.

    Of what lines mention `said` needs to have only what is among the `possible_hosts` of the path.
    """
    *folders, file = path.split("/")
    pieces = [*(candidates for folder in reversed(folders) for candidates in (_candidates(folder),))]
    own = [_candidates(piece) for piece in file.split(".")]
    for candidates in (*own, *pieces):
        for candidate in candidates:
            if candidate in said and _reads_like_host(candidate) and not is_tool(candidate):
                return candidate
    for candidates in pieces:
        if candidates and not _only_if_said(candidates[0]):
            return candidates[0]
    is_kernel = bool(words_of(file) & KERNEL_NAMES)
    for candidates in own:
        if candidates and (is_kernel or _reads_like_host(candidates[0])) and not _only_if_said(candidates[0]):
            return candidates[0]
    return None


def _reads_like_host(name: str) -> bool:
    """Whether a word by itself may be a host: it has a number or parts."""
    return "-" in name or any(character.isdigit() for character in name)


def _only_if_said(name: str) -> bool:
    return bool(_GPU_NUMBER.fullmatch(name.lower()))


def _candidates(piece: str) -> list[str]:
    """Host names that a piece of a path may hold, the barest first."""
    if piece.lower() in _PLACES or _NOT_A_HOST.fullmatch(piece.lower()):
        return []
    words = re.split(r"[-_]", piece)
    kept, first = words, 0
    while kept and (kept[0].lower() in _NOT_NAMES or kept[0].lower().startswith("torchelastic")):
        first += len(kept[0]) + 1
        kept = kept[1:]
    while kept and kept[-1].lower() in _NOT_NAMES:
        kept = kept[:-1]
    # Words stand a character apart.
    bare = piece[first : first + len("-".join(kept))]
    if not bare or _NOT_A_HOST.fullmatch(bare.lower()):
        return [piece] if len(words) > 1 and kept and words[0].lower() == "node" else []
    if words[0].lower() == "node" and len(bare) < 3:
        return [piece]
    return [bare] if bare == piece else [bare, piece]
