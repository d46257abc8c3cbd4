"""Whether a text has passed through a topic since this was made: looked for only when asked."""

import contextlib
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors

from schemas.topics import EVENTS
from shippers.config import KafkaSettings
from shippers.sink import SinkUnavailableError, client_options, describe

_LOOK_MS: Final = 500


class SeenInKafka:
    """Remembers the ends of topic `events` now. Who may not read topics is told nothing; `problem` says so."""

    def __init__(self, settings: KafkaSettings, text: bytes, topics: tuple[str, ...] = (EVENTS.name,)) -> None:
        self._text = text
        self._ends: dict[TopicPartition, int] = {}
        self._consumer: KafkaConsumer | None = None
        self.problem = ""
        try:
            self._consumer = KafkaConsumer(
                enable_auto_commit=False, bootstrap_timeout_ms=4000, **client_options(settings)
            )
            for topic in topics:
                numbers = self._consumer.partitions_for_topic(topic) or ()
                self._ends.update(self._consumer.end_offsets([TopicPartition(topic, number) for number in numbers]))
        except (kafka_errors.KafkaError, SinkUnavailableError, OSError) as error:
            self.problem = f"its topic cannot be looked into ({describe(error)})"

    def is_in(self, topic: str) -> bool:
        """Whether a message of the topic that came since then holds the text."""
        begin = {part: offset for part, offset in self._ends.items() if part.topic == topic}
        if self._consumer is None or not begin:
            self.problem = self.problem or f"topic {topic} is not there"
            return False
        try:
            return self._search(self._consumer, begin)
        except (kafka_errors.KafkaError, OSError) as error:
            self.problem = f"its topic cannot be looked into ({describe(error)})"
            return False

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            with contextlib.suppress(kafka_errors.KafkaError):
                self._consumer.close()

    def _search(self, consumer: KafkaConsumer, begin: dict[TopicPartition, int]) -> bool:
        consumer.assign(list(begin))
        for part, offset in begin.items():
            consumer.seek(part, offset)
        ends = consumer.end_offsets(list(begin))
        while any(consumer.position(part) < ends[part] for part in begin):
            for messages in consumer.poll(timeout_ms=_LOOK_MS).values():
                if any(self._text in (message.value or b"") for message in messages):
                    return True
        return False
