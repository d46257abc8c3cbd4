"""What `rootrank-shipper check` finds out: sources, Kafka, topics, clock."""

import shutil
import time
from pathlib import Path
from typing import Any, Final

from kafka import KafkaProducer
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from msgspec import Struct

from schemas.kafka_access import too_open
from schemas.records import ClockReading, SourceProgress
from schemas.topics import CLOCK_BEACON, RAW
from shippers.checked_sources import KernelLog, OffSource, ReadSource, kernel_log, off_sources, read_sources
from shippers.claim import holder
from shippers.clock import Clock, make_clock
from shippers.config import Config, KafkaSettings, Profile, access_of
from shippers.kmsg_marks import KMSG
from shippers.places import Places
from shippers.problems import (
    Problem,
    kernel_problems,
    marker_problems,
    problem_of,
    source_problems,
    width_problems,
)
from shippers.reader import Reader
from shippers.saved import saved_positions
from shippers.signing import cannot_sign, readable_by_all
from shippers.sink import SinkUnavailableError, admin_client, connect
from shippers.spool_format import later_format
from shippers.time_daemon import ask_chrony, ask_kernel
from shippers.time_namespace import offsets_ns

STAMPED_BY_BROKER: Final = "LogAppendTime"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_LOOK_S: Final = 5.0  # how long sources that may hang are waited for
_UNSEEN: Final = ("not looked at yet", "not read yet", "journalctl was just started")


class KafkaState(Struct, frozen=True, kw_only=True):
    """Whether Kafka answers, and which topics that the shipper writes to are missing.

    `beacon_timestamp_type`: who stamps clock beacons; None where they are off or Kafka does not tell. `beacon_brokers`:
    how many brokers a node's clock is compared with.
    """

    bootstrap: str
    answers: bool
    problem: str | None = None
    missing_topics: list[str] = []
    beacon_timestamp_type: str | None = None
    beacon_brokers: int | None = None

    @property
    def measures_clocks(self) -> bool:
        """Whether beacons of this node come back with the time of a broker."""
        return bool(self.beacon_brokers) and self.beacon_timestamp_type in (None, STAMPED_BY_BROKER)


class ClockState(Struct, frozen=True, kw_only=True):
    """The clocks now. `is_synchronised` and `max_error_ns` are the kernel's own opinion of the wall clock.

    `source` is who bounds the wall clock's error, by `bound_ns`: settings, chrony, kernel, or none.
    `namespace_offset_ns`: what this container's clocks are ahead of the host's, by clock; already taken off `reading`.
    """

    boot_id: str
    reading: ClockReading
    is_static: bool
    is_synchronised: bool | None = None
    max_error_ns: int | None = None
    source: str = "none"
    bound_ns: int | None = None
    stratum: int | None = None
    server: str | None = None
    namespace_offset_ns: dict[str, int] = {}


class SpoolState(Struct, frozen=True, kw_only=True):
    """The folder where lines wait for Kafka. `agent_pid`: the agent that has it now; None where none runs."""

    dir: str
    used_bytes: int
    max_bytes: int
    free_bytes: int | None = None
    agent_pid: int | None = None
    problem: str | None = None


class Report(Struct, frozen=True, kw_only=True):
    """All that `check` found. `sources` are all files one by one, `read` the same by setting."""

    cluster: str
    reporter: str
    machine_id: str
    run: str
    profile: Profile
    read: list[ReadSource]
    not_read: list[OffSource]
    kernel_log: KernelLog | None = None
    sources: list[SourceProgress]
    kafka: KafkaState
    clock: ClockState
    sends_beacons: bool
    jobs_dir: str = ""
    spool: SpoolState
    problems: list[Problem] = []


