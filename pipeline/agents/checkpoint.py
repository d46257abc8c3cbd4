"""The runner of a stage: a keyed fold that loses nothing when it is killed.

Order of things, which is the whole guarantee:

1. A message is applied and its outputs are handed to the producer at once.
2. A checkpoint waits until the broker has acknowledged all outputs of the states it is about to save,
3. appends the snapshots to the changelog topic and waits for the broker again,
4. and only then acknowledges messages, from the left of their partition, up to the first one in no snapshot.

After a crash, messages beyond a snapshot are read again and give the same outputs (same ids); messages already in it
are skipped. After every assignment all memory is dropped and loaded again from the snapshot topic, because Faust reads
kept partitions again from their committed offsets too. Within an assignment each partition must deliver every offset
exactly once and in order; a gap stops the app, which then reads again from its committed offsets.

What is lost: a state that cannot be saved (larger than the snapshot topic takes, or not encodable) works on in memory
and holds its messages until the stage holds `held_messages`; then they are acknowledged with a warning, so that their
neighbours go on. When the worker ends or its partitions move after that, the entity goes on from its last snapshot
that fitted, or from nothing where there was none, and never sees the messages that were acknowledged since.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError

from pipeline.agents.changelog import Changelog
from pipeline.agents.fold import SECOND_NS, Output, Stage
from pipeline.agents.ledger import Ledger
from pipeline.agents.outbox import Outbox, acknowledged
from pipeline.agents.states import Planned, States

log = logging.getLogger(__name__)

# A rebalance waits no longer than this for a running checkpoint.
REVOKE_WAIT_S = 5.0


class SkippedMessagesError(RuntimeError):
    """Faust delivered an offset beyond the next one."""


# topic, partition, expected offset, found offset
Hole = tuple[str, int, int, int]


class StageRunner:
    """Runs one stage inside a Faust app."""

    def __init__(self, app: Any, stage: Stage, changelog: Changelog, known_holes: set[Hole]) -> None:
        self._app = app
        self.stage = stage
        self._changelog = changelog
        self._known_holes = known_holes
        self._states = States(stage, changelog.topic)
        self._pace = stage.pace
        self._ledgers: dict[int, Ledger] = {}
        self._outbox = Outbox(app, stage, self._states)
        self._generation = -1
        self._open = False
        self._stopping = False
        self._loading: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._due = asyncio.Event()
        self._room = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._checkpointing = asyncio.Lock()
        self._swept_s = 0.0
        self.counters = self._states.counters

    # --- what Faust calls ------------------------------------------------------------------------------------------

    async def run(self, stream: Any) -> None:
        """The agent. Any error here stops the app: going on would leave a hole in a state."""
        try:
            async for event in stream.noack().events():
                await self._take(event.message)
        except Exception as error:
            log.exception("stage %s failed", self.stage.name)
            await self._app.crash(error)

    async def checkpoint_forever(self) -> None:
        """The task that saves states, also when nothing arrives any more."""
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.tick_s):
                    await self._due.wait()
            self._due.clear()
            await self.checkpoint()
            await self._forget_old()

    async def on_assigned(self, _: Any, assigned: set[Any], **__: Any) -> None:
        """Drop all memory: whatever was not acknowledged is read again, in kept partitions too."""
        if self._loading is not None:
            self._loading.cancel()
        self._reset(self._app.consumer_generation_id)
        partitions = {tp.partition for tp in assigned if tp.topic == self.stage.source_topic}
        self._loading = asyncio.create_task(self._load_partitions(partitions))

    async def on_revoked(self, *_: Any, **__: Any) -> None:
        """Let a running checkpoint end before others may take over the partitions; start no new one."""
        self._open = False
        try:
            async with asyncio.timeout(REVOKE_WAIT_S):
                async with self._checkpointing:
                    pass
        except TimeoutError:
            log.warning("stage %s: a checkpoint is still waiting for the broker during a rebalance", self.stage.name)

    async def finish(self) -> None:
        """Take no more messages and save everything: the last act before a clean shutdown."""
        self._stopping = True
        self._due.set()
        await self.checkpoint(min_age_s=0.0)

    async def _load_partitions(self, partitions: set[int]) -> None:
        try:
            self._states.store.keep_only(partitions)
            starts = await self._changelog.catch_up(self._states.store, partitions)
        except Exception as error:
            log.warning("stage %s cannot read its snapshots: %s", self.stage.name, error)
            await self._app.crash(error)
            return
        self._ledgers = {partition: Ledger(start) for partition, start in starts.items()}
        self._open = True
        self._loaded.set()

    # --- messages --------------------------------------------------------------------------------------------------

    async def _take(self, message: Any) -> None:
        await self._loaded.wait()
        await self._wait_for_room()
        async with self._stepping:
            if self._open and not self._stopping and self._is_current(message):
                await self._outbox.send(message, self._step(message))
                self._states.flood.check(message.partition, message.offset)
                # The payload is not needed again: a held message then costs some 300 bytes whatever it carried.
                message.key = message.value = None

    def _is_current(self, message: Any) -> bool:
        app = self._app
        return bool(app.flow_control.is_active()) and (
            message.generation_id == app.consumer_generation_id == self._generation
        )

    async def _wait_for_room(self) -> None:
        while self._held() >= 2 * self._pace.held_messages and not self._stopping:
            self._room.clear()
            self._due.set()
            await self._room.wait()

    def _held(self) -> int:
        return sum(len(ledger) for ledger in self._ledgers.values())

    def _is_crowded(self) -> bool:
        return self._held() >= self._pace.held_messages

    def _step(self, message: Any) -> Iterable[Output]:
        ledger = self._ledgers[message.partition]
        if message.offset < ledger.expected:
            return ()
        if message.offset > ledger.expected:
            self._check_hole((message.topic, message.partition, ledger.expected, message.offset))
        entity, outputs = self._states.advance(message)
        ledger.add(message, entity)
        if entity is not None and entity.asked:
            self._due.set()
        return outputs

    def _check_hole(self, hole: Hole) -> None:
        """A hole that is still there after reading again is one of the log (transactions, compaction)."""
        if hole in self._known_holes:
            return
        self._known_holes.add(hole)
        raise SkippedMessagesError("{}/{}: offset {} was expected, {} came".format(*hole))

    # --- checkpoints -----------------------------------------------------------------------------------------------

    async def checkpoint(self, *, min_age_s: float | None = None) -> None:
        """Save the entities that ask for it or whose oldest unsaved message has this age; acknowledge what that covers.

        The default age is that of the stage; too many held messages lower it to nothing.
        """
        crowded = self._is_crowded()
        if min_age_s is None:
            min_age_s = 0.0 if crowded else self._pace.entity_age_s
        async with self._checkpointing:
            generation = self._generation
            plan = await self._plan(generation, min_age_s)
            async with self._stepping:
                if not self._may_write(generation):
                    return
                # Taken after the plan: these include the outputs of every planned state.
                outputs = self._outbox.take()
                marks = {partition: ledger.expected for partition, ledger in self._ledgers.items()}
            await self._outbox.settle(outputs)
            if not self._may_write(generation):
                return
            written = await self._write(plan)
            if not self._may_write(generation):
                return
            self._states.saved(written)
            self._acknowledge(marks)
            if crowded and self._is_crowded() and not self._stopping:
                self._states.let_go(marks)
                self._acknowledge(marks)
            self._states.drop_idle()

    def _may_write(self, generation: int) -> bool:
        return self._open and self._generation == generation == self._app.consumer_generation_id

    async def _plan(self, generation: int, min_age_s: float) -> list[Planned]:
        plan = []
        for entity in self._states.due(min_age_s):
            # Between two entities messages may pass: many or large states do not hold up the outputs.
            async with self._stepping:
                if not self._may_write(generation):
                    return []
                planned = self._states.plan(entity)
            if planned is not None:
                plan.append(planned)
            await asyncio.sleep(0)
        return plan

    async def _write(self, plan: list[Planned]) -> list[Planned]:
        """Returns what the broker has; the rest is too large for it."""
        sent, futures = [], []
        for planned in plan:
            try:
                futures.append(await self._append(planned.entity.key, planned.packed, planned.entity.partition))
                sent.append(planned)
            except MessageSizeTooLargeError:
                self._too_large(planned)
        written = []
        for planned, is_taken in zip(sent, await acknowledged(futures), strict=True):
            if is_taken:
                written.append(planned)
            else:
                self._too_large(planned)
        return written

    async def _append(self, key: bytes, packed: bytes | None, partition: int) -> asyncio.Future[Any]:
        return await self._outbox.produce(self._changelog.topic, key, packed, partition)

    def _too_large(self, planned: Planned) -> None:
        self._states.cannot_save(planned.entity, f"{len(planned.packed)} bytes compressed are too large")

    def _acknowledge(self, marks: dict[int, int]) -> None:
        consumer = self._app.consumer
        for partition, below in marks.items():
            for message in self._ledgers[partition].release(below=below):
                message.ack(consumer)  # type: ignore[attr-defined]
        self._room.set()

    def _reset(self, generation: int) -> None:
        self._generation = generation
        self._open = False
        self._loaded.clear()
        self._states.clear()
        self._ledgers.clear()
        self._outbox.take()
        self._room.set()

    # --- old entities ----------------------------------------------------------------------------------------------

    async def _forget_old(self) -> None:
        """Delete states without a message for `forget_after_s`, if all their messages are committed."""
        if time.monotonic() - self._swept_s < min(600.0, self._pace.forget_after_s):
            return
        self._swept_s = time.monotonic()
        horizon_ns = time.time_ns() - int(self._pace.forget_after_s * SECOND_NS)
        async with self._checkpointing:
            for partition, key, applied in list(self._states.store.older_than(horizon_ns)):
                await self._forget(partition, key, applied)

    def _committed(self, partition: int) -> int:
        committed: int = self._app.monitor.tp_committed_offsets.get((self.stage.source_topic, partition), 0)
        return committed

    async def _forget(self, partition: int, key: bytes, applied: int) -> None:
        async with self._stepping:
            generation = self._generation
            if self._states.is_unsaved(key) or self._committed(partition) <= applied or not self._may_write(generation):
                return
            await (await self._append(key, None, partition))
            if self._may_write(generation):
                self._states.forget(partition, key)
