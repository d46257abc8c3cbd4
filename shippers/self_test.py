"""`check --self-test`: one marked line through spool, Kafka, worker and ClickHouse, and at which of them it got stuck.

A running agent takes the mark from the spool folder. Where none runs, the test itself has the spool meanwhile and sends
what waits in it, the mark last; it reads no other source and sends no progress, so nobody takes it for an agent.
"""

import secrets
import time
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from schemas.topics import EVENTS, RAW, key_of
from shippers import builtin, claim, segment
from shippers.acked import read_acked
from shippers.claim import SpoolLockedError
from shippers.clickhouse import ClickHouse, ClickHouseError
from shippers.clock import make_clock
from shippers.config import Config, ConfigError
from shippers.probes.self_test import NAME, leave
from shippers.reader import Reader
from shippers.saying import say
from shippers.seen_in_kafka import SeenInKafka
from shippers.signing import Signer, load_signer
from shippers.sink import KafkaSink, RecordRefusedError, SinkUnavailableError
from shippers.spool import Spool
from shippers.writer import SpoolWriter

SPOOL, KAFKA, WORKER, CLICKHOUSE = "spool", "Kafka", "worker", "ClickHouse"
_PAUSE_S: Final = 0.1
_ASK_S: Final = 5.0
_TAKEN_S: Final = 3.0  # a batch that is in no file of the spool so long after was sent and removed


class Station(Struct, frozen=True, kw_only=True):
    """Whether the line came to one part; None where that cannot be told."""

    name: str
    reached: bool | None
    says: str
    after_s: float | None = None


class SelfTest(Struct, frozen=True, kw_only=True):
    """How far the marked line came. `do`: what to do where it got stuck."""

    token: str
    passed: bool
    stations: list[Station]
    stuck_at: str = ""
    do: str = ""


