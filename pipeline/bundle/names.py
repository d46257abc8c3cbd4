"""Names of nodes and people, and what stands in their place where they shall not be known."""

import re
from collections.abc import Callable
from typing import Any, Final

from pipeline.bundle.contents import Contents

_HOME: Final = re.compile(r"/home/([A-Za-z0-9._-]{1,64})")
_WORD: Final = "A-Za-z0-9_"


def pseudonyms(contents: Contents) -> dict[str, str]:
    """By name: what stands in its place. The same contents give the same ones."""
    incident = contents.incident
    nodes = {line.node for line in contents.lines} | {each.node or "" for each in incident.culprits}
    nodes |= {node for coverage in incident.coverage.values() for node in coverage.silent}
    nodes |= {step.evidence.source.split("/", 1)[0] for step in incident.chain if "/" in step.evidence.source}
    people = {job.owner or "" for job in incident.jobs}
    texts = [
        *(line.text for line in contents.lines),
        *(s.evidence.text for s in incident.chain),
        *contents.captures.values(),
    ]
    people |= {name for text in texts for name in _HOME.findall(text)}
    return _numbered("node", nodes) | _numbered("user", people)


def _numbered(kind: str, names: set[str]) -> dict[str, str]:
    return {name: f"{kind}-{number}" for number, name in enumerate(sorted(filter(None, names)), 1)}


def renaming(names: dict[str, str]) -> Callable[[str], str]:
    """Puts pseudonyms in the place of whole names."""
    if not names:
        return lambda text: text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile(f"(?<![{_WORD}])(?:{'|'.join(map(re.escape, longest_first))})(?![{_WORD}])")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def mapped(shape: Any, change: Callable[[str], str]) -> Any:
    """The same JSON value with all texts changed; keys of objects too, where they are names."""
    if isinstance(shape, str):
        return change(shape)
    if isinstance(shape, list):
        return [mapped(each, change) for each in shape]
    if isinstance(shape, dict):
        return {key: mapped(value, change) for key, value in shape.items()}
    return shape
