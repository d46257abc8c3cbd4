"""`sql`, `query` and `migrate` at the command line."""

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.store import commands
from pipeline.store.clickhouse import Store, reading_settings
from pipeline.store.errors import StoreRefusedError, StoreSettingsError
from pipeline.store.queries import Answer, list_queries
from pipeline.store.settings import as_reader, read_password, settings_from_url
from pipeline.store.tables import SINK_OFFSETS
from pipeline.store.tables_text import answer_json, answer_text, printable
from schemas import records as r
from tests.store import seed
from tests.store.conftest import put, url_of, value

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run a command; standard output and error apart."""
    app = typer.Typer()
    for command in (commands.sql, commands.query, commands.migrate):
        app.command()(command)
    return lambda *words, url="http://127.0.0.1:1/x": CliRunner().invoke(app, list(words), env={"CLICKHOUSE_URL": url})


@pytest.fixture(scope="module")
def filled(shared_store: Store) -> Store:
    put(shared_store, seed.batch(), seed.incident())
    return shared_store


@pytest.mark.clickhouse
def test_what_a_statement_says_that_takes_the_form_of_the_answer_for_its_own_is_shown(run: Run, filled: Store) -> None:
    for form in ((), ("--json",)):
        shown = run("sql", "EXPLAIN AST INSERT INTO x VALUES (1)", *form, url=url_of(filled.settings))
        assert (shown.exit_code, "InsertQuery" in shown.stdout) == (0, True), shown.output


@pytest.mark.clickhouse
def test_sql_prints_a_table_or_json(run: Run, filled: Store) -> None:
    text = "SELECT line_no, Body FROM raw_lines ORDER BY line_no;"
    shown = run("sql", text, url=url_of(filled.settings))
    assert (shown.exit_code, shown.stdout.splitlines()[:2]) == (0, ["line_no  Body", "1        line 0 of n1"])
    as_json = run("sql", text, "--json", url=url_of(filled.settings))
    assert orjson.loads(as_json.stdout)[0] == {"line_no": 1, "Body": "line 0 of n1"}


@pytest.mark.clickhouse
@pytest.mark.parametrize(
    "text",
    ["SHOW TABLES", "DESCRIBE events", "EXPLAIN SELECT 1", "(SELECT 1)", " -- hi\nSELECT 1", "/* a */\n# b\nselect(1)"],
)
def test_sql_takes_every_reading_statement(run: Run, filled: Store, text: str) -> None:
    assert run("sql", text, url=url_of(filled.settings)).exit_code == 0


@pytest.mark.clickhouse
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO sink_offsets VALUES ('a', 'b', 'c', 1, 1, now())",
        "/* x */ INSERT INTO sink_offsets SELECT 'a', 'b', 'c', 1, 1, now()",
        "DROP TABLE raw_lines_rows",
        " -- x\nDROP TABLE raw_lines_rows",
        "/* x */ CREATE TABLE mine (x UInt8) ENGINE = Memory",
        "/* ; */ -- x\nALTER TABLE raw_lines_rows DELETE WHERE 1",
        "/* x */ TRUNCATE TABLE raw_lines_rows",
        "SET readonly = 0",
        "",
    ],
)
def test_sql_refuses_to_write_and_says_so(run: Run, filled: Store, text: str) -> None:
    result = run("sql", text, url=url_of(filled.settings))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "reads" in result.stderr
    assert value(filled, "SELECT count() FROM raw_lines") == 3


@pytest.mark.clickhouse
@pytest.mark.parametrize("user", ["", "rootrank_reader"], ids=["readonly setting", "reader user"])
def test_the_reading_connection_cannot_write_whatever_the_client_sends(filled: Store, user: str) -> None:
    reader = Store(as_reader(filled.settings, user=user))
    assert value(reader, "SELECT count() FROM raw_lines") == 3
    for statement in ("DROP TABLE raw_lines_rows", "CREATE TABLE mine (x UInt8) ENGINE = Memory"):
        with pytest.raises(StoreRefusedError):
            reader.command(statement)
    with pytest.raises(StoreRefusedError):
        reader.insert(SINK_OFFSETS, [("a", "b", "c", 1, 1)])
    reader.close()
    assert value(filled, "SELECT count() FROM sink_offsets") == 0


@pytest.mark.clickhouse
@pytest.mark.parametrize("user", ["", "rootrank_reader"])
def test_sql_shows_no_file_of_the_machine(run: Run, filled: Store, tmp_path: Path, user: str) -> None:
    (tmp_path / "secret").write_text("a secret")
    for text in ("SELECT * FROM file('{}', 'LineAsString')", "SELECT file('{}')", "SELECT 1 INTO OUTFILE '{}.out'"):
        result = run("sql", text.format(tmp_path / "secret"), "--reader-user", user, url=url_of(filled.settings))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "a secret" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


@pytest.mark.clickhouse
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_engine_with_a_reader_is_read_as_that_reader(filled: Store, host: str) -> None:
    settings = replace(filled.settings, host=host)

    assert reading_settings(settings) == as_reader(settings, user="rootrank_reader")


@pytest.mark.clickhouse
def test_an_engine_whose_reader_does_not_let_us_in_is_read_as_whom_the_address_names(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("rootrank_reader:other\n")
    server = ClickHouseServer(tmp_path, passwords=tmp_path / "passwords")
    settings = settings_from_url(server.start())
    try:
        assert reading_settings(settings) == as_reader(settings)
    finally:
        server.stop()


def test_another_host_or_user_is_read_as_it_is() -> None:
    for url in ("http://ch.example:8123", "http://analyst@127.0.0.1:1"):
        assert reading_settings(settings_from_url(url)).readonly


@pytest.mark.clickhouse
def test_query_lists_and_runs(run: Run, filled: Store) -> None:
    url = url_of(filled.settings)
    listed = run("query", "--list")
    assert listed.exit_code == 0
    assert "\nchain  " in listed.stdout
    assert "--param" not in listed.stdout
    assert len(listed.stdout.splitlines()) == len(list_queries()) + 1
    assert "rootrank query chain --param incident=" in run("query", "--list", "--long").stdout
    assert {q["name"] for q in orjson.loads(run("query", "--json").stdout)} >= {"chain", "incidents"}
    answer = run("query", "chain", "--param", "incident=i1", "--json", url=url)
    assert [step["role"] for step in orjson.loads(answer.stdout)] == ["root", "symptom"]


def test_help_of_a_named_query_is_its_question_parameters_and_example(run: Run) -> None:
    helped = run("query", "gaps", "--help")
    assert helped.exit_code == 0
    assert "rootrank query gaps" in helped.stdout
    assert "chain" not in helped.stdout
    assert "Run a named query" in run("query", "--help").stdout
    assert run("query", "nonsense", "--help").exit_code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["query", "chain"], "needs --param incident="),
        (["query", "chain", "--param", "incident"], "name=value"),
        (["query", "nonsense"], "There are: attempts_of_job, chain"),
    ],
)
def test_wrong_use_of_query_is_said_before_anything_is_asked(run: Run, words: list[str], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("words", [["sql", "SELECT 1"], ["query", "gaps"], ["migrate"], ["migrate", "--status"]])
def test_an_engine_that_is_away_is_exit_3_and_says_what_to_do(run: Run, words: list[str]) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "does not answer" in result.stderr
    assert "rootrank up" in result.stderr
    assert "(connection refused)" in result.stderr


@pytest.mark.clickhouse
def test_a_database_that_is_not_migrated_says_so(run: Run, empty_store: Store) -> None:
    result = run("query", "gaps", url=url_of(empty_store.settings))
    assert result.exit_code == 3
    assert "rootrank migrate" in result.stderr


@pytest.mark.clickhouse
def test_no_rows_of_the_live_run_names_the_runs_that_have_some(run: Run, store: Store) -> None:
    put(store, seed.incident(run="replay"))
    asked = run("query", "incidents", "--json", url=url_of(store.settings))
    assert (asked.stdout, asked.stderr) == ("[]\n", "rows of run replay exist: add --param run=replay\n")


@pytest.mark.clickhouse
def test_no_rows_of_the_last_days_says_that_older_ones_may_be_asked_for(run: Run, store: Store) -> None:
    url = url_of(store.settings)
    assert "older ones add --param from=DAY" in run("query", "mtbf_by_cohort", url=url).stderr
    assert run("query", "mtbf_by_cohort", "--param", "from=2026-03-01", url=url).stderr == ""


@pytest.mark.clickhouse
def test_a_value_that_does_not_fit_is_said_in_the_words_of_the_engine(run: Run, filled: Store) -> None:
    result = run("query", "gaps", "--param", "limit=many", url=url_of(filled.settings))
    assert result.exit_code == 2
    assert "(BAD_QUERY_PARAMETER)" in result.stderr
    assert not any(frame in result.stderr for frame in ("server response", "for url", "(version", "DB::Exception"))


@pytest.mark.clickhouse
def test_migrate_shows_does_and_then_has_nothing_to_do(run: Run, empty_store: Store) -> None:
    url = url_of(empty_store.settings)
    status = run("migrate", "--status", "--json", url=url)
    assert (status.exit_code, orjson.loads(status.stdout)[0]["state"]) == (1, "pending")
    dry = run("migrate", "--dry-run", url=url)
    assert "CREATE TABLE IF NOT EXISTS raw_lines_rows" in dry.stdout
    assert run("migrate", "--status", url=url).exit_code == 1
    assert "applied 0001 raw_lines" in run("migrate", url=url).stdout
    assert run("migrate", "--status", url=url).exit_code == 0
    assert run("migrate", "--json", url=url).stdout == "[]\n"


@pytest.mark.clickhouse
def test_log_text_cannot_steer_the_terminal(run: Run, store: Store) -> None:
    letter = r.DeadLetter(topic="raw", partition=0, offset=1, reason="\x1b]0;owned\x07\x9b31m[red]\u202e", data="AA==")
    put(store, letter)
    for words in (["query", "dead_letters_by_reason"], ["query", "dead_letters_by_reason", "--json"]):
        out = run(*words, url=url_of(store.settings)).stdout
        assert all(c.isprintable() or c == "\n" for c in out)
        assert "owned" in out
        assert "[red]" in out


def test_wide_rows_become_blocks_and_narrow_ones_a_table() -> None:
    answer = Answer(columns=("a", "long"), types=("", ""), rows=[[1, "x" * 50], [None, ["y", True]]])
    assert answer_text(answer, width=100).splitlines()[1:] == ["1  " + "x" * 50, "-  y, yes"]
    assert answer_text(answer, width=40) == "a     1\nlong  " + "x" * 50 + "\n\na     -\nlong  y, yes"
    assert answer_text(Answer(columns=("a",), types=("",), rows=[])) == "no rows (a)"


@pytest.mark.parametrize(("width", "line"), [(200, 1), (40, 0)])
def test_a_stamp_is_shown_to_microseconds_and_json_keeps_it_whole(width: int, line: int) -> None:
    stamp = "2026-03-11 10:31:42.118000500"
    answer = Answer(columns=("body", "at"), types=("", ""), rows=[[f"{stamp} read", stamp]])
    shown = answer_text(answer, width=width)
    assert f"{stamp} read" in shown.splitlines()[line]
    assert shown.endswith("  2026-03-11 10:31:42.118000")
    assert orjson.loads(answer_json(answer))[0]["at"] == stamp


def test_json_keeps_what_it_escapes() -> None:
    answer = Answer(columns=("a",), types=("",), rows=[["\x9b\u202e\n 𝔘 \U000e0001"]])
    assert orjson.loads(answer_json(answer)) == [{"a": "\x9b\u202e\n 𝔘 \U000e0001"}]
    assert printable("a\x1b\n\u202e") == "a\\x1b\\n\\u202e"


def test_the_address_is_read_and_its_password_never_shown(tmp_path: Path) -> None:
    settings = settings_from_url("https://u%40x:p%2Fw@ch.example:9440/db1")
    assert (settings.user, settings.password, settings.database, settings.secure) == ("u@x", "p/w", "db1", True)
    assert "p/w" not in repr(settings) + settings.address
    assert settings_from_url("http://h").database == "rootrank"
    (tmp_path / "pw").write_text("from file\n")
    assert settings_from_url("http://u:x@h", password_file=tmp_path / "pw").password == "from file"
    assert as_reader(settings, user="reader", password="r") == replace(settings, user="reader", password="r")
    with pytest.raises(StoreSettingsError, match="cannot be read"):
        read_password(tmp_path / "none")


@pytest.mark.parametrize("url", ["clickhouse://h", "http://", "http://h:port/", "", "h:8123"])
def test_an_address_that_cannot_be_read_is_said(run: Run, url: str) -> None:
    with pytest.raises(StoreSettingsError, match="address"):
        settings_from_url(url)


def test_the_driver_keeps_quiet_about_an_engine_that_is_away(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        run("sql", "SELECT 1")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def without_the_driver(*words: str) -> subprocess.CompletedProcess[str]:
    """`rootrank` where the package that speaks to ClickHouse is not installed."""
    program = (
        "import sys; sys.modules.update(clickhouse_connect=None, urllib3=None, chdb=None)\n"
        "from pipeline.__main__ import main; sys.argv[0] = 'rootrank'; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("words", [["query", "--list"], ["query"]])
def test_queries_are_listed_without_the_package_that_asks_them(words: list[str]) -> None:
    done = without_the_driver(*words)

    assert (done.returncode, done.stderr) == (0, "")
    assert "\nxid_by_node  " in done.stdout


@pytest.mark.parametrize("words", [["query", "incidents"], ["sql", "SELECT 1"], ["migrate", "--status"]])
def test_what_asks_without_the_package_says_what_to_install(words: list[str]) -> None:
    done = without_the_driver(*words)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"rootrank: `{words[0]}` needs the package clickhouse_connect; install it with "
        "`pip install 'rootrank[pipeline]'`, in a checkout with `pip install '.[pipeline]'`\n"
    )
