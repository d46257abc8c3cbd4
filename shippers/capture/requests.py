"""Requests for captures: polled from topic `capture.request`, followed only where a known key has signed them.

Whoever can write to the topic can still only ask for what a capture is anyway, as often as the settings allow.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from schemas import codec
from schemas.capture_request import counts_at
from schemas.records import CaptureRequest
from schemas.signing import detach, to_sign
from schemas.small_file import read_small
from schemas.topics import CAPTURE_REQUEST, key_of
from shippers.capture.triggers import Trigger
from shippers.config import Config, ConfigError

_POLL_MS: Final = 100
_RETRY_S: Final = 30.0
_REMEMBERED: Final = 1024
_KEYS: Final = "[capture] request_keys"
_DO: Final = "name public keys in PEM (`openssl pkey -pubout`) that the agent's user may read"

Verify = Callable[[bytes, bytes], bool]


class Messages(Protocol):
    """New messages of the topic: keys and values."""

    def new(self) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Those since the last call. Raises OSError where Kafka is away."""

    def close(self) -> None:
        """Close the connection."""


class Requests:
    """Those of them that this node follows, each once."""

    def __init__(self, config: Config, verify: Verify, messages: Messages) -> None:
        self._key = key_of(config.run, config.run_id, config.cluster, config.reporter)
        self._node = (config.run, config.run_id, config.cluster, config.reporter)
        self._verify = verify
        self._messages = messages
        self._known: dict[str, None] = {}

    def new(self, now_ns: int | None = None) -> Iterator[Trigger]:
        """What is asked for now; nothing where Kafka is away."""
        now_ns = time.time_ns() if now_ns is None else now_ns
        try:
            messages = self._messages.new()
        except OSError:
            return
        for key, value in messages:
            request = self._request(value) if key == self._key else None
            if request is None or not counts_at(request, now_ns) or request.request_id in self._known:
                continue
            parts = detach(value or b"")
            if parts is not None and self._verify(to_sign(parts[0]), parts[1]):
                self._known[request.request_id] = None
                while len(self._known) > _REMEMBERED:
                    self._known.pop(next(iter(self._known)))
                yield Trigger(
                    kind="request", key=f"request {request.request_id}", rank=request.rank,
                    why=f"incident {request.incident_id} {request.why}",
                )  # fmt: skip

    def close(self) -> None:
        """Close the connection."""
        self._messages.close()

    def _request(self, value: bytes | None) -> CaptureRequest | None:
        try:
            request = codec.decode(CAPTURE_REQUEST.name, value)
        except codec.UnreadableRecordError:
            return None
        named = (request.run, request.run_id, request.cluster, request.node)
        return request if isinstance(request, CaptureRequest) and named == self._node else None


class KafkaMessages:
    """The topic itself, from now on; connects when first asked, and again half a minute after a failure."""

    def __init__(self, config: Config) -> None:
        self._settings = config.kafka
        self._consumer: object | None = None
        self._retry_s = float("-inf")

    def new(self) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Those since the last call."""
        from kafka import errors as kafka_errors

        from shippers.sink import SinkUnavailableError

        if time.monotonic() < self._retry_s:
            return ()
        try:
            consumer = self._consumer = self._consumer or self._connected()
            polled = consumer.poll(timeout_ms=_POLL_MS)  # type: ignore[attr-defined]
        except (kafka_errors.KafkaError, SinkUnavailableError, OSError):
            self._retry_s = time.monotonic() + _RETRY_S
            self.close()
            return ()
        return [(message.key, message.value) for messages in polled.values() for message in messages]

    def close(self) -> None:
        """Close the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()  # type: ignore[attr-defined]

    def _connected(self) -> object:
        from kafka import KafkaConsumer, TopicPartition
        from kafka import errors as kafka_errors

        from shippers.sink import client_options

        consumer = KafkaConsumer(enable_auto_commit=False, bootstrap_timeout_ms=4000, **client_options(self._settings))
        numbers = consumer.partitions_for_topic(CAPTURE_REQUEST.name)
        if not numbers:
            consumer.close()
            raise kafka_errors.UnknownTopicOrPartitionError(CAPTURE_REQUEST.name)
        places = [TopicPartition(CAPTURE_REQUEST.name, number) for number in numbers]
        consumer.assign(places)
        consumer.seek_to_end(*places)
        for place in places:
            consumer.position(place)  # the end as it is now, not when first polled
        return consumer


def verifier(paths: Sequence[str]) -> Verify:
    """Whether one of the keys in these files has signed something. Raises ConfigError."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise ConfigError(f"{_KEYS} needs the package cryptography: pip install 'rootrank[shipper,signing]'") from None
    keys: list[Ed25519PublicKey] = []
    for path in paths:
        try:
            key = load_pem_public_key(read_small(Path(path)))
        except OSError as error:
            raise ConfigError(f"{_KEYS}: {path} cannot be read ({error.strerror}); {_DO}") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError(f"{_KEYS}: {path} is no public key in PEM; {_DO}") from None
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigError(f"{_KEYS}: {path} is no Ed25519 key; {_DO}")
        keys.append(key)

    def verify(data: bytes, signature: bytes) -> bool:
        for key in keys:
            try:
                key.verify(signature, data)
            except InvalidSignature:
                continue
            return True
        return False

    return verify