def inspect(config: Config) -> Report:
    """Look at everything once. Reads no lines and writes nothing; what a running shipper has read is not to read."""
    clock = make_clock(config)
    sources = _look(config, clock)
    read = read_sources(config, sources)
    kernel = kernel_log(config, read)
    kafka = _kafka(config)
    clock_state = clock_state_of(config, clock)
    spool = spool_state(config)
    problems = [
        *_kafka_problems(kafka), *_secret_problems(config), *_spool_problems(spool), *far_spool_problems(config),
        *source_problems(read), *kernel_problems(kernel, read), *marker_problems(config, KMSG),
        *clock_problems(clock_state, is_measured=kafka.measures_clocks),
    ]  # fmt: skip
    return Report(
        cluster=config.cluster, reporter=config.reporter, machine_id=config.machine_id, run=config.run,
        profile=config.profile, read=read, kernel_log=kernel, not_read=off_sources(config), sources=sources,
        kafka=kafka, clock=clock_state, sends_beacons=_sends_beacons(config), jobs_dir=config.jobs.dir,
        spool=spool, problems=problems,
    )  # fmt: skip


def _look(config: Config, clock: Clock) -> list[SourceProgress]:
    """The state of every source; what is looked at by a thread of its own is waited for."""
    reader = Reader(config, clock, saved_positions(Path(config.spool.dir)), may_hang=True)
    end_s = time.monotonic() + _LOOK_S
    try:
        if reader.control is not None:
            return reader.control.probe()
        while True:
            reader.look(clock.moment())
            found = reader.source_progress()
            if time.monotonic() > end_s or not any(each.reason in _UNSEEN for each in found):
                return found
            time.sleep(0.05)
    finally:
        reader.close()


def clock_state_of(config: Config, clock: Clock) -> ClockState:
    """The clocks now, and who says how wrong the wall clock may be."""
    reading = clock.read()
    claim = config.clock.claim
    named = ("settings", claim.bound_ns) if claim is not None else ("none", None)
    if config.clock.static is not None:
        return ClockState(boot_id=clock.boot_id, reading=reading, is_static=True, source=named[0], bound_ns=named[1])
    kernel, chrony = ask_kernel(), ask_chrony()
    if claim is None and chrony is not None:
        named = ("chrony", chrony.bound_ns)
    elif claim is None and kernel is not None and kernel.bound_ns is not None:
        named = ("kernel", kernel.bound_ns)
    names = {time.CLOCK_MONOTONIC: "monotonic", time.CLOCK_MONOTONIC_RAW: "raw", time.CLOCK_BOOTTIME: "boottime"}
    return ClockState(
        boot_id=clock.boot_id, reading=reading, is_static=False, source=named[0], bound_ns=named[1],
        # chrony tells the kernel that the clock is synchronised only with `rtcsync`.
        is_synchronised=True if chrony is not None else kernel.is_synchronised if kernel else None,
        max_error_ns=kernel.max_error_ns if kernel else None,
        stratum=chrony.stratum if chrony else None, server=chrony.source if chrony else None,
        namespace_offset_ns={names[each]: offset for each, offset in (offsets_ns() or {}).items()},
    )  # fmt: skip


def clock_problems(clock: ClockState, *, is_measured: bool) -> list[Problem]:
    """What is wrong with the clocks. Beacons measure a wall clock that nobody sets."""
    problems = width_problems(clock.reading.width_ns)
    if not clock.is_static and clock.bound_ns is None and not is_measured:
        unset = "is not synchronised" if clock.is_synchronised is False else "has an error that nothing bounds"
        what = f"the wall clock {unset}, and no beacons measure it"
        problems.append(
            Problem(what=what, do="let beacons work ([clock] beacon = true, and Kafka must answer) or start chrony")
        )
    return problems


def _kafka_problems(kafka: KafkaState) -> list[Problem]:
    problems = []
    if kafka.problem:
        otherwise = "check [kafka] in the settings and whether Kafka runs; lines wait in the spool until it answers"
        problems.append(problem_of(kafka.problem, otherwise))
    for name in kafka.missing_topics:
        do = "start a worker (it creates all topics), or create it by hand; lines wait in the spool until then"
        problems.append(Problem(what=f"topic {name} is missing", do=do))
    if kafka.beacon_timestamp_type not in (None, STAMPED_BY_BROKER):
        what = f"topic {CLOCK_BEACON.name} has {_TIMESTAMP_TYPE}={kafka.beacon_timestamp_type}, so no clock is measured"
        do = (
            f"set it: kafka-configs.sh --bootstrap-server {kafka.bootstrap} --alter --entity-type topics "
            f"--entity-name {CLOCK_BEACON.name} --add-config {_TIMESTAMP_TYPE}={STAMPED_BY_BROKER}"
        )
        problems.append(Problem(what=what, do=do))
    if kafka.beacon_brokers == 0:
        what = f"topic {CLOCK_BEACON.name} has no leader now, so no clock is measured"
        problems.append(Problem(what=what, do="look at the brokers that hold it"))
    return problems


