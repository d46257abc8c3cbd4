"""HTML as values: a string child is always escaped, made visible and bounded, so no call can forget to."""

from html import escape
from typing import Final
from urllib.parse import quote

from pipeline.report.words import TEXT_LIMIT, shortened, visible

_VOID: Final = frozenset({"meta", "link", "br"})
_LIMIT: Final = 2 * TEXT_LIMIT  # of what nobody has shortened before


class Html(str):
    """Text that is HTML already. Templates take it as it is (`__html__`)."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


Child = str | int | None


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. Children that are not Html are escaped; None is left out. `class_` is class, `data_x` is data-x."""
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{head}>")
    return Html(f"<{name}{head}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Children beside each other, escaped where they are not Html."""
    return Html("".join(_child(child) for child in children if child is not None))


def _child(child: str | int) -> str:
    return child if isinstance(child, Html) else escape(shortened(str(child), _LIMIT))


def _attribute(key: str, value: str | int | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(shortened(str(value), _LIMIT))}"'


def fragment(name: str) -> str:
    """The address of the element with this id on the same page."""
    return f"#{quote(visible(name))}"
