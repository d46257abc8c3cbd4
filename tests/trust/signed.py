"""Keys and signed records for tests."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from schemas.codec import encode
from schemas.records import ClockReading, Progress, RawBatch, RawLine, Release
from schemas.signing import attach, to_sign

NOW_NS = 1_773_225_110_000_000_000
S = 10**9


@dataclass
class TestKey:
    """A key and what the pipeline knows of it."""

    __test__ = False
    key_id: str
    reporter: str = "n1"
    more: dict[str, str] = field(default_factory=dict)
    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def table(self) -> str:
        """Its table in keys.toml."""
        public = base64.b64encode(self.private.public_key().public_bytes_raw()).decode()
        who = f'cluster = "c"\nreporter = "{self.reporter}"\n' if self.reporter else ""
        more = "".join(f"{name} = {value}\n" for name, value in self.more.items())
        head = "[[key]]" if self.reporter else "[[operator]]"
        return f'{head}\nkey_id = "{self.key_id}"\npublic = "{public}"\n{who}{more}'

    def write(self, path: Path) -> Path:
        """The key itself, as a file for its owner."""
        path.touch(mode=0o600)
        path.write_bytes(self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return path

    def sign(self, record: RawBatch | Progress | Release) -> bytes:
        """The message of a record, under this key."""
        data = encode(msgspec.structs.replace(record, key_id=self.key_id))
        return attach(data, self.private.sign(to_sign(data)))


def write_keys(path: Path, *keys: TestKey) -> Path:
    """A keys.toml of these."""
    path.write_text("\n".join(key.table for key in keys), encoding="utf-8")
    return path


def clock(wall_ns: int = NOW_NS, raw_ns: int = 10 * S) -> ClockReading:
    """A reading."""
    return ClockReading(raw_ns=raw_ns, mono_ns=raw_ns, boottime_ns=raw_ns, wall_ns=wall_ns)


def batch(*bodies: str, seq: int = 1, reporter: str = "n1", **changes: Any) -> RawBatch:
    """A live batch of one kernel log."""
    wall_ns = changes.get("clock", clock()).wall_ns
    lines = [
        RawLine(
            seq=100 * seq + number, source="kmsg", generation="b1", offset=100 * seq + number, body=body,
            kernel_time_ns=9 * S + number, observed_time_unix_nano=wall_ns,
        )
        for number, body in enumerate(bodies)
    ]  # fmt: skip
    shape = {
        "run": "live", "run_id": "live", "cluster": "c", "reporter": reporter, "boot_id": "b1", "shipper_id": "s1",
        "batch_seq": seq, "clock": clock(), "records": lines, "source_attributes": {"kmsg": {"kind": "kernel"}},
    }  # fmt: skip
    return RawBatch(**{**shape, **changes})


def progress(raw_ns: int = 10 * S, boot_id: str = "b1", **changes: Any) -> Progress:
    """A live progress record."""
    shape = {
        "run": "live", "run_id": "live", "cluster": "c", "reporter": "n1", "boot_id": boot_id, "shipper_id": "s1",
        "last_batch_seq": 1, "clock": clock(raw_ns=raw_ns),
    }  # fmt: skip
    return Progress(**{**shape, **changes})


def release(of: RawBatch, at_ns: int = NOW_NS, **changes: Any) -> Release:
    """A release of a batch."""
    shape = {
        "run": "live", "run_id": "live", "cluster": "c", "reporter": "n1", "who": "ana", "why": "known",
        "released_unix_nano": at_ns, "partition": 0, "offset": 7, "batch": of,
    }  # fmt: skip
    return Release(**{**shape, **changes})