class SelfTestRun:
    """One mark on its way."""

    def __init__(self, config: Config, store: ClickHouse, wait_s: float) -> None:
        self._config = config
        self._store = store
        self._token = secrets.token_hex(8)
        self._began_s = time.monotonic()
        self._end_s = self._began_s + wait_s
        self._reached: dict[str, Station] = {}
        self._batch_seq: int | None = None
        self._trouble: dict[str, str] = {}

    def run(self) -> SelfTest:
        """Send the mark and wait until it is stored or the time is over."""
        seen = SeenInKafka(self._config.kafka, self._token.encode())
        try:
            if self._is_sent():
                self._wait(seen)
            return self._told()
        finally:
            seen.close()

    # --- sending --------------------------------------------------------------------------------------------------

    def _is_sent(self) -> bool:
        """Whether the mark is on its way to Kafka."""
        folder = Path(self._config.spool.dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mark = leave(folder, self._token)
        except OSError as error:
            self._trouble[SPOOL] = f"no mark can be left in {error.filename or folder}: {error.strerror}"
            return False
        if claim.holder(folder) is not None:
            return self._is_taken(mark)
        try:
            signer = load_signer(self._config.signing)
            spool = Spool(folder, self._config.spool.max_bytes, signer=signer)
        except SpoolLockedError:
            return self._is_taken(mark)
        except ConfigError as error:
            mark.unlink(missing_ok=True)
            self._trouble[SPOOL] = str(error)
            return False
        except OSError as error:
            mark.unlink(missing_ok=True)
            self._trouble[SPOOL] = f"{error.filename or folder}: {error.strerror}"
            return False
        try:
            return self._send(spool, signer)
        finally:
            spool.close()

    def _is_taken(self, mark: Path) -> bool:
        """Whether the running agent has taken the mark and put it into its spool."""
        taken_s: float | None = None
        while self._is_time_left():
            if not mark.exists():
                taken_s = taken_s or time.monotonic()
                if self._find_in_spool():
                    return True
                if time.monotonic() - taken_s > _TAKEN_S:
                    self._reach(SPOOL, "the running agent took the mark")
                    return True
            time.sleep(_PAUSE_S)
        mark.unlink(missing_ok=True)
        self._trouble[SPOOL] = "the running agent did not take the mark"
        return False

    def _send(self, spool: Spool, signer: Signer | None) -> bool:
        """Put the mark into the spool, and send all that waits there."""
        switches = {each.name: each.name == NAME for each in builtin.BUILT_IN}
        only = msgspec.structs.replace(self._config, source=(), sources=switches)
        clock = make_clock(only)
        reader = Reader(only, clock, {}, spool.next_line_seq, signer=signer)
        writer = SpoolWriter(spool, reader, say)
        for batch in reader.read_pass(clock.moment()):
            writer.put(batch)
        reader.close()
        if not writer.flush():
            self._trouble[SPOOL] = writer.full_reason or "the spool takes nothing"
            return False
        self._reach(SPOOL, f"written to {self._config.spool.dir} (no agent runs, the test sends by itself)")
        config = self._config
        sink = KafkaSink(config.kafka, key_of(config.run, config.run_id, config.cluster, config.reporter))
        try:
            return self._deliver(spool, sink)
        finally:
            sink.close()

    def _deliver(self, spool: Spool, sink: KafkaSink) -> bool:
        while (entry := spool.take(0)) is not None:
            while True:
                try:
                    pending = sink.send(entry.payload)
                    while not pending.wait(_PAUSE_S):
                        if not self._is_time_left():
                            self._trouble[KAFKA] = "Kafka does not acknowledge"
                            return False
                    break
                except SinkUnavailableError as error:
                    self._trouble[KAFKA] = str(error)
                    if not self._is_time_left():
                        return False
                    time.sleep(_PAUSE_S)
                except RecordRefusedError as error:
                    self._trouble[KAFKA] = f"Kafka refuses a batch: {error}"
                    return False
            spool.acknowledge(entry)
        self._reach(KAFKA, f"{self._config.kafka.bootstrap} has acknowledged it")
        return True

    # --- waiting --------------------------------------------------------------------------------------------------

    def _wait(self, seen: SeenInKafka) -> None:
        """Until ClickHouse has the event. The topics are looked into only where that takes long."""
        statement = files("sql").joinpath("agent", "self_test.sql").read_text(encoding="utf-8")
        asked = {"cluster": self._config.cluster, "reporter": self._config.reporter, "token": self._token}
        while True:
            self._look_at_acked()
            try:
                left_s = self._end_s - time.monotonic()
                (found,) = self._store.rows(statement, asked, min(max(left_s, 1.0), _ASK_S))
                self._trouble.pop(CLICKHOUSE, None)
            except ClickHouseError as error:
                self._trouble[CLICKHOUSE] = str(error)
                found = [0, 0]
            if found[0]:
                self._reach(KAFKA, "the line was sent on from there")
            if found[1]:
                self._reach(WORKER, "it has read the line and made an event of it")
                self._reach(CLICKHOUSE, f"{self._store.address} has line and event")
                return
            if not self._is_time_left():
                self._look_into_topics(seen, is_stored=bool(found[0]))
                return
            time.sleep(_PAUSE_S)

    def _look_at_acked(self) -> None:
        if KAFKA not in self._reached and self._batch_seq is not None:
            acked = read_acked(Path(self._config.spool.dir) / "acked")
            if acked >= self._batch_seq:
                self._reach(KAFKA, f"{self._config.kafka.bootstrap} has acknowledged it")

    def _look_into_topics(self, seen: SeenInKafka, *, is_stored: bool) -> None:
        if KAFKA in self._reached and seen.is_in(EVENTS.name):
            self._reach(WORKER, f"the line came through it (topic {EVENTS.name})", is_late=True)
        elif seen.problem:
            self._trouble.setdefault(WORKER, f"cannot be told: {seen.problem}")
        if is_stored:
            self._trouble.setdefault(CLICKHOUSE, "it has the line, not the event")

    def _find_in_spool(self) -> bool:
        """Whether the mark is in the spool of the running agent; remembers under which number."""
        for path in sorted(Path(self._config.spool.dir).glob("*.spool"), reverse=True):
            try:
                with path.open("rb") as file:
                    for _, entry, _ in segment.entries(file.fileno()):
                        if self._token.encode() in entry.payload:
                            self._batch_seq = entry.batch_seq
                            self._reach(SPOOL, f"the running agent has put it into {self._config.spool.dir}")
                            return True
            except FileNotFoundError:
                continue  # Kafka has all of it
            except OSError as error:
                self._reach(SPOOL, f"the running agent took the mark ({path}: {error.strerror})")
                return True
        return False

    # --- telling --------------------------------------------------------------------------------------------------

    def _is_time_left(self) -> bool:
        return time.monotonic() < self._end_s

    def _reach(self, name: str, says: str, *, is_late: bool = False) -> None:
        after_s = None if is_late else time.monotonic() - self._began_s
        self._reached.setdefault(name, Station(name=name, reached=True, says=says, after_s=after_s))

    def _told(self) -> SelfTest:
        stations, stuck = [], ""
        for name in (SPOOL, KAFKA, WORKER, CLICKHOUSE):
            station = self._reached.get(name)
            if station is None:
                said = self._trouble.get(name, "not reached" if stuck else "has it not")
                reached = None if stuck or said.startswith("cannot be told") else False
                station = Station(name=name, reached=reached, says=said)
                stuck = stuck or name
            stations.append(station)
        do = _TO_DO.get(stuck, "").format(raw=RAW.name, events=EVENTS.name)
        return SelfTest(token=self._token, passed=not stuck, stations=stations, stuck_at=stuck, do=do)


_TO_DO: Final = {
    SPOOL: "run the test as the user of the agent or as root, and look at the journal of the agent; with profile = "
    '"none" it looks for no marks: set self_test = true in [sources]',
    KAFKA: "check [kafka] in the settings, whether the broker runs, and whether this user may write to topic {raw}",
    WORKER: "start a worker (`rootrank worker`), or look at its log: it reads topic {raw} and writes topic {events}",
    CLICKHOUSE: "start the store (`rootrank store`), or look at its log; check the address and the user that this test "
    "asks ClickHouse with (CLICKHOUSE_URL, CLICKHOUSE_READER_USER)",
}