def _spool_problems(spool: SpoolState) -> list[Problem]:
    later = later_format(Path(spool.dir))
    if later is not None:
        return [problem_of(later, "run the later version until all is sent")]
    if spool.problem is None:
        return []
    do = "give the agent's user the folder, or set [spool] dir to another one"
    return [Problem(what=f"the spool folder {spool.dir} cannot be written: {spool.problem}", do=do)]


def far_spool_problems(config: Config) -> list[Problem]:
    """Of a spool that something else than this machine may hold up."""
    places = Places()
    may_hang = places.may_hang(str(Path.cwd() / config.spool.dir))
    places.close()
    if not may_hang:
        return []
    what = f"the spool folder {config.spool.dir} is not on a disk of this machine; the agent hangs when that hangs"
    return [Problem(what=what, do="set [spool] dir to a folder on a local disk")]


def _secret_problems(config: Config) -> list[Problem]:
    """Secrets that others can read, and a key that cannot sign. Each text says behind a semicolon what to do."""
    said = [*too_open(access_of(config.kafka)), *(cannot_sign(config.signing) or readable_by_all(config.signing))]
    return [problem_of(text, "correct [signing]") for text in said]


def _sends_beacons(config: Config) -> bool:
    return config.clock.beacon and config.clock.static is None


def _kafka(config: Config) -> KafkaState:
    bootstrap = config.kafka.bootstrap
    try:
        producer = connect(config.kafka)
    except SinkUnavailableError as error:
        return KafkaState(bootstrap=bootstrap, answers=False, problem=str(error))
    try:
        missing = [] if _has(producer, RAW.name) else [RAW.name]
        stamped_by = brokers = None
        if _sends_beacons(config):
            if _has(producer, CLOCK_BEACON.name):
                stamped_by, brokers = beacon_topic(config.kafka)
            else:
                missing.append(CLOCK_BEACON.name)
    finally:
        producer.close(timeout=0.5)
    return KafkaState(
        bootstrap=bootstrap, answers=True, missing_topics=missing, beacon_timestamp_type=stamped_by,
        beacon_brokers=brokers,
    )  # fmt: skip


def _has(producer: KafkaProducer, topic: str) -> bool:
    try:
        producer.partitions_for(topic)
    except kafka_errors.KafkaError:
        return False
    return True


def beacon_topic(settings: KafkaSettings, topic: str = CLOCK_BEACON.name) -> tuple[str | None, int | None]:
    """Who stamps the topic's messages, and how many brokers lead a partition of it; None where Kafka does not tell."""
    try:
        admin = admin_client(settings)
    except SinkUnavailableError:
        return None, None
    try:
        leaders = {
            partition["leader_id"]
            for described in admin.describe_topics([topic])
            for partition in described["partitions"]
            if partition["leader_id"] >= 0
        }
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {_TIMESTAMP_TYPE: None})
        found: dict[str, Any] = admin.describe_configs([asked], config_filter="all")["topic"][topic]
    except (kafka_errors.KafkaError, KeyError):
        return None, None
    finally:
        admin.close()
    return found.get(_TIMESTAMP_TYPE, {}).get("value"), len(leaders)


def spool_state(config: Config) -> SpoolState:
    """The spool folder as it is; it need not be there yet."""
    folder = Path(config.spool.dir)
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    problem = None
    try:
        probe = existing / f".rootrank-check-{time.monotonic_ns()}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        problem = error.strerror or str(error)
    try:
        free_bytes = shutil.disk_usage(existing).free
        used_bytes = sum(each.stat().st_size for each in folder.glob("*.spool"))
    except OSError:  # the agent removes what Kafka has, or the folder may not be looked into
        free_bytes, used_bytes = None, 0
    return SpoolState(
        dir=config.spool.dir, used_bytes=used_bytes, max_bytes=config.spool.max_bytes, free_bytes=free_bytes,
        agent_pid=holder(folder), problem=problem,
    )  # fmt: skip
