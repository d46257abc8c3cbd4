"""Secrets that are made up when they are asked for, in lines as programs print them."""

import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

TEMPLATES: Final = Path(__file__).with_name("templates.toml")
_URL64: Final = string.ascii_letters + string.digits + "-_"
_CHARS: Final = {
    "alnum": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "digits": string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "lower": string.ascii_lowercase,
    "base32": string.ascii_uppercase + "234567",
    "base64": string.ascii_letters + string.digits + "+/",
    "url64": _URL64,
}
_WORDS: Final = ("correct", "horse", "battery", "staple")
_PART: Final = re.compile(r"\{([a-z0-9]+)(?::(\d+))?\}")


class Planted(NamedTuple):
    """A line and what must not be left of it."""

    kind: str
    value: str
    line: str


def planted(seed: int = 7, rounds: int = 1) -> Iterator[Planted]:
    """One of each secret in each of its lines, `rounds` times with other values."""
    file: dict[str, Any] = tomllib.loads(TEMPLATES.read_text(encoding="utf-8"))
    chance = Random(seed)
    for _ in range(rounds):
        for secret in file["secret"]:
            for line in secret.get("lines", file["contexts"]):
                value = made(secret["value"], chance)
                shown = line.replace("{{", "\0").replace("}}", "\1").replace("{v}", value)
                yield Planted(secret["kind"], value, shown.replace("\0", "{").replace("\1", "}"))


def made(template: str, chance: Random) -> str:
    """A value of a template. It begins and ends with no `-` or `_` that a boundary of words would depend on."""

    def part(found: re.Match[str]) -> str:
        name, size = found[1], int(found[2] or 0)
        if name == "word":
            return chance.choice(_WORDS)
        if name == "luhn":
            return "L"
        chars = _CHARS[name]
        text = "".join(chance.choices(chars, k=size))
        if name == "url64":
            return text[:-1].strip("-_").ljust(size - 1, "x") + "7"
        return text

    value = _PART.sub(part, template)
    return value.replace("L", _check_digit(value), 1) if "{luhn}" in template else value


def _check_digit(value: str) -> str:
    digits = [int(char) for char in value if char.isdigit()]
    total = sum(sum(divmod(2 * digit, 10)) for digit in digits[-1::-2]) + sum(digits[-2::-2])
    return str(-total % 10)
