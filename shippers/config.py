"""The settings of the node agent: one TOML file, environment overrides, every key with a default."""

import difflib
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct

from schemas.kafka_access import Access, incomplete
from schemas.lines import MAX_LINE_BYTES
from schemas.names import is_utf8
from schemas.records import ClockClaim, ClockReading
from schemas.small_file import read_small
from schemas.vocabulary import Run
from shippers.attributes import problem_in
from shippers.control.settings import ControlSettings
from shippers.redact_patterns import Pattern, PatternError, load_rules

ENV_PREFIX: Final = "ROOTRANK_SHIPPER__"
MIB: Final = 1024 * 1024
Profile = Literal["none", "minimal", "gpu", "full"]
TEN_YEARS_NS: Final = 3652 * 86400 * 10**9
_NAME_CHARACTERS: Final = 253  # as many as a name of DNS has
_INT64: Final = (-(2**63), 2**63 - 1)
# A byte may take six on the wire (\u0000), and a message may be 8 MiB: neither a line nor a batch may pass 1 MiB.
MAX_BATCH_BYTES: Final = MIB
# Units of which every line is read: those that speak of GPUs, fabric, network, disks, scheduling and time.
WHOLE_UNITS: Final = (
    "init.scope", "systemd-*", "nvidia-*", "nv-*", "dcgm*", "slurm*", "munge*", "kubelet*", "containerd*", "crio*",
    "docker*", "k3s*", "rke2*", "NetworkManager*", "networking*", "openibd*", "opensm*", "ibacm*", "rdma*", "lldpd*",
    "frr*", "chronyd*", "chrony*", "ntp*", "ptp4l*", "phc2sys*", "rasdaemon*", "mcelog*", "edac*", "smartd*", "ipmi*",
    "nvme*", "multipathd*", "iscsid*", "mdmonitor*", "lustre*", "lnet*", "gpfs*", "mmfs*", "beegfs*", "weka*", "nfs*",
    "rpc*", "autofs*", "irqbalance*", "earlyoom*", "kdump*", "node-problem-detector*",
)  # fmt: skip
_AGE_UNITS_NS: Final = {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


class ConfigError(ValueError):
    """The settings cannot be used. The text names the file and the key."""


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is an error."""


class BatchSettings(_Table, frozen=True, kw_only=True):
    """When a batch is closed. `linger_ms` is how often sources are looked at where lines come and go."""

    lines: int = 1000
    bytes: int = 512 * 1024
    linger_ms: int = 50


class KafkaSettings(_Table, frozen=True, kw_only=True):
    """Where Kafka is and how to log in. Secrets are read from files."""

    bootstrap: str = "localhost:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: str = ""
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    ssl_password_file: str = ""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    sasl_username: str = ""
    sasl_password_file: str = ""
    compression: Literal["none", "gzip", "zstd"] = "zstd"


class SpoolSettings(_Table, frozen=True, kw_only=True):
    """The disk spool: where, and how large and old before the oldest batches are dropped (and counted)."""

    dir: str = "/var/lib/rootrank-shipper"
    max_bytes: int = 1024 * MIB
    max_age_h: int = 168


class RedactSettings(_Table, frozen=True, kw_only=True):
    """What is taken out of lines before they reach the disk: kinds that are not, patterns beside the built-in ones."""

    enabled: bool = True
    off: tuple[str, ...] = ()
    fingerprint: bool = False
    fingerprint_key_file: str = ""
    pattern: tuple[Pattern, ...] = ()


class SigningSettings(_Table, frozen=True, kw_only=True):
    """The key that signs what is shipped, if any; `key_id` where it is not called by its fingerprint."""

    key_file: str = ""
    key_id: str = ""


class ClockSettings(_Table, frozen=True, kw_only=True):
    """The clock of this node and what is claimed of it. With `static` no host clock enters a record (replay);
    `record` is a file with what was recorded of it before (`schemas.clock_notes`), which is sent first.
    """

    claim: ClockClaim | None = None
    static: ClockReading | None = None
    boot_id: str = ""
    beacon: bool = True
    beacon_interval_ms: int = 1000
    kmsg_marker: bool = False
    record: str = ""


class CaptureSettings(_Table, frozen=True, kw_only=True):
    """Evidence that is taken before it is gone (`shippers.capture`, the source `capture`), and its bounds.

    `marks`: a glob of files that ranks write their marks of progress into; one that grew and then does not for
    `silent_s` begins a capture. `ship`: the text goes along as lines, else it stays in the spool folder alone.
    `request_keys`: files with public keys (Ed25519, PEM); requests on topic `capture.request` that one of them signed
    are followed. Without one nobody is listened to.
    """

    marks: str = ""
    silent_s: float = 300.0
    per_hour: int = 4
    timeout_s: float = 30.0
    max_bytes: int = MIB
    max_lines: int = 5000
    folder_bytes: int = 64 * MIB
    ship: bool = True
    request_keys: tuple[str, ...] = ()


class NvmlSettings(_Table, frozen=True, kw_only=True):
    """What NVML is asked, and where it is. In a container `driver_root` is where the host's driver is mounted, and
    `sys_root` and `proc_root` where its /sys and /proc are. `job_map`: the folder given to dcgm-exporter.
    """

    driver_root: str = "/"
    interval_s: int = 10
    deadline_s: int = 20
    sys_root: str = "/sys"
    proc_root: str = "/proc"
    job_map: str = ""


class Passing(_Table, frozen=True, kw_only=True):
    """What of a source's lines goes on (`shippers.gate`). A limit of 0 is none."""

    select: Literal["all", "significant"] = "all"
    context_lines: int = 20
    heartbeat_s: float = 10.0
    max_lines_per_s: int = 5000
    max_bytes_per_s: int = 4 * MIB
    burst_s: float = 20.0


class JournalSettings(Passing, frozen=True, kw_only=True):
    """The journal. Of `units` all is read, of `units_out` nothing, of all others what `select` says.

    Names may have `*` and `?`. Without `directory` it is the journal of this machine.
    """

    select: Literal["all", "significant"] = "significant"
    units: tuple[str, ...] = WHOLE_UNITS
    units_out: tuple[str, ...] = ()
    start_at: str = ""
    journalctl: str = "journalctl"
    directory: str = ""
    namespace: str = ""


class SourceSettings(Passing, frozen=True, kw_only=True):
    """One thing to read. `name` is what lines call it; for a glob it is put before the file's own path."""

    name: str = ""
    kind: Literal["kernel", "application", "service"] = "application"
    type: Literal["file", "kmsg"] = "file"
    path: str = ""
    attributes: dict[str, str] = {}
    start_at: str = ""
    max_line_bytes: int = MAX_LINE_BYTES
    drop: Literal["oldest", "newest"] = "oldest"


class JobsSettings(_Table, frozen=True, kw_only=True):
    """The folder into which schedulers and training programs write (`shippers.jobs`), and how often processes are
    looked at (source `processes`).
    """

    dir: str = "/var/spool/rootrank"
    processes_every_s: float = 10.0


_KMSG: Final = (SourceSettings(name="kmsg", kind="kernel", type="kmsg", path="/dev/kmsg"),)


class Config(_Table, frozen=True, kw_only=True):
    """The whole file. `profile` says which built-in sources are read (`shippers.builtin`), `sources` switches single
    ones.

    `source` are the files and rings that are named one by one. With `control` it is the agent of the whole
    cluster, which reads the control plane and nothing of the host that it happens to run on.
    """

    cluster: str = "default"
    reporter: str = ""
    machine_id: str = ""
    run: Run = "live"
    run_id: str = ""
    start_at: str = "15m"
    end_file: str = ""
    profile: Profile = "minimal"
    sources: dict[str, bool] = {}
    batch: BatchSettings = BatchSettings()
    kafka: KafkaSettings = KafkaSettings()
    spool: SpoolSettings = SpoolSettings()
    clock: ClockSettings = ClockSettings()
    capture: CaptureSettings = CaptureSettings()
    nvml: NvmlSettings = NvmlSettings()
    journal: JournalSettings = JournalSettings()
    jobs: JobsSettings = JobsSettings()
    signing: SigningSettings = SigningSettings()
    redact: RedactSettings = RedactSettings()
    source: tuple[SourceSettings, ...] = _KMSG
    control: ControlSettings | None = None


class StartAt(Struct, frozen=True, kw_only=True):
    """Where reading begins at first sight. `age_ns`: only what is younger; None with `at_end` false: everything."""

    at_end: bool = False
    age_ns: int | None = None


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """The settings in `path` with overrides `ROOTRANK_SHIPPER__TABLE__KEY` applied. Raises ConfigError."""
    try:
        shape = tomllib.loads(read_small(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(
            f"{path}: not TOML for an agent: lists or tables are nested too deep; take them out"
        ) from None
    _refuse_unknown(Config, shape, str(path), "")
    _refuse_nul(shape, str(path), "")
    config = _convert(shape, str(path), strict=True)
    overrides = {name: value for name, value in environment.items() if name.startswith(ENV_PREFIX)}
    if overrides:
        _override(shape, overrides)
        config = _convert(shape, f"{path} with {', '.join(sorted(overrides))}", strict=False)
    return _completed(config, str(path))


def parse_start_at(text: str) -> StartAt:
    """`end`, `beginning`, or an age such as `15m`. Raises ConfigError."""
    if text == "end":
        return StartAt(at_end=True)
    if text == "beginning":
        return StartAt()
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and unit in _AGE_UNITS_NS:
        return StartAt(age_ns=int(number) * _AGE_UNITS_NS[unit])
    raise ConfigError(f'start_at is "{text}"; write "end", "beginning" or an age such as "15m" (s, m, h, d)')


def _convert(shape: dict[str, Any], where: str, *, strict: bool) -> Config:
    try:
        return msgspec.convert(shape, Config, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_in_words(str(error))}") from None


def _in_words(said: str) -> str:
    """What msgspec says of a value, with the key as it stands in the file, and the words that may stand there."""
    what, _, path = said.partition(" - at `$.")
    key = path.rstrip("`")
    if not key:
        return said
    kind: Any = Config
    for name in re.sub(r"\[[^]]*\]", "", key).split("."):
        table = _table_of(kind)
        fields = msgspec.structs.fields(table) if table else ()
        kind = next((field.type for field in fields if field.name == name), None)
    words = [f'"{each}"' for each in get_args(kind) if isinstance(each, str) and each]
    return f"{key}: {what}; write {', '.join(words)}" if words else f"{key}: {what}"


def _table_of(kind: Any) -> type[Struct] | None:
    """The struct of a table, of one that may be left out, or of a list of tables."""
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else _struct_in(kind)


def _refuse_unknown(table: type[Struct], shape: dict[str, Any], where: str, prefix: str) -> None:
    known = {field.name: field.type for field in msgspec.structs.fields(table)}
    for key, value in shape.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}: unknown key {prefix}{key}; {hint}")
        inner = SourceSettings if key == "source" else _struct_in(known[key])
        if inner is not None:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, dict):
                    _refuse_unknown(inner, item, where, f"{prefix}{key}.")


def _refuse_nul(value: object, where: str, key: str) -> None:
    """No name of a file, of a machine or in Kafka may hold one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_nul(inner, where, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            _refuse_nul(inner, where, key)
    elif isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{where}: {key} holds a NUL character; take it out")


def _struct_in(kind: Any) -> type[Struct] | None:
    """The struct in a field's type, which may be optional."""
    kinds = get_args(kind) or (kind,)
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, Struct)), None)


