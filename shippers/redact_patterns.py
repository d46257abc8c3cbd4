"""The kinds of secrets as `redact.toml` and the settings give them: read, checked, compiled."""

import base64
import binascii
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # how `re` itself reads a pattern
from typing import Any, Final

import msgspec
from msgspec import Struct

FILE: Final = Path(__file__).with_name("redact.toml")
_MAX_STEPS: Final = 1_000_000  # of a pattern of the settings at one place of a line
_QUOTED: Final = r"""(?P<q>\\{0,3}["'])?"""
# Behind a quote up to that quote, unless it is the closing one of a text that ends there; else up to a blank.
_IN_QUOTES: Final = r"""(?!\s{0,2}[,:}\]]\s{0,2}(?:\\{0,3}["'{\[]|$))(?:(?!(?P=q))(?:\\.|.)){1,1024}"""
_BARE: Final = r"""(?!\[redacted:)(?:[^\s"'&;,\\]|,(?![\w.\-]{1,64}=)){1,1024}"""
_VALUE: Final = rf"(?P<secret>(?(q){_IN_QUOTES}|{_BARE}))"
_MACROS: Final = {
    "{b}": r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))",
    "{sep}": r"""\\{0,3}["']?[ \t]{0,4}(?:=>|:=|==|[:=]|%3[dD])[ \t]{0,4}""",
    "{value}": r"""(?:[bBuU](?=["']))?""" + _QUOTED + _VALUE,
    "{open}": _QUOTED + _VALUE,
    # Last parts of names of machines, units and files: what stands behind their @ is no place for mail.
    "{machine}": r"(?:local|localdomain|internal|lan|cluster|svc|corp|home|arpa|service|socket|mount|timer|slice|scope"
    r"|target|device|path|swap|automount|py|so|log|sh|js|json)(?![A-Za-z0-9\-])",
}

Check = Callable[[str], bool]


class PatternError(ValueError):
    """A pattern that cannot be used. The text says why."""


class Pattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to know a secret."""

    kind: str
    pattern: str
    hints: tuple[str, ...] = ()
    in_run: bool = False
    digits: tuple[str, ...] = ()
    check: str = ""


class Block(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret of several lines."""

    kind: str
    hints: tuple[str, ...]
    begin: str
    end: str
    inside: str
    lines: int


class Begun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret of which only the beginning is there: all characters `after` what stands before it."""

    kind: str
    pattern: str
    after: str = ""


class _PatternFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    words: tuple[str, ...]
    pattern: tuple[Pattern, ...]
    block: tuple[Block, ...]
    begun: tuple[Begun, ...]


class Rule(Struct, frozen=True, kw_only=True):
    """A pattern that is ready."""

    kind: str
    hints: tuple[bytes, ...]
    in_run: bool
    digits: tuple[bytes, ...]
    pattern: re.Pattern[str]
    check: Check | None


class BlockRule(Struct, frozen=True, kw_only=True):
    """A block that is ready."""

    kind: str
    hints: tuple[bytes, ...]
    begin: re.Pattern[str]
    end: re.Pattern[str]
    inside: str
    lines: int


class BegunRule(Struct, frozen=True, kw_only=True):
    """A beginning that is ready."""

    kind: str
    pattern: re.Pattern[str]
    other: re.Pattern[str] | None


class Rules(Struct, frozen=True, kw_only=True):
    """All that is looked for."""

    words: tuple[bytes, ...]
    patterns: tuple[Rule, ...]
    blocks: tuple[BlockRule, ...]
    begun: tuple[BegunRule, ...]


def load_rules(off: Sequence[str] = (), extra: Sequence[Pattern] = ()) -> Rules:
    """The rules of `redact.toml` without the kinds that are off, and those of the settings. Raises PatternError."""
    known = _builtin()
    kinds = _kinds(known) | {each.kind for each in extra}
    for kind in off:
        if kind not in kinds:
            raise PatternError(f'[redact] off = "{kind}" is no kind; there are: {", ".join(sorted(kinds))}')
    return Rules(
        words=_hints(known.words),
        patterns=tuple(_rule(each) for each in (*map(_checked, extra), *known.pattern) if each.kind not in off),
        blocks=tuple(
            BlockRule(
                kind=each.kind, hints=_hints(each.hints), begin=_compiled(each.begin), end=_compiled(each.end),
                inside=each.inside, lines=each.lines,
            )
            for each in known.block if each.kind not in off
        ),
        begun=tuple(
            BegunRule(kind=each.kind, pattern=_compiled(each.pattern), other=_others(each.after))
            for each in known.begun if each.kind not in off
        ),
    )  # fmt: skip


def kinds() -> list[str]:
    """The kinds that are known without settings."""
    return sorted(_kinds(_builtin()))


def _kinds(known: _PatternFile) -> set[str]:
    return {each.kind for each in known.pattern} | {each.kind for each in known.block}


@cache
def _builtin() -> _PatternFile:
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), _PatternFile)


def _rule(each: Pattern) -> Rule:
    return Rule(
        kind=each.kind, hints=_hints(each.hints), pattern=_compiled(each.pattern),
        in_run=each.in_run, digits=_hints(each.digits), check=_CHECKS[each.check] if each.check else None,
    )  # fmt: skip


def _hints(hints: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(hint.lower().encode("ascii", "replace") for hint in hints)


def _others(after: str) -> re.Pattern[str] | None:
    """A character that is none of those."""
    if not after:
        return None
    return re.compile(f"[{after[1:]}]" if after.startswith("^") else f"[^{after}]")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for name, text in _MACROS.items():
        pattern = pattern.replace(name, text)
    return re.compile(pattern)


# --- patterns of the settings -------------------------------------------------------------------------------------


def _checked(each: Pattern) -> Pattern:
    """A pattern of the settings. Log text is anybody's: it must be linear."""
    where = f'[[redact.pattern]] kind "{each.kind}"'
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", each.kind):
        raise PatternError(f"{where}: a kind is lower case letters, digits and hyphens, at most 40")
    if each.check or each.in_run or each.digits:
        raise PatternError(f"{where}: only kind, pattern and hints can be set")
    try:
        tree = _parser.parse(each.pattern)
        compiled = re.compile(each.pattern)
    except re.error as error:
        raise PatternError(f"{where}: not a regular expression: {error}") from None
    if compiled.search("") is not None:
        raise PatternError(f"{where}: the pattern fits an empty text")
    if _steps(tree, where) > _MAX_STEPS:
        raise PatternError(f"{where}: its repetitions may take too long together; write smaller bounds")
    return each


