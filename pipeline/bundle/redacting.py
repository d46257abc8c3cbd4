"""Takes secrets out of texts as the node agent does, by the agent's own command: there is one set of patterns."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

import orjson

Redact = Callable[[Sequence[str]], list[str]]
_COMMAND: Final = (sys.executable, "-m", "shippers", "redact", "--json-lines")
_TIMEOUT_S: Final = 300
NOT_THERE: Final = 3


class NotRedactedError(Exception):
    """Secrets cannot be looked for. The text says why."""


def by_the_agent(texts: Sequence[str]) -> list[str]:
    """The same texts without secrets. Raises NotRedactedError."""
    asked = b"".join(orjson.dumps(text) + b"\n" for text in texts)
    try:
        answer = subprocess.run(_COMMAND, input=asked, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotRedactedError(f"`rootrank-shipper redact` cannot be run: {error}") from None
    if answer.returncode:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotRedactedError(said[-1] if said else f"`rootrank-shipper redact` ended with {answer.returncode}")
    clean = [orjson.loads(line) for line in answer.stdout.splitlines()]
    if len(clean) != len(texts):
        raise NotRedactedError("`rootrank-shipper redact` gave another number of texts than it was given")
    return clean
