"""List, then watch, for ever: every change of one kind of object, from where the last reader got to.

The server sends bookmarks, so that a position stays fresh where nothing changes. Where it has forgotten what was before
(410), all is listed again and a gap says so: what came and went in between is lost. What was told of an object is
remembered, so that only changes are told.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from schemas.vocabulary import SourceState
from shippers.control.kube_api import Api, ApiError, ForbiddenError, GoneError, MissingError
from shippers.control.told import Line, Outlet, at
from shippers.pieces import Told as Record

# The server ends a watch after so long; one that is silent for longer is dead.
WATCH_S: Final = 50.0
SILENCE_S: Final = 75.0
PAGE: Final = "500"
MAX_OBJECTS: Final = 100_000
_POSITION_EVERY_S: Final = 5.0
_RETRY_S: Final = (0.2, 1.0, 3.0, 10.0)
_REFUSED_S: Final = 30.0
_AT_ONCE_S: Final = 1.0
MAX_SIDES: Final = 512
_SAY_AFTER: Final = 3


class Fact(Struct, frozen=True, kw_only=True):
    """One side of an object as it is now. `is_normal` needs no word unless it was otherwise before; `value` tells two
    states of it apart.
    """

    side: str
    value: str
    line: Line | None = None
    is_normal: bool = False
    records: tuple[Record, ...] = ()


class Kind(Protocol):
    """A kind of object and what it says."""

    name: str
    remembers: bool  # whether a position carries what is not normal: where the return to normal is to be told
    is_asked_of: bool  # whether others ask it of objects: then all are looked at before it goes on from a position

    def path(self) -> str:
        """Where objects of it are listed. Raises ApiError."""

    def facts(self, shape: dict[str, Any], known: dict[str, str]) -> Iterable[Fact]:
        """The sides of an object; `known` is what was told of them."""

    def forget(self, shape: dict[str, Any]) -> None:
        """The object is gone."""

    def rule(self) -> str:
        """What a Role must have to list and watch it."""


class Position(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a kind is read, and what of it is not normal, by object."""

    version: str = ""
    odd: dict[str, dict[str, str]] = {}


