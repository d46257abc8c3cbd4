"""What a stage says on its way to the broker. An output that cannot be sent is a bad message, never a crash."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError

from pipeline.agents.fold import BadMessage, Output, Stage
from pipeline.agents.states import States, bad_message

log = logging.getLogger(__name__)

# Topics of ours refuse nothing smaller, so the source message of a smaller output is not kept until the broker answers.
LARGE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Handed:
    """An output that the broker has not acknowledged yet, and what to say of its source if the broker refuses it."""

    future: asyncio.Future[Any]
    bad: BadMessage


class Outbox:
    """The outputs of one stage, in the order they were said."""

    def __init__(self, app: Any, stage: Stage, states: States) -> None:
        self._app = app
        self._stage = stage
        self._states = states
        self._handed: list[Handed] = []

    async def send(self, message: Any, outputs: Iterable[Output]) -> None:
        """Hand the outputs of a message to the producer; one dead letter says which of them cannot be sent."""
        refused = []
        for output in outputs:
            self._states.counters.outputs += 1
            try:
                value = self._stage.encode(output.record)
            except Exception as error:
                refused.append(f"its output for topic {output.topic} cannot be encoded: {error!r}")
                continue
            reason = f"its output of {len(value)} bytes is too large for topic {output.topic}"
            try:
                future = await self.produce(output.topic, output.key, value)
            except MessageSizeTooLargeError:
                refused.append(reason)
                continue
            bad = bad_message(message, reason)
            self._handed.append(Handed(future, bad if len(value) >= LARGE_BYTES else replace(bad, value=None)))
        if refused:
            bad = bad_message(message, "; ".join(refused))
            self._states.flood.bad(bad)
            self._handed.extend(await self._send_letter(bad))

    async def produce(
        self, topic: str, key: bytes, value: bytes | None, partition: int | None = None
    ) -> asyncio.Future[Any]:
        """Hand a message to the producer. Raises the Kafka error itself, not what Faust wraps it in."""
        try:
            future: asyncio.Future[Any] = await self._app.producer.send(topic, key, value, partition, None, None)
        except Exception as error:
            raise (error.__cause__ or error) from None
        return future

    def take(self) -> list[Handed]:
        """All outputs handed over since the last call."""
        handed, self._handed = self._handed, []
        return handed

    async def settle(self, handed: list[Handed]) -> None:
        """Wait until the broker has these outputs, or the dead letters of those it refuses as too large."""
        refused = {(bad.partition, bad.offset): bad for bad in await self._refused(handed)}
        letters = [letter for bad in refused.values() for letter in await self._send_letter(bad)]
        for bad in await self._refused(letters):
            self._say_lost(bad, "the broker refuses it as too large")

    async def _refused(self, handed: list[Handed]) -> list[BadMessage]:
        taken = await acknowledged([each.future for each in handed])
        return [each.bad for each, is_taken in zip(handed, taken, strict=True) if not is_taken]

    async def _send_letter(self, bad: BadMessage) -> list[Handed]:
        """Empty where even the dead letter cannot be sent: then the log says what it would have said."""
        try:
            letter = self._states.letter(bad)
            value = self._stage.encode(letter.record)
        except Exception as error:
            self._say_lost(bad, repr(error))
            return []
        try:
            return [Handed(await self.produce(letter.topic, letter.key, value), bad)]
        except MessageSizeTooLargeError as error:
            self._say_lost(bad, repr(error))
            return []

    def _say_lost(self, bad: BadMessage, why: str) -> None:
        log.error("stage %s cannot use %s/%d/%d (%s), and its dead letter cannot be sent: %s", self._stage.name,
                  bad.topic, bad.partition, bad.offset, bad.reason, why)  # fmt: skip


async def acknowledged(sent: list[asyncio.Future[Any]]) -> list[bool]:
    """Wait for the broker: False for what it refuses as too large.

    Raises the first other error: then nothing is acknowledged and the app stops.
    """
    answers = await asyncio.gather(*sent, return_exceptions=True)
    taken = [not isinstance(answer, MessageSizeTooLargeError) for answer in answers]
    for answer, is_taken in zip(answers, taken, strict=True):
        if is_taken and isinstance(answer, BaseException):
            raise answer
    return taken
