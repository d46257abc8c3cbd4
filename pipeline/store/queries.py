"""Named queries: SQL files whose head says the question, the parameters and an example.

-- question: one sentence, may go on in the next `-- question:` line
-- param NAME:TYPE = DEFAULT | what it means         (no `= DEFAULT`: must be given; nothing after `=`: empty text)
-- example: a command line
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec import Struct

from pipeline.store.errors import QueryFileError
from pipeline.store.sqlfiles import QUERIES
from schemas.vocabulary import Run

if TYPE_CHECKING:
    from pipeline.store.clickhouse import Store

STORED_RUNS: Final[tuple[Run, ...]] = ("live", "replay", "drill")
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of a query. `type` is a ClickHouse type; without a default it must be given."""

    name: str
    type: str
    default: str | None
    meaning: str


class NamedQuery(Struct, frozen=True, kw_only=True):
    """One file."""

    name: str
    question: str
    parameters: tuple[Parameter, ...]
    example: str
    text: str


class Answer(Struct, frozen=True, kw_only=True):
    """The result of a query: column names, their ClickHouse types, and the cells as JSON values."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[list[Any]]

    def objects(self) -> list[dict[str, Any]]:
        """One mapping per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def list_queries(folder: Path = QUERIES) -> list[NamedQuery]:
    """All named queries, by name. Raises QueryFileError for a file whose head cannot be read."""
    return [parse_query(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.sql"))]


def load_query(name: str, folder: Path = QUERIES) -> NamedQuery:
    """One named query. Raises QueryFileError where there is none of that name."""
    path = folder / f"{name}.sql"
    if not name or not set(name) <= NAME_CHARACTERS or not path.is_file():
        names = ", ".join(sorted(p.stem for p in folder.glob("*.sql")))
        raise QueryFileError(f"there is no query {name!r}. There are: {names}")
    return parse_query(name, path.read_text(encoding="utf-8"))


def parse_query(name: str, text: str) -> NamedQuery:
    """A query from the text of its file."""
    question: list[str] = []
    parameters: list[Parameter] = []
    example = ""
    for line in text.splitlines():
        head, colon, rest = line.removeprefix("--").strip().partition(":")
        if not line.startswith("--"):
            break
        if head == "question":
            question.append(rest.strip())
        elif head == "example":
            example = rest.strip()
        elif head.startswith("param ") and colon:
            parameters.append(_parameter(name, head.removeprefix("param ").strip(), rest))
    if not question or not example:
        raise QueryFileError(f"query {name}: the head must have `-- question:` and `-- example:` lines")
    return NamedQuery(
        name=name, question=" ".join(question), parameters=tuple(parameters), example=example, text=text.rstrip("; \n")
    )


def bind(query: NamedQuery, given: Mapping[str, str]) -> dict[str, str]:
    """The value of every parameter. Raises QueryFileError for an unknown or a missing one."""
    known = {parameter.name: parameter for parameter in query.parameters}
    if unknown := sorted(given.keys() - known.keys()):
        raise QueryFileError(f"query {query.name} has no parameter {unknown[0]!r}. It has: {', '.join(known)}")
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    if missing := [name for name, value in values.items() if value is None]:
        raise QueryFileError(
            f"query {query.name} needs --param {missing[0]}=… ({known[missing[0]].meaning}). Example: {query.example}"
        )
    return {name: value for name, value in values.items() if value is not None}


def run_query(store: "Store", query: NamedQuery, given: Mapping[str, str]) -> Answer:
    """Run a named query with some of its parameters given as text."""
    return ask(store, query.text, bind(query, given))


def other_runs(store: "Store", query: NamedQuery, given: Mapping[str, str]) -> list[str]:
    """The runs under which a query that asked for one run finds rows, that one aside."""
    asked = bind(query, given).get("run")
    if not asked:
        return []
    return [run for run in STORED_RUNS if run != asked and run_query(store, query, {**given, "run": run}).rows]


def ask(store: "Store", sql: str, parameters: Mapping[str, str] | None = None) -> Answer:
    """Run any reading statement. Times keep their nine digits, as text."""
    answer = store.text(sql, parameters, "JSONCompact")
    if not answer.strip():
        return Answer(columns=(), types=(), rows=[])
    try:
        shape = orjson.loads(answer)
    except orjson.JSONDecodeError:
        # Some statements take FORMAT for their own (EXPLAIN AST INSERT); what they say is a text.
        return Answer(columns=("answer",), types=("String",), rows=[[answer.decode(errors="replace")]])
    return Answer(
        columns=tuple(column["name"] for column in shape["meta"]),
        types=tuple(column["type"] for column in shape["meta"]),
        rows=shape["data"],
    )


def _parameter(query: str, name: str, rest: str) -> Parameter:
    declared, bar, meaning = rest.partition("|")
    kind, equals, default = declared.partition("=")
    if not bar or not kind.strip():
        raise QueryFileError(f"query {query}: parameter {name} must read NAME:TYPE = DEFAULT | meaning")
    return Parameter(name=name, type=kind.strip(), default=default.strip() if equals else None, meaning=meaning.strip())
