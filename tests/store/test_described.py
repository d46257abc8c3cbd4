"""What is said of the tables is what the engine knows of them, and says something of every column."""

from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from pipeline.__main__ import build
from pipeline.store.clickhouse import Store
from pipeline.store.described import DOCUMENT, FILE, describe, described, encoded, page
from pipeline.web.app import create_app
from pipeline.web.feed import Feed
from pipeline.web.health import Health


@pytest.mark.clickhouse
def test_the_files_say_what_the_engine_says(shared_store: Store) -> None:
    views = describe(shared_store)

    assert FILE.read_bytes() == encoded(views), "run: python -m pipeline.store.described"
    assert DOCUMENT.read_text(encoding="utf-8") == page(views), "run: python -m pipeline.store.described"


def test_every_view_and_every_column_says_what_it_means() -> None:
    assert [view.name for view in described() if not view.meaning] == []
    assert [(view.name, c.name) for view in described() for c in view.columns if not c.meaning] == []


def test_only_incidents_have_a_root_and_a_last_step() -> None:
    said = {(v.name, c.meaning) for v in described() for c in v.columns if c.name in ("started_at", "ended_at")}

    of_incidents = {view for view, meaning in said if "the root" in meaning or "the last of it" in meaning}
    assert of_incidents == {"incident_revisions", "incidents", "incidents_live"}


def test_a_view_names_the_queries_that_read_it() -> None:
    (letters,) = [view for view in described() if view.name == "dead_letters"]

    assert [question.query for question in letters.questions] == ["dead_letters_by_reason"]


def call(*arguments: str) -> Any:
    """`rootrank tables` as a user calls it."""
    return CliRunner().invoke(build("tables"), ["tables", *arguments])


def test_the_command_lists_shows_one_and_gives_all_to_programs() -> None:
    assert "dead_letters " in call().stdout
    assert "incident_id" in call("incidents").stdout
    assert len(orjson.loads(call("--json").stdout)) == len(described())
    wrong = call("nothing")
    assert (wrong.exit_code, "There are: " in wrong.stderr) == (2, True)


def test_the_page_and_the_api_show_all() -> None:
    client = TestClient(create_app(Feed(), lambda: Health(state="following")))

    text = client.get("/tables").text
    assert [view.name for view in described() if f'<h2 id="{view.name}">' not in text] == []
    assert client.get("/api/tables").json()[0]["name"] == described()[0].name
