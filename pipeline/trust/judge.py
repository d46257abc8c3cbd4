"""Looks at the signature of each record of the topic raw, by a policy.

`off`: nothing is looked at; `warn`: what fails is told and counts; `require`: what fails is left out.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct

from pipeline import metrics
from pipeline.core.trust import Judged
from pipeline.metrics import Definition
from pipeline.trust.keys import Key, KeyRing, KeysError, files_of, load_keys
from schemas.codec import tag_of
from schemas.records import Progress, RawBatch, Release
from schemas.signing import detach, to_sign

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

log = logging.getLogger(__name__)

Policy = Literal["off", "warn", "require"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
LOOK_AGAIN_S: Final = 5.0
APART: Final = ("replay", "drill")
SHOWN: Final = 64

NOT_SIGNED: Final = "not signed"
ALTERED: Final = "altered, or signed by somebody else under this key's name"


class TrustSettings(Struct, frozen=True, kw_only=True):
    """What must be signed, and where the keys are."""

    policy: Policy = "off"
    keys: Path | None = None


class Judge:
    """Says of a record whether it is proven. One instance is for one thread."""

    def __init__(self, settings: TrustSettings, now_s: Callable[[], float] = time.monotonic) -> None:
        """Read the keys. Raises KeysError; ModuleNotFoundError where `cryptography` is missing and needed."""
        self._policy = settings.policy
        self._path = settings.keys
        self._now_s = now_s
        self._looked_s = now_s()
        self._ring = KeyRing()
        self._seen: object = None
        self._public: dict[str, Ed25519PublicKey] = {}
        self.doubts: Counter[str] = Counter()
        if self._policy == "off":
            return
        import cryptography  # noqa: F401 - said at the start, not at the first record

        if self._path is None:
            raise KeysError(f"the policy is {self._policy}, and no keys are named; give --trust-keys")
        self._seen = files_of(self._path)
        self._ring = load_keys(self._path)

    def examine(self, record: object, data: bytes | None, now_ns: int) -> object:
        """The record as it is where nothing is to be looked at, else with what was found. `now_ns` is the broker's."""
        if self._policy == "off" or not isinstance(record, RawBatch | Progress | Release):
            return record
        # All else shares its keys with live records, whatever it calls itself.
        if record.run in APART:
            return record
        self._look_again()
        doubt = self._doubt(record, data or b"", now_ns)
        if doubt:
            self.doubts[tag_of(type(record))] += 1
        counts = self._policy == "warn" and not isinstance(record, Release)
        return Judged(record=record, doubt=doubt, counts=bool(doubt) and counts)

    def read(self) -> Iterator[tuple[Definition, str, float]]:
        """What failed so far, as a metric."""
        for record, failed in sorted(self.doubts.items()):
            yield metrics.UNVERIFIED, record, failed

    def _doubt(self, record: RawBatch | Progress | Release, data: bytes, now_ns: int) -> str:
        parts = detach(data)
        if parts is None or record.key_id is None:
            return NOT_SIGNED
        shown = repr(record.key_id[:SHOWN])
        known = self._ring.operators if isinstance(record, Release) else self._ring.reporters
        keys = known.get(record.key_id, [])
        if not keys:
            return f"signed with key {shown}, which is not known"
        if not isinstance(record, Release):
            keys = [key for key in keys if (key.cluster, key.reporter) == (record.cluster, record.reporter)]
            if not keys:
                return f"signed with key {shown}, which is of another reporter"
        if not any(self._fits(key, *parts) for key in keys):
            return f"{ALTERED} ({shown})"
        return min((key.doubt(now_ns) for key in keys if self._fits(key, *parts)), key=len)

    def _fits(self, key: Key, signed: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        public = self._public.get(key.public)
        if public is None:
            public = self._public[key.public] = Ed25519PublicKey.from_public_bytes(key.public_bytes)
        try:
            public.verify(signature, to_sign(signed))
        except InvalidSignature:
            return False
        return True

    def _look_again(self) -> None:
        """Read the key files again where they have changed; what cannot be used is said once, and the old ones stay."""
        now_s = self._now_s()
        if now_s - self._looked_s < LOOK_AGAIN_S or self._path is None:
            return
        self._looked_s = now_s
        try:
            seen = _stamps(self._path)
            if seen == self._seen:
                return
            self._seen = seen
            self._ring = load_keys(self._path)
        except KeysError as error:
            log.error("the keys cannot be used, those read before stay until the files change: %s", error)
            return
        self._public.clear()
        log.info("the keys in %s were read again", self._path)


def _stamps(path: Path) -> object:
    """What changes when the files do, also from one trouble to another."""
    try:
        return files_of(path)
    except KeysError as error:
        return str(error)
