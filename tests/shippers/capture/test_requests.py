"""Who may ask a node for a capture, and who may not."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pipeline.agents.request_signer import NoKeyError, RequestSigner
from schemas.capture_request import LONGEST_NS
from schemas.codec import encode
from schemas.records import CaptureRequest
from schemas.signing import attach, to_sign
from schemas.topics import CAPTURE_REQUEST
from shippers.capture.capture import Capture
from shippers.capture.redacting import redacting
from shippers.capture.requests import KafkaMessages, Requests, verifier
from shippers.config import CaptureSettings, Config, ConfigError, KafkaSettings, SpoolSettings
from tests.shippers.capture.test_capture import NOW, fixed
from tests.shippers.fakes import SECOND_NS, eventually
from tests.shippers.test_sink import make_topic

T0 = 1_772_359_200 * SECOND_NS
KEY = b"c/n1"
CONFIG = Config(cluster="c", reporter="n1", run_id="live")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and its public half, as files."""
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "request.key", tmp_path / "request.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def request(**changes: Any) -> CaptureRequest:
    whole = CaptureRequest(
        run="live", run_id="live", cluster="c", node="n1", request_id="r1", incident_id="i1",
        why="unknown/silent_rank", rank=5, created_unix_nano=T0, expires_unix_nano=T0 + 120 * SECOND_NS,
    )  # fmt: skip
    return msgspec.structs.replace(whole, **changes)


class Messages:
    """An in-memory topic."""

    def __init__(self, *messages: tuple[bytes | None, bytes | None]) -> None:
        self.waiting = list(messages)
        self.is_away = False

    def new(self) -> Sequence[tuple[bytes | None, bytes | None]]:
        if self.is_away:
            raise OSError("away")
        taken, self.waiting = self.waiting, []
        return taken

    def close(self) -> None:
        """Nothing is open."""


def asked(
    keys: tuple[Path, Path], *records: CaptureRequest, key: bytes | None = KEY, now_ns: int = T0 + SECOND_NS
) -> list[str]:
    signer = RequestSigner.of_file(keys[0])
    messages = Messages(*((key, signer.encode(record)) for record in records))
    return [trigger.why for trigger in Requests(CONFIG, verifier([str(keys[1])]), messages).new(now_ns)]


def test_a_signed_request_for_this_node_is_followed_once(keys: tuple[Path, Path]) -> None:
    assert asked(keys, request(), request()) == ["incident i1 unknown/silent_rank"]


@pytest.mark.parametrize(
    "changes",
    [
        {"node": "n2"},
        {"cluster": "other"},
        {"run": "replay"},
        {"expires_unix_nano": T0 + SECOND_NS},
        {"expires_unix_nano": T0 + LONGEST_NS + 1},
        {"created_unix_nano": T0 + 3600 * SECOND_NS, "expires_unix_nano": T0 + 3660 * SECOND_NS},
        {"expires_unix_nano": T0 - 1},
    ],
)
def test_one_that_is_not_for_it_or_not_for_now_is_not_followed(
    keys: tuple[Path, Path], changes: dict[str, Any]
) -> None:
    assert asked(keys, request(**changes)) == []


def test_one_under_the_key_of_another_node_is_not_followed(keys: tuple[Path, Path]) -> None:
    assert asked(keys, request(), key=b"c/n2") == []


def test_forged_changed_and_unsigned_ones_are_not_followed(keys: tuple[Path, Path]) -> None:
    own = RequestSigner.of_file(keys[0])
    stranger = RequestSigner(Ed25519PrivateKey.generate().sign)
    good = msgspec.json.decode(own.encode(request()))
    longer = {**good, "expires_unix_nano": T0 + 300 * SECOND_NS}
    forged: list[bytes] = [
        stranger.encode(request()), encode(request()), attach(encode(request()), b"x" * 64),
        msgspec.json.encode(longer), encode(request(signature="not base64")), b"not JSON",
        b'{"record":"capture_request","v":1}',
    ]  # fmt: skip
    messages = Messages(*((KEY, value) for value in forged), (KEY, None), (None, own.encode(request())))

    assert list(Requests(CONFIG, verifier([str(keys[1])]), messages).new(T0 + SECOND_NS)) == []


