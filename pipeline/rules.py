"""Reads the cause rules from their files. Errors name file and field."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final, TypeVar

import msgspec

from pipeline.core.calibration import Calibration
from pipeline.core.causes import Link, Rule, RuleSet, digest_of, names_in, sentences
from pipeline.core.episodes import Coalescing
from schemas import signals
from schemas.matching import site_files
from schemas.vocabulary import CLASSES

CALIBRATION: Final = "calibration.toml"
_T = TypeVar("_T")


class RuleFileError(ValueError):
    """A rule file that cannot be used; the text names the file and the field."""


class _Shared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    coalesce: list[Coalescing]
    group: dict[str, list[Link]]


@cache
def load_rules() -> RuleSet:
    """All rules that ship with rootrank, and a site's own."""
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(files("pipeline").joinpath("causes").iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }
    # A site's rule of a shipped name replaces the shipped one.
    texts.update({f"{name}.toml": content.decode("utf-8", "replace") for name, content in site_files("causes")})
    shared = _convert("shared.toml", texts["shared.toml"], _Shared)
    rules = [_convert(name, text, Rule) for name, text in texts.items() if name != "shared.toml"]
    for rule in rules:
        if rule.class_ not in CLASSES:
            near = sorted(c for c in CLASSES if c.split("/")[0] == rule.class_.split("/")[0]) or sorted(CLASSES)
            raise RuleFileError(f"{rule.id}.toml: class {rule.class_!r} is none; use one of {near}")
        if not (0 < rule.confidence <= 1 and 0 < rule.strength <= 1):
            raise RuleFileError(f"{rule.id}.toml: confidence and strength are above 0 and at most 1")
        missing = [group for group in rule.groups if group not in shared.group]
        if missing:
            raise RuleFileError(f"{rule.id}.toml: groups {missing} are not in shared.toml")
        _check_sentences(rule)
    measured = files("pipeline").joinpath(CALIBRATION).read_text(encoding="utf-8")
    digest = digest_of({**texts, "signals": signals.load().digest, CALIBRATION: measured})
    return RuleSet(
        rules=rules, groups=shared.group, coalescing={how.event: how for how in shared.coalesce}, digest=digest,
        calibration=_convert(CALIBRATION, measured, Calibration),
    )  # fmt: skip


def _check_sentences(rule: Rule) -> None:
    """A name that nothing fills would fail only once the rule concludes."""
    for field, text, known in sentences(rule):
        try:
            unknown = sorted(set(names_in(text)) - known)
        except ValueError as error:
            raise RuleFileError(f"{rule.id}.toml: {field}: {error}: {text!r}") from None
        if unknown:
            raise RuleFileError(f"{rule.id}.toml: {field} names {unknown}; use some of {sorted(known)}")


def _convert(name: str, text: str, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(tomllib.loads(text), shape)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise RuleFileError(f"{name}: {error}") from None