def _steps(tree: Any, where: str, *, is_inside: bool = False) -> int:
    """How many ways there may be to read the repetitions, at most. Raises PatternError for one without an end."""
    steps = 1
    for operator, argument in tree:
        if operator in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            low, high, inner = argument
            if high == _constants.MAXREPEAT:
                raise PatternError(f"{where}: a repetition has no end; write {{1,200}} or so instead of + and *")
            if is_inside and high != low and high > 1:
                raise PatternError(f"{where}: a repetition stands inside another one; write it without")
            steps *= max(1, high - low + 1) * _steps(inner, where, is_inside=is_inside or high > 1)
        else:
            parts = argument if isinstance(argument, (list, tuple)) else [argument]
            for part in parts:
                for branch in part if isinstance(part, list) else [part]:
                    if isinstance(branch, _parser.SubPattern):
                        steps *= _steps(branch, where, is_inside=is_inside)
        if steps > _MAX_STEPS:
            break
    return steps


# --- what a pattern alone cannot tell -------------------------------------------------------------------------------

_PLACEHOLDER: Final = re.compile(
    r"(?i)\[redacted:|\*{2,}|<|\$[({A-Za-z_]|%[({]|\{\{|x{3,}\Z|\.{3}"
    r"|(?:none|null|nil|true|false|undefined|unset|empty|required|optional|yes|no|not|auto|default)\b"
)
_PATH: Final = re.compile(
    r"[~.]{0,2}/(?:etc|var|run|home|root|tmp|opt|mnt|usr|data|dev|srv|proc|secrets|workspace|app|scratch)\b"
)
_NOT_SECRET: Final = re.compile(r"[0-9.,eE+\-]{0,40}|0x[0-9a-fA-F]{1,16}")


def no_placeholder(value: str) -> bool:
    """Not a word that stands for a secret."""
    return not _PLACEHOLDER.match(value) and not _PATH.match(value)


def secret_value(value: str) -> bool:
    """Neither that nor a number, a path or a word of prose."""
    return len(value) >= 4 and no_placeholder(value) and not _NOT_SECRET.fullmatch(value)


def token_value(value: str) -> bool:
    """Long, and of letters and digits: what models call a token is a word or a number."""
    return len(value) >= 12 and secret_value(value) and has_digit(value) and any(map(str.isalpha, value))


def has_digit(value: str) -> bool:
    """Whether there is a digit."""
    return any(map(str.isdigit, value))


def is_login(value: str) -> bool:
    """Whether it is `user:password` in base64."""
    try:
        user, colon, password = base64.b64decode(value, validate=True).partition(b":")
    except ValueError:
        return False
    text = user + password
    return bool(colon and password) and text.isascii() and text.decode().isprintable()


def luhn(value: str) -> bool:
    """The check digit of a card number."""
    digits = [int(char) for char in value if char.isdecimal()]
    total = sum(digits[-1::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return total % 10 == 0 and len(set(digits)) > 2


def base64_value(value: str) -> bool:
    """Base64 of some bytes rather than a word or a path."""
    text = value.strip("\"'")
    if len(text) < 8 or len(text) % 4 or text.startswith("/"):
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    classes = (str.isupper, str.islower, str.isdigit)
    return text.endswith("=") or all(any(map(each, text)) for each in classes)


_CHECKS: Final[dict[str, Check]] = {
    "no_placeholder": no_placeholder, "secret_value": secret_value, "token_value": token_value, "is_login": is_login,
    "has_digit": has_digit, "luhn": luhn, "is_person": lambda value: value not in ("root", "git", "nobody"),
}  # fmt: skip
