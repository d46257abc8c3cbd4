"""Takes secrets out of what was read before any of it reaches the disk.

Literals are looked for in many lines at once; only a line that has one is looked at by the patterns it belongs to. So
an ordinary line costs some microseconds, whatever the number of patterns, and a hostile one linear time.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from re import Match
from typing import Final

import msgspec

from schemas.records import Gap, RawLine
from schemas.small_file import read_small
from shippers.config import ConfigError, RedactSettings
from shippers.redact_find import Finder
from shippers.redact_open import Memory, OpenSecrets, key_of, payload_of
from shippers.redact_patterns import PatternError, Rule, load_rules

_SPLIT_HINTS: Final = (b'{"log":"', b" std")
_PROBE: Final = "Zz9-probe-0f3K7q1xB2"  # no secret: tells which names of attributes stand before one


class Redactor:
    """The patterns of `redact.toml` and of the settings at work."""

    def __init__(self, settings: RedactSettings, key: bytes = b"") -> None:
        """`key` is for fingerprints; without one a random one is made. Raises ConfigError."""
        try:
            rules = load_rules(settings.off, settings.pattern)
        except PatternError as error:
            raise ConfigError(str(error)) from None
        self.is_on = settings.enabled
        self._rules = rules
        self._key = key or secrets.token_bytes(32)
        self._shows_fingerprint = settings.fingerprint
        self._finder = Finder(rules, _SPLIT_HINTS)
        self._open = OpenSecrets(rules, self._mark, self._text_without)
        self._text = lru_cache(1024)(self._text_without)
        self._attribute = lru_cache(4096)(self._attribute_value)
        self._names_secret = lru_cache(1024)(self._is_name_of_secret)

    def lines(self, lines: Sequence[RawLine], memory: Memory) -> list[RawLine]:
        """The same lines without secrets. `memory` is what the lines before them left open."""
        if not self.is_on or not lines:
            return list(lines)
        attributed = [line.attributes for line in lines if line.attributes]
        values = list({value for attributes in attributed for value in attributes.values()})
        found = self._finder.candidates([*(line.body for line in lines), *values])
        suspects = {value for number, value in enumerate(values, len(lines)) if number in found}
        secret_keys = set(filter(self._names_secret, {key for attributes in attributed for key in attributes}))
        looks_at_attributes = bool(suspects or secret_keys)
        result = list(lines)
        for number, line in enumerate(lines):
            rules = found.get(number)
            if rules is not None or memory or line.truncated:
                body = self._body(line, rules or (), memory)
                if body != line.body:
                    result[number] = line = msgspec.structs.replace(line, body=body)
            if looks_at_attributes and line.attributes:
                attributes = self.attributes(line.attributes)
                if attributes != line.attributes:
                    result[number] = msgspec.structs.replace(line, attributes=attributes)
        return result

    def text(self, text: str) -> str:
        """A text that stands for itself, without secrets."""
        return self._text(text) if self.is_on else text

    def name(self, text: str) -> str:
        """The name of a source without secrets. Different names stay different."""
        return self._without(text, shows_fingerprint=True) if self.is_on else text

    def attributes(self, attributes: Mapping[str, str]) -> dict[str, str]:
        """Values without secrets; where the name says that one follows, without the value."""
        if not self.is_on:
            return dict(attributes)
        return {key: self._attribute(key, value) for key, value in attributes.items()}

    def gap(self, gap: Gap) -> Gap:
        """A gap marker whose reason holds no secret; its source has its name from `name`."""
        reason = self.text(gap.reason)
        return gap if reason == gap.reason else msgspec.structs.replace(gap, reason=reason)

    def _is_name_of_secret(self, key: str) -> bool:
        return self._text_without(f"{key}={_PROBE}") != f"{key}={_PROBE}"

    def _attribute_value(self, key: str, value: str) -> str:
        if self._names_secret(key) and value:
            said = f'{key}="{value}"'
            return self._mark("secret", value) if self._text_without(said) != said else value
        return self.text(value)

    def _text_without(self, text: str) -> str:
        return self._without(text, self._shows_fingerprint)

    def _without(self, text: str, shows_fingerprint: bool) -> str:
        numbers = self._finder.candidates([text]).get(0, ())
        shown, self._shows_fingerprint = self._shows_fingerprint, shows_fingerprint
        try:
            return self._apply(text, numbers)
        finally:
            self._shows_fingerprint = shown

    def _body(self, line: RawLine, rules: Iterable[int], memory: Memory) -> str:
        body = line.body
        payload = payload_of(body)
        key = key_of(line, payload)
        carry = memory.carries.pop(key, None)
        if carry is not None:
            body = self._open.carried(body, payload, carry)
        body = self._apply(body, rules)
        block = memory.blocks.get(key)
        if block is not None:
            body, goes_on = self._open.inside(body, block)
            if not goes_on:
                del memory.blocks[key]
        else:
            body, opened = self._open.begin(body)
            if opened is not None:
                memory.blocks[key] = opened
        payload = payload_of(body)
        if payload.goes_on or line.truncated:
            body, left = self._open.begun(body, payload)
            if payload.goes_on:
                memory.carries[key] = left
        return body

    def _apply(self, text: str, numbers: Iterable[int]) -> str:
        for number in sorted(numbers):
            rule = self._rules.patterns[number]
            text = rule.pattern.sub(lambda found, rule=rule: self._replaced(rule, found), text)  # type: ignore[misc]
        return text

    def _replaced(self, rule: Rule, found: Match[str]) -> str:
        group = "secret" if "secret" in rule.pattern.groupindex else 0
        value = found[group]
        if rule.check is not None and not rule.check(value):
            return found[0]
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        return found[0][:start] + self._mark(rule.kind, value) + found[0][end:]

    def _mark(self, kind: str, value: str) -> str:
        if not self._shows_fingerprint:
            return f"[redacted:{kind}]"
        known = hashlib.blake2s(value.encode("utf-8", "surrogatepass"), key=self._key[:32], digest_size=4).hexdigest()
        return f"[redacted:{kind}:{known}]"


def redactor_for(settings: RedactSettings, own_key: bytes = b"") -> Redactor:
    """With the key for fingerprints that the settings name, else the spool's own. Raises ConfigError."""
    key = own_key
    if settings.fingerprint_key_file:
        try:
            key = hashlib.sha256(read_small(Path(settings.fingerprint_key_file))).digest()
        except OSError as error:
            raise ConfigError(
                f"[redact] fingerprint_key_file {settings.fingerprint_key_file} cannot be read ({error.strerror}); "
                "correct the path, let the agent's user read it, or leave it out: then the spool's own key is taken"
            ) from None
    return Redactor(settings, key)
