"""Where records go: Kafka, or standard output.

A sink takes one record at a time and says when it is safe. So the order is kept whatever fails: a record is sent again,
under the same batch number, before any later one is.
"""

import contextlib
import sys
import threading
from typing import Any, BinaryIO, Final, Protocol

from kafka import KafkaAdminClient, KafkaProducer
from kafka import errors as kafka_errors
from kafka.future import Future

from schemas.kafka_access import NOTHING_LISTENS, AccessError, problem_at, stamps
from schemas.topics import RAW
from shippers.config import KafkaSettings, access_of

MAX_BLOCK_MS: Final = 2000
# Longer than a broker's restart: the producer itself retries in order and without duplicates that long.
_DELIVERY_MS: Final = 120_000
_NEVER_TAKEN: Final = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)


class SinkUnavailableError(Exception):
    """The sink cannot be reached now; sending again later may do. The text says what was tried."""


class RecordRefusedError(Exception):
    """The sink will never take this record. The text says why."""


class Pending(Protocol):
    """A record on its way."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it is safe. Raises SinkUnavailableError, RecordRefusedError."""


class Sink(Protocol):
    """Takes records in order."""

    def send(self, value: bytes) -> Pending:
        """Begin to send. Raises SinkUnavailableError, RecordRefusedError."""

    def close(self) -> None:
        """Give up what is on its way, within a second."""


class Done:
    """A record that is safe."""

    def wait(self, timeout_s: float) -> bool:
        """True."""
        return True


class StdoutSink:
    """One line of JSON a record."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdout.buffer

    def send(self, value: bytes) -> Pending:
        """Write and flush. Raises BrokenPipeError when nobody reads."""
        self._stream.write(value + b"\n")
        self._stream.flush()
        return Done()

    def close(self) -> None:
        """Nothing: the stream is not ours."""


class _Producer(KafkaProducer):  # type: ignore[misc]  # the library has no types
    """A producer that can be closed while Kafka is away: the library's own close stops at what it cannot flush."""

    def flush(self, timeout: float | None = None) -> None:
        with contextlib.suppress(kafka_errors.KafkaError):
            super().flush(timeout)


class KafkaSink:
    """The raw topic. Idempotent, acks=all, compressed; connects when first used and again after a failure."""

    def __init__(self, settings: KafkaSettings, key: bytes, topic: str = RAW.name) -> None:
        self._settings = settings
        self._key = key
        self._topic = topic
        self._producer: KafkaProducer | None = None
        self._secrets: object = None

    def send(self, value: bytes) -> Pending:
        """Hand the record to the producer."""
        try:
            if self._producer is None:
                self._secrets = stamps(access_of(self._settings))
                self._producer = connect(self._settings)
            return _PendingAck(self, self._producer.send(self._topic, value=value, key=self._key))
        except _NEVER_TAKEN as error:
            raise RecordRefusedError(str(error)) from None
        except kafka_errors.KafkaTimeoutError:
            self.drop_connection()
            raise SinkUnavailableError(f"topic {self._topic} is not known to Kafka; create the topics first") from None
        except kafka_errors.KafkaError as error:
            self.drop_connection()
            raise SinkUnavailableError(f"Kafka at {self._settings.bootstrap}: {describe(error)}") from None

    def look_for_new_secrets(self) -> None:
        """The client would go on with the password and certificates that it was given. Raises SinkUnavailableError."""
        if self._producer is not None and stamps(access_of(self._settings)) != self._secrets:
            self.drop_connection()
            raise SinkUnavailableError(
                f"Kafka at {self._settings.bootstrap}: the files to log in with have changed; logging in anew"
            )

    def drop_connection(self) -> None:
        """Start anew with the next record."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(timeout=0.5)
            except kafka_errors.KafkaError:
                return  # what was on its way is sent again

    def close(self) -> None:
        """Close the connection."""
        self.drop_connection()


class _PendingAck:
    def __init__(self, sink: KafkaSink, future: Future) -> None:
        self._sink = sink
        self._future = future
        self._answered = threading.Event()
        future.add_both(lambda _: self._answered.set())

    def wait(self, timeout_s: float) -> bool:
        if not self._answered.wait(timeout_s):
            self._sink.look_for_new_secrets()
            return False
        error = self._future.exception
        if error is None:
            return True
        self._sink.drop_connection()  # an idempotent producer takes nothing more after an error
        if isinstance(error, _NEVER_TAKEN):
            raise RecordRefusedError(str(error))
        raise SinkUnavailableError(f"Kafka did not take a batch: {describe(error)}")


def connect(settings: KafkaSettings, **changes: Any) -> KafkaProducer:
    """A producer. Raises SinkUnavailableError within seconds where nothing listens or the login fails."""
    options: dict[str, Any] = {
        "bootstrap_servers": addresses(settings),
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": None if settings.compression == "none" else settings.compression,
        "max_request_size": RAW.max_message_bytes,
        "max_block_ms": MAX_BLOCK_MS,
        "delivery_timeout_ms": _DELIVERY_MS,
        "reconnect_backoff_max_ms": 2000,
        "bootstrap_timeout_ms": 4000,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
        **_security(settings),
        **changes,
    }
    problems = [problem_at(address, access_of(settings)) for address in addresses(settings)]
    if all(problems):
        # What answers and refuses says more than what is not there.
        said = next((each for each in problems if each != NOTHING_LISTENS), NOTHING_LISTENS)
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {said}")
    try:
        return _Producer(**options)
    except kafka_errors.KafkaTimeoutError as error:
        said = f"something listens there and does not answer as Kafka does ({describe(error)})"
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {said}") from None
    except kafka_errors.KafkaError as error:
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {describe(error)}") from None
    except OSError as error:
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {error}") from None


def admin_client(settings: KafkaSettings) -> KafkaAdminClient:
    """A client that asks about topics. Raises SinkUnavailableError."""
    try:
        return KafkaAdminClient(
            request_timeout_ms=5000, bootstrap_timeout_ms=4000, **client_options(settings)
        )  # fmt: skip
    except (kafka_errors.KafkaError, OSError) as error:
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {error}") from None


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Where Kafka is and how to log in, as every client of the library takes it. Raises SinkUnavailableError."""
    return {"bootstrap_servers": addresses(settings), **_security(settings)}


def addresses(settings: KafkaSettings) -> list[str]:
    """The bootstrap addresses."""
    return [each.strip() for each in settings.bootstrap.split(",") if each.strip()]


def describe(error: BaseException) -> str:
    """The kind of an error and what it says, on one line."""
    return " ".join(f"{type(error).__name__} {error}".split())


def _security(settings: KafkaSettings) -> dict[str, Any]:
    """Options of the client library. The files are read now: a password that was changed counts from here on."""
    access = access_of(settings)
    options: dict[str, Any] = {"security_protocol": access.security_protocol}
    try:
        if access.uses_tls:
            options["ssl_context"] = access.context()
        if access.logs_in:
            options |= {
                "sasl_mechanism": access.sasl_mechanism, "sasl_plain_username": access.sasl_username,
                "sasl_plain_password": access.password(),
            }  # fmt: skip
    except AccessError as error:
        raise SinkUnavailableError(f"Kafka at {settings.bootstrap}: {error}") from None
    return options
