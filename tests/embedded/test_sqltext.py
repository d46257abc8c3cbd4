"""Routing statements by their text."""

import pytest

from pipeline.embedded.clickhouse.sqltext import first_keyword, output_format, split_insert, tokens


@pytest.mark.parametrize(
    ("sql", "keyword"),
    [
        ("select 1", "SELECT"),
        ("  /* x */ -- y\n Select 1", "SELECT"),
        ("# comment\nSHOW TABLES", "SHOW"),
        ("((select 1))", "SELECT"),
        ("'text'", "text"),
        ("", ""),
        ("-- only a comment", ""),
        ("/* open", ""),
    ],
)
def test_the_first_keyword_is_found_behind_comments(sql: str, keyword: str) -> None:
    assert first_keyword(sql) == keyword


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FORMAT JSON", "JSON"),
        ("SELECT 1\nformat\tNative SETTINGS max_threads=1", "Native"),
        ("SELECT 'FORMAT JSON'", None),
        ("SELECT format FROM t", "FROM"),  # harmless: a format nobody streams, so the result comes whole
        ("SELECT * FROM (SELECT 1 FORMAT TSV)", None),
        ("SELECT 1 -- FORMAT JSON", None),
        ("SELECT `FORMAT` JSON", None),
    ],
)
def test_the_output_format_is_the_clause_and_no_text(sql: str, expected: str | None) -> None:
    assert output_format(sql) == expected


@pytest.mark.parametrize(
    ("sql", "target", "data_format", "data"),
    [
        ("INSERT INTO t FORMAT TSV\n1\t2\n", "INSERT INTO t ", "TSV", "1\t2\n"),
        ("INSERT INTO t FORMAT TSV 1\t2\n", "INSERT INTO t ", "TSV", "1\t2\n"),
        ("insert into t (a, b) format CSV\r\n1,2", "insert into t (a, b) ", "CSV", "1,2"),
        ("INSERT INTO t FORMAT Native", "INSERT INTO t ", "Native", ""),
        ("INSERT INTO t FORMAT Native\n\n\x01", "INSERT INTO t ", "Native", "\n\x01"),
        ("INSERT INTO t (`format`, \"a\") VALUES (1)", "INSERT INTO t (`format`, \"a\") ", "Values", " (1)"),
        ("INSERT INTO t SETTINGS a=1 FORMAT CSV 1", "INSERT INTO t |SETTINGS a=1 ", "CSV", "1"),
        ("INSERT INTO t (settings) VALUES (1)", "INSERT INTO t (settings) ", "Values", " (1)"),
        ("/* why */ INSERT INTO t VALUES", "/* why */ INSERT INTO t ", "Values", ""),
    ],
)  # fmt: skip
def test_an_insert_is_cut_where_its_data_start(sql: str, target: str, data_format: str, data: str) -> None:
    head = split_insert(sql)

    assert head is not None
    assert (head.target, head.settings) == (target.partition("|")[0], target.partition("|")[2])
    assert (head.data_format, sql[head.data_start :]) == (data_format, data)


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO t SELECT 1", "INSERT INTO t WITH 1 AS x SELECT x", "SELECT 1 FORMAT TSV", "insert into t", "", "x"],
)
def test_other_statements_bring_no_data(sql: str) -> None:
    assert split_insert(sql) is None


def test_quotes_escapes_and_heredocs_stay_one_token() -> None:
    sql = "SELECT 'it''s \\' x', `a``b`, $tag$ FORMAT ' $tag$, $1"

    assert [(token.kind, token.text) for token in tokens(sql) if token.text != ","] == [
        ("word", "SELECT"),
        ("text", "it''s \\' x"),
        ("name", "a``b"),
        ("text", " FORMAT ' "),
        ("sign", "$"),
        ("word", "1"),
    ]


@pytest.mark.parametrize("sql", ["'open", "`open\\", "$x$ open", "/*", "'\\", "$", "é", "\x00"])
def test_broken_text_ends(sql: str) -> None:
    assert [token.end for token in tokens(sql)][-1:] in ([len(sql)], [])