def test_one_of_a_later_release_with_a_member_more_is_followed(keys: tuple[Path, Path]) -> None:
    key = Ed25519PrivateKey.generate()
    keys[1].write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    data = encode(request())[:-1] + b',"later":"field"}'
    messages = Messages((KEY, attach(data, key.sign(to_sign(data)))))

    assert len(list(Requests(CONFIG, verifier([str(keys[1])]), messages).new(T0))) == 1


def test_a_second_key_is_accepted_while_keys_are_changed(keys: tuple[Path, Path], tmp_path: Path) -> None:
    newer = Ed25519PrivateKey.generate()
    path = tmp_path / "newer.pub"
    path.write_bytes(newer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    messages = Messages((KEY, RequestSigner(newer.sign).encode(request())))

    assert len(list(Requests(CONFIG, verifier([str(keys[1]), str(path)]), messages).new(T0))) == 1


def test_while_kafka_is_away_nothing_is_asked_and_nothing_breaks(keys: tuple[Path, Path]) -> None:
    messages = Messages()
    messages.is_away = True

    assert list(Requests(CONFIG, verifier([str(keys[1])]), messages).new(T0)) == []


def test_keys_that_are_none_are_named(keys: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key", encoding="utf-8")
    for path, said in (("/nonexistent", "cannot be read"), (tmp_path / "text", "no public key in PEM")):
        with pytest.raises(ConfigError, match=said):
            verifier([str(path)])
    with pytest.raises(NoKeyError, match="no private Ed25519 key"):
        RequestSigner.of_file(keys[1])


def test_a_request_begins_a_capture_that_names_the_incident_within_the_same_bounds(
    keys: tuple[Path, Path], tmp_path: Path
) -> None:
    signer = RequestSigner.of_file(keys[0])
    (tmp_path / "proc").mkdir()

    ns = time.time_ns()
    now = request(created_unix_nano=ns, expires_unix_nano=ns + 120 * SECOND_NS)
    again = msgspec.structs.replace(now, request_id="r2", incident_id="i2")
    messages = Messages((KEY, signer.encode(now)), (KEY, signer.encode(again)))
    requests = Requests(CONFIG, verifier([str(keys[1])]), messages)
    probe = Capture(
        CaptureSettings(per_hour=1), tmp_path / "captures", redacting(Config()), proc=tmp_path / "proc",
        parts_of=fixed(("a", "b")), requests=requests,
    )  # fmt: skip

    head = probe.look(NOW)[0]
    assert " trigger=request rank=5 " in head
    assert head.endswith("why=incident_i1_unknown/silent_rank")
    assert probe.look(NOW) == []


@pytest.mark.kafka
def test_requests_come_over_the_real_topic_from_now_on(
    kafka_broker: Any, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    from kafka import KafkaProducer

    make_topic(kafka_broker.bootstrap, CAPTURE_REQUEST.name)
    config = msgspec.structs.replace(
        CONFIG, kafka=KafkaSettings(bootstrap=kafka_broker.bootstrap), spool=SpoolSettings(dir=str(tmp_path))
    )
    signer = RequestSigner.of_file(keys[0])
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    producer.send(CAPTURE_REQUEST.name, key=KEY, value=signer.encode(request(request_id="old"))).get(30)
    messages = KafkaMessages(config)
    requests = Requests(config, verifier([str(keys[1])]), messages)
    try:
        assert list(requests.new(T0)) == []
        producer.send(CAPTURE_REQUEST.name, key=KEY, value=signer.encode(request(incident_id="new"))).get(30)
        found = eventually(lambda: list(requests.new(T0)), "the request")
    finally:
        requests.close()
        producer.close()

    assert [trigger.why for trigger in found] == ["incident new unknown/silent_rank"]


def test_without_kafka_the_topic_is_asked_again_later(tmp_path: Path) -> None:
    messages = KafkaMessages(
        msgspec.structs.replace(
            CONFIG, kafka=KafkaSettings(bootstrap="127.0.0.1:1"), spool=SpoolSettings(dir=str(tmp_path))
        )
    )
    assert list(messages.new()) == []
    assert list(messages.new()) == []
    messages.close()