def _override(shape: dict[str, Any], overrides: Mapping[str, str]) -> None:
    for name, value in overrides.items():
        if not is_utf8(value):
            raise ConfigError(f"environment {name}: not UTF-8")
        *tables, key = name.removeprefix(ENV_PREFIX).lower().split("__")
        inner = shape
        for table in tables:
            inner = inner.setdefault(table, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{name}: {table} cannot be set from the environment; use the file")
        inner[key] = value
        _refuse_unknown(Config, shape, f"environment {name}", "")


def _completed(config: Config, where: str) -> Config:
    """With defaults that depend on the machine, and with what types cannot say checked."""
    if config.control is not None and not config.reporter:
        raise ConfigError(
            f'{where}: [control] needs reporter = "control" or another name that no node has: all agents of one '
            "control plane bear it, so that what two of them tell is known as one"
        )
    config = msgspec.structs.replace(
        config,
        reporter=config.reporter or socket.gethostname(),
        machine_id=config.machine_id or ("" if config.clock.static else _machine_id()),
        run_id=config.run_id or config.run,
    )
    try:
        config = _for_control(config)
        _check_values(config)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return config


def _for_control(config: Config) -> Config:
    """The agent of a cluster reads nothing of its host: its reporter is no machine, and may move to another one."""
    if config.control is None:
        return config
    if config.source not in ((), _KMSG):
        raise ConfigError("[control] and [[source]] in one file: files of this host are read by an agent of its own")
    if not 3.0 <= config.control.seat_s <= 600 or not 0.5 <= config.control.renew_s <= config.control.seat_s / 3:
        raise ConfigError("[control] seat_s must be 3 to 600, and renew_s 0.5 to a third of it")
    clock = msgspec.structs.replace(config.clock, beacon=False, kmsg_marker=False)
    return msgspec.structs.replace(config, source=(), profile="none", sources={}, clock=clock, machine_id="")


def access_of(settings: KafkaSettings) -> Access:
    """How to log in."""
    return Access(**{name: getattr(settings, name) for name in Access.__struct_fields__})


def _check_values(config: Config) -> None:
    _check_name("cluster", config.cluster)
    _check_name("reporter", config.reporter)
    parse_start_at(config.start_at)
    _within("batch.lines", config.batch.lines, 1, 5000)
    _within("batch.bytes", config.batch.bytes, 1024, MAX_BATCH_BYTES)
    _within("batch.linger_ms", config.batch.linger_ms, 1, 1000)
    _within("spool.max_bytes", config.spool.max_bytes, 16 * MAX_BATCH_BYTES, 2**50)
    _within("spool.max_age_h", config.spool.max_age_h, 1, 24 * 3652)
    _within("clock.beacon_interval_ms", config.clock.beacon_interval_ms, 100, 60_000)
    _within("nvml.interval_s", config.nvml.interval_s, 1, 3600)
    _within("nvml.deadline_s", config.nvml.deadline_s, 5, 600)
    if problem := incomplete(access_of(config.kafka)):
        raise ConfigError(f"[kafka] {problem}")
    _check_clock(config.clock)
    _check_capture(config.capture)
    _check_passing("of [journal]", config.journal)
    if config.journal.start_at:
        parse_start_at(config.journal.start_at)
    if not 1 <= config.jobs.processes_every_s <= 3600:
        raise ConfigError(f"jobs.processes_every_s is {config.jobs.processes_every_s}; it must be 1 to 3600")
    try:
        load_rules(config.redact.off, config.redact.pattern)
    except PatternError as error:
        raise ConfigError(str(error)) from None
    seen: set[str] = set()
    for source in config.source:
        _check_source(source)
        name = source.name or source.path
        if name in seen:
            raise ConfigError(f'two sources are called "{name}"; give each its own name')
        seen.add(name)
    if config.run == "replay" and config.clock.static is None:
        raise ConfigError(
            'run = "replay" needs [clock.static]: the clock of this host says nothing about recorded lines'
        )


def _check_clock(clock: ClockSettings) -> None:
    if clock.claim is not None:
        _within("clock.claim.offset_ns", clock.claim.offset_ns, -TEN_YEARS_NS, TEN_YEARS_NS)
        _within("clock.claim.bound_ns", clock.claim.bound_ns, 0, TEN_YEARS_NS)
        _within("clock.claim.others_bound_ns", clock.claim.others_bound_ns, 0, TEN_YEARS_NS)
    if clock.static is not None:
        for name in clock.static.__struct_fields__:
            _within(f"clock.static.{name}", getattr(clock.static, name), *_INT64)


def _check_capture(capture: CaptureSettings) -> None:
    _within("capture.per_hour", capture.per_hour, 0, 60)
    _within("capture.max_bytes", capture.max_bytes, 4096, 8 * MIB)
    _within("capture.max_lines", capture.max_lines, 1, 8000)
    _within("capture.folder_bytes", capture.folder_bytes, capture.max_bytes, 2**40)
    if not 1 <= capture.timeout_s <= 300:
        raise ConfigError(f"capture.timeout_s is {capture.timeout_s}; it must be 1 to 300")
    if not 1 <= capture.silent_s <= 86_400:
        raise ConfigError(f"capture.silent_s is {capture.silent_s}; it must be 1 to 86400")
    if capture.marks and not capture.marks.startswith("/"):
        raise ConfigError(f'capture.marks is "{capture.marks}"; it must be an absolute path or glob')


def _check_name(setting: str, name: str) -> None:
    """What stands in keys, tables and on pages."""
    if not name.isprintable() or len(name) > _NAME_CHARACTERS or not name.strip():
        raise ConfigError(f"{setting} must be 1 to {_NAME_CHARACTERS} printable characters")


def _check_source(source: SourceSettings) -> None:
    if not source.path:
        raise ConfigError(f'source "{source.name}" has no path')
    if source.start_at:
        parse_start_at(source.start_at)
    name = source.name or source.path
    _within(f'max_line_bytes of source "{name}"', source.max_line_bytes, 256, MAX_LINE_BYTES)
    _check_passing(f'of source "{name}"', source)
    if source.drop == "newest" and not source.name:
        raise ConfigError(f'source "{source.path}" drops its newest lines and has no name; give it one')
    problem = problem_in(source.kind, source.attributes)
    if problem is not None:
        raise ConfigError(f'attributes of source "{name}": {problem}')


def _check_passing(of: str, settings: Passing) -> None:
    _within(f"context_lines {of}", settings.context_lines, 1, 1000)
    _within(f"heartbeat_s {of}", settings.heartbeat_s, 1, 3600)
    _within(f"max_lines_per_s {of}", settings.max_lines_per_s, 0, 10**9)
    _within(f"max_bytes_per_s {of}", settings.max_bytes_per_s, 0, 10**12)
    _within(f"burst_s {of}", settings.burst_s, 1, 3600)


def _within(name: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}; it must be {low} to {high}")


def _machine_id() -> str:
    for path in (Path("/sys/class/dmi/id/product_uuid"), Path("/etc/machine-id")):
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if text:
            return text
    return ""