class KindWatcher:
    """Watches one kind of object."""

    def __init__(
        self, kind: Kind, api: Api, *, age_ns: int | None, selector: str = "", wait_s: float = WATCH_S,
        silence_s: float = SILENCE_S, refused_s: float = _REFUSED_S, now_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        """`age_ns`: at first sight only what is younger is told; None: all of it."""
        self.name = kind.name
        self._kind = kind
        self._api = api
        self._age_ns = age_ns
        self._selector = {"labelSelector": selector} if selector else {}
        self._wait_s, self._silence_s, self._refused_s = wait_s, silence_s, refused_s
        self._now_ns = now_ns
        self._known: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._position_s = float("-inf")
        self._last = ""

    def run(self, position: str, outlet: Outlet) -> None:
        """Tell changes until told to stop."""
        begun = _decoded(position)
        version, failures = begun.version, 0
        self._known = OrderedDict((uid, dict(sides)) for uid, sides in begun.odd.items())
        is_first, is_unseen = not position, self._kind.is_asked_of
        while not outlet.stopping.is_set():
            try:
                if version and is_unseen:
                    self._look_over()
                if not version:
                    version = self._list(outlet, is_first=is_first)
                is_first = is_unseen = False
                version, failures = self._watch(version, outlet), 0
            except GoneError:
                since = version or "the list began"
                gap = f"the API server has forgotten what changed since {since}: all was listed again"
                version = self._last = ""
                outlet.put([], self._encoded(""), gap=gap)
            except (ForbiddenError, MissingError) as error:
                outlet.stand(*self._refusal(error))
                version = self._last = ""
                outlet.stopping.wait(self._refused_s)
            except ApiError as error:
                failures += 1
                version = self._last or version
                if failures >= _SAY_AFTER:
                    outlet.stand("refused", str(error))
                outlet.stopping.wait(_RETRY_S[min(failures, len(_RETRY_S)) - 1])

    def probe(self) -> tuple[SourceState, str | None]:
        """Whether the kind may be listed."""
        try:
            self._api.get(self._kind.path(), limit="1")
        except (ForbiddenError, MissingError) as error:
            return self._refusal(error)
        except ApiError as error:
            return "refused", str(error)
        return "on", None

    def _list(self, outlet: Outlet, *, is_first: bool) -> str:
        """Tell how all objects are now; the version of the list."""
        since_ns = self._now_ns() - self._age_ns if is_first and self._age_ns is not None else 0
        seen: set[str] = set()
        version = ""
        for items, version in self._pages():
            lines: list[Line] = []
            records: list[Record] = []
            for shape in items:
                seen.add(_uid(shape))
                told, more = self._told(shape)
                lines += [line for line in told if line.at_ns >= since_ns]
                records += more
            self._last = version
            outlet.put(lines, self._encoded(version), records=records)
        for uid in [uid for uid in self._known if uid not in seen]:
            del self._known[uid]
        outlet.stand("on", None, self._now_ns())
        return version

    def _pages(self) -> Iterator[tuple[list[dict[str, Any]], str]]:
        """The objects that there are, page by page, and the version of the list; empty before the last page."""
        path, query = self._kind.path(), {"limit": PAGE, **self._selector}
        while True:
            page = self._api.get(path, **query)
            items, follows = page.get("items"), at(page, "metadata", "continue")
            version = "" if follows else str(at(page, "metadata", "resourceVersion") or "")
            yield [each for each in items if isinstance(each, dict)] if isinstance(items, list) else [], version
            if not follows:
                return
            query["continue"] = str(follows)

    def _look_over(self) -> None:
        """Let the kind see all objects; what is told of them is told by the watch."""
        for items, _ in self._pages():
            for shape in items:
                for _fact in self._kind.facts(shape, {}):
                    pass

    def _watch(self, version: str, outlet: Outlet) -> str:
        """Tell changes until the server ends the answer; the version then."""
        self._last = version
        began_s, is_empty = time.monotonic(), True
        query = {
            "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(round(self._wait_s)),
            **self._selector,
        }  # fmt: skip
        for change in self._api.watch(self._kind.path(), self._silence_s, **query):
            if outlet.stopping.is_set():
                break
            is_empty = False
            kind, shape = change.get("type"), change.get("object")
            if kind == "ERROR" or not isinstance(shape, dict):
                raise self._failure(shape)
            self._last = str(at(shape, "metadata", "resourceVersion") or self._last)
            lines: Sequence[Line] = ()
            records: Sequence[Record] = ()
            if kind != "BOOKMARK":
                lines, records = self._told(shape)
            if kind == "DELETED":
                self._known.pop(_uid(shape), None)
                self._kind.forget(shape)
            self._put(outlet, lines, records)
        if is_empty and time.monotonic() - began_s < _AT_ONCE_S and not outlet.stopping.is_set():
            raise ApiError(f"{self.name}: the server ends a watch at once and tells nothing")
        self._put(outlet, (), ())
        return self._last

    def _failure(self, shape: object) -> ApiError:
        code, text = at(shape, "code"), str(at(shape, "message") or "an error without a text")
        if code == 410:
            return GoneError(text)
        return ApiError(f"{self.name}: the watch ended: {text[:200]}")

    def _put(self, outlet: Outlet, lines: Sequence[Line], records: Sequence[Record]) -> None:
        """Hand over what was told; a position alone only now and then."""
        outlet.stand("on", None, self._now_ns())
        now_s = time.monotonic()
        if lines or records or now_s - self._position_s >= _POSITION_EVERY_S:
            self._position_s = now_s
            outlet.put(lines, self._encoded(self._last), records=records)

    def _told(self, shape: dict[str, Any]) -> tuple[list[Line], list[Record]]:
        """What is news of an object."""
        uid = _uid(shape)
        known = self._known.get(uid, {})
        lines: list[Line] = []
        records: list[Record] = []
        try:
            facts = list(self._kind.facts(shape, known))
        except (AttributeError, KeyError, TypeError, ValueError):
            return [], []  # an object of a shape that no API has: its neighbours go on
        for fact in facts:
            before = known.get(fact.side)
            if before == fact.value or (fact.is_normal and before is None):
                continue
            if fact.is_normal:
                del known[fact.side]
            else:
                known[fact.side] = fact.value
            lines += [fact.line] if fact.line is not None else []
            records += fact.records
        while len(known) > MAX_SIDES:  # a container that fails again and again ends as often
            del known[next(iter(known))]
        if known:
            self._known[uid] = known
            self._known.move_to_end(uid)
            while len(self._known) > MAX_OBJECTS:
                self._known.popitem(last=False)
        else:
            self._known.pop(uid, None)
        return lines, records

    def _encoded(self, version: str) -> str:
        odd = dict(self._known) if self._kind.remembers else {}
        return msgspec.json.encode(Position(version=version, odd=odd)).decode()

    def _refusal(self, error: ApiError) -> tuple[SourceState, str]:
        if isinstance(error, MissingError):
            return "off", f"the cluster has none ({error})"
        return "refused", f"{error}; add to the ClusterRole of the agent: {self._kind.rule()}"


def _decoded(position: str) -> Position:
    """A position; nothing where it cannot be read: then all is listed."""
    try:
        return msgspec.json.decode(position, type=Position) if position else Position()
    except msgspec.DecodeError:
        return Position()


def _uid(shape: object) -> str:
    return str(at(shape, "metadata", "uid") or at(shape, "metadata", "name") or "")


__all__ = ["Fact", "Kind", "KindWatcher", "Position"]
