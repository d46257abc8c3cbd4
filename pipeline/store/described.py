"""What the tables mean: every view with its columns and the named queries that read it.

There is one source, the comments in sql/migrations. `python -m pipeline.store.described` reads them out of an engine
into `pipeline/store/tables.json`, which `rootrank tables` and the page /tables show, and into docs/tables.md.
"""

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from pipeline.store import queries
from pipeline.store.queries import NamedQuery
from pipeline.store.sqlfiles import statement

if TYPE_CHECKING:
    from pipeline.store.clickhouse import Store

FILE: Final = Path(__file__).with_name("tables.json")
DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "tables.md"
_AS_OF: Final = "_as_of"
_HEAD: Final = """# Tables

What people read in ClickHouse: {count} views, made by `python -m pipeline.store.described` from the comments in
`sql/migrations`. Times are UTC. `rootrank tables NAME` prints one of them, `/tables` of the web page shows them all,
`/api/tables` gives them to programs. Views that end in `_live` hold live rows only; without it replays and drills are
among them (`run`). Ask with `rootrank sql` or any ClickHouse client; why tables are as they are is in
[sql/README.md](../sql/README.md).
"""


class Column(Struct, frozen=True, kw_only=True):
    """A column: its ClickHouse type, and what it means."""

    name: str
    type: str
    meaning: str


class Question(Struct, frozen=True, kw_only=True):
    """A named query that reads a view."""

    query: str
    question: str
    example: str


class Described(Struct, frozen=True, kw_only=True):
    """A view: what a row of it is, its columns, and what can be asked of it by name.

    `as_of`: how to read it as it stood at a moment, where that can be asked.
    """

    name: str
    meaning: str
    columns: list[Column]
    questions: list[Question]
    example: str
    as_of: str = ""


@cache
def described() -> list[Described]:
    """All views, as the release describes them."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Described])


def describe(store: "Store") -> list[Described]:
    """All views of a migrated database."""
    own: dict[tuple[str, str], str] = {}
    shared: dict[str, str] = {}
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, name, kind, meaning in store.rows(statement("view_columns")):
        columns.setdefault(table, []).append((name, kind))
        if meaning:
            own[table, name] = meaning
            shared.setdefault(name, meaning)
    known = queries.list_queries()

    def meant(view: str, name: str) -> str:
        base = _base(view)
        tables = (view, base, f"{base}_rows", "raw_lines", "events", "incident_revisions")
        return next((own[table, name] for table in tables if (table, name) in own), shared.get(name, ""))

    views: dict[str, str] = {}
    views.update((str(name), str(meaning)) for name, meaning in store.rows(statement("views")))
    return [
        Described(
            name=view, meaning=meaning, questions=list(_questions(view, known)), example=_example(view),
            as_of=_example(f"{view}{_AS_OF}(as_of = '2026-03-31 00:00:00')") if f"{view}{_AS_OF}" in views else "",
            columns=[Column(name=n, type=kind, meaning=meant(view, n)) for n, kind in columns.get(view, [])],
        )
        for view, meaning in views.items() if not view.endswith(_AS_OF)
    ]  # fmt: skip


def _base(view: str) -> str:
    """The view of which another one is a part."""
    return view.removesuffix("_live")


def _questions(view: str, known: list[NamedQuery]) -> Iterator[Question]:
    for query in known:
        text = re.sub("--.*", "", query.text)
        if re.search(rf"\b{view}(?:{_AS_OF})?\b", text):
            yield Question(query=query.name, question=query.question, example=query.example)


def _example(view: str) -> str:
    return f'rootrank sql "SELECT * FROM {view} LIMIT 10"'  # noqa: S608 (shown, not asked)


def page(views: list[Described]) -> str:
    """docs/tables.md."""
    parts = [_HEAD.format(count=len(views))]
    parts += [f"* [`{view.name}`](#{view.name}): {view.meaning}" for view in views]
    for view in views:
        parts += [f"\n## {view.name}\n", f"{view.meaning}\n", "| column | type | meaning |", "|---|---|---|"]
        parts += [f"| {c.name} | {_cell(c.type)} | {_cell(c.meaning)} |" for c in view.columns]
        parts += ["", f"`{view.example}`"]
        parts += [f"\nAs it stood then: `{view.as_of}`"] if view.as_of else []
        parts += [f"* `{q.query}`: {q.question} `{q.example}`" for q in view.questions]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def encoded(views: list[Described]) -> bytes:
    """tables.json."""
    return msgspec.json.format(msgspec.json.encode(views), indent=1) + b"\n"


def main() -> None:
    """Write both files."""
    from pipeline.embedded.clickhouse import ClickHouseServer
    from pipeline.store import migrations
    from pipeline.store.clickhouse import Store
    from pipeline.store.settings import settings_from_url

    with tempfile.TemporaryDirectory() as folder:
        server = ClickHouseServer(Path(folder))
        server.start()
        try:
            store = Store(settings_from_url(server.url))
            migrations.apply(store, migrations.load_migrations())
            views = describe(store)
        finally:
            server.stop()
    FILE.write_bytes(encoded(views))
    DOCUMENT.write_text(page(views), encoding="utf-8")


if __name__ == "__main__":
    main()
