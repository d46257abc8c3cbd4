"""How a capture is redacted: as every line that the agent sends."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from shippers.config import Config


def redacting(config: Config) -> Callable[[str], str]:
    """What takes secrets out of a text."""
    if find_spec("shippers.redact") is None:
        return lambda text: text
    redactor = import_module("shippers.redact").redactor_for(config.redact)  # type: ignore[attr-defined]
    redact: Callable[[str], str] = redactor.text
    return lambda text: "\n".join(map(redact, text.split("\n")))
