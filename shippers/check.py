"""What `rootrank-shipper check` finds out: sources, Kafka, topics, clock."""

import ctypes
import time
from pathlib import Path
from typing import Final

from kafka import errors as kafka_errors
from msgspec import Struct

from schemas.records import ClockReading, SourceProgress
from schemas.topics import CLOCK_BEACON, RAW
from shippers.clock import make_clock
from shippers.config import Config
from shippers.pieces import Moment
from shippers.reader import Reader
from shippers.sink import SinkUnavailableError, connect

_TIME_ERROR: Final = 5
_MAXERROR_AT: Final = 24  # bytes into struct timex on 64-bit Linux
_TIMEX_BYTES: Final = 256


class KafkaState(Struct, frozen=True, kw_only=True):
    """Whether Kafka answers, and which topics that the shipper writes to are missing."""

    bootstrap: str
    answers: bool
    problem: str | None = None
    missing_topics: list[str] = []


class ClockState(Struct, frozen=True, kw_only=True):
    """The clocks now. `is_synchronised` and `max_error_ns` are the kernel's own opinion of the wall clock."""

    boot_id: str
    reading: ClockReading
    is_static: bool
    is_synchronised: bool | None = None
    max_error_ns: int | None = None


class Report(Struct, frozen=True, kw_only=True):
    """All that `check` found."""

    cluster: str
    reporter: str
    machine_id: str
    run: str
    sources: list[SourceProgress]
    kafka: KafkaState
    clock: ClockState
    spool_dir: str
    spool_problem: str | None = None
    problems: list[str] = []


def inspect(config: Config) -> Report:
    """Look at everything once. Reads no lines and writes nothing."""
    clock = make_clock(config)
    reader = Reader(config, clock, {})
    moment = Moment(observed_ns=clock.observed_ns(), mono_ns=time.monotonic_ns(), wall_ns=time.time_ns())
    try:
        reader.look(moment)
        sources = reader.source_progress()
    finally:
        reader.close()
    kafka = _kafka(config)
    clock_state = _clock(config, clock.boot_id, clock.read())
    spool_problem = _spool_problem(Path(config.spool.dir))
    problems = [f"source {each.source} is {each.state}: {each.reason}" for each in sources if each.state != "on"]
    if kafka.problem:
        problems.append(kafka.problem)
    problems.extend(f"topic {name} is missing; create the topics first" for name in kafka.missing_topics)
    if clock_state.is_synchronised is False:
        problems.append("the wall clock is not synchronised; start chrony or another time service")
    if spool_problem:
        problems.append(spool_problem)
    return Report(
        cluster=config.cluster, reporter=config.reporter, machine_id=config.machine_id, run=config.run,
        sources=sources, kafka=kafka, clock=clock_state, spool_dir=config.spool.dir, spool_problem=spool_problem,
        problems=problems,
    )  # fmt: skip


def _kafka(config: Config) -> KafkaState:
    bootstrap = config.kafka.bootstrap
    try:
        producer = connect(config.kafka)
    except SinkUnavailableError as error:
        return KafkaState(bootstrap=bootstrap, answers=False, problem=str(error))
    wanted = [RAW.name]
    if config.clock.beacon and config.clock.static is None:
        wanted.append(CLOCK_BEACON.name)
    missing: list[str] = []
    try:
        for name in wanted:
            try:
                producer.partitions_for(name)
            except kafka_errors.KafkaError:
                missing.append(name)
    finally:
        producer.close(timeout=0.5)
    return KafkaState(bootstrap=bootstrap, answers=True, missing_topics=missing)


def _clock(config: Config, boot_id: str, reading: ClockReading) -> ClockState:
    if config.clock.static is not None:
        return ClockState(boot_id=boot_id, reading=reading, is_static=True)
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = ctypes.CDLL(None).adjtimex(timex)
    if state < 0:
        return ClockState(boot_id=boot_id, reading=reading, is_static=False)
    max_error_us = int.from_bytes(timex.raw[_MAXERROR_AT : _MAXERROR_AT + 8], "little", signed=True)
    return ClockState(
        boot_id=boot_id, reading=reading, is_static=False, is_synchronised=state != _TIME_ERROR,
        max_error_ns=max_error_us * 1000,
    )  # fmt: skip


def _spool_problem(folder: Path) -> str | None:
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    try:
        probe = existing / f".rootrank-check-{time.monotonic_ns()}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        return f"spool folder {folder} cannot be written: {error.strerror}; set [spool] dir"
    return None
