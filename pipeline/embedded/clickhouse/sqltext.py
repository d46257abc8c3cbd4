"""Just enough SQL lexing to route a statement: what it is, where an INSERT's data start, which format it asks for."""

from collections.abc import Iterator
from dataclasses import dataclass

SPACES = " \t\r\n\f\v"


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """One token. Kind is "word" (bare), "name" (quoted identifier, text without quotes), "text" or "sign"."""

    kind: str
    text: str
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InsertHead:
    """An INSERT that brings data: its table and columns, its SETTINGS clause, the format, where the data start."""

    target: str
    settings: str
    data_format: str
    data_start: int


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens of a statement without spaces and comments."""
    position = 0
    while position < len(sql):
        after_gap = _skip_gap(sql, position)
        if after_gap != position:
            position = after_gap
            continue
        token = _token_at(sql, position)
        yield token
        position = token.end


def _skip_gap(sql: str, position: int) -> int:
    if sql[position] in SPACES:
        return position + 1
    if sql.startswith("/*", position):
        end = sql.find("*/", position + 2)
        return len(sql) if end < 0 else end + 2
    if sql.startswith(("--", "# ", "#!"), position):
        end = sql.find("\n", position)
        return len(sql) if end < 0 else end + 1
    return position


def _token_at(sql: str, position: int) -> Token:
    first = sql[position]
    if first in "'`\"":
        end = _quoted_end(sql, position)
        return Token(kind="text" if first == "'" else "name", text=sql[position + 1 : end - 1], end=end)
    if first == "$":
        tag_end = sql.find("$", position + 1)
        close = sql.find(sql[position : tag_end + 1], tag_end + 1) if tag_end > 0 else -1
        if close > 0:
            return Token(kind="text", text=sql[tag_end + 1 : close], end=close + tag_end + 1 - position)
    if _is_word(first):
        end = position + 1
        while end < len(sql) and _is_word(sql[end]):
            end += 1
        return Token(kind="word", text=sql[position:end], end=end)
    return Token(kind="sign", text=first, end=position + 1)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_" or character >= "\x80"


def _quoted_end(sql: str, position: int) -> int:
    quote, end = sql[position], position + 1
    while end < len(sql):
        if sql[end] == "\\":
            end += 2
        elif sql[end] == quote:
            if not sql.startswith(quote, end + 1):
                return end + 1
            end += 2
        else:
            end += 1
    return len(sql)


def first_keyword(sql: str) -> str:
    """Return the first word in upper case; an opening parenthesis counts as SELECT."""
    for token in tokens(sql):
        if token.kind == "word":
            return token.text.upper()
        if token.text != "(":
            return token.text
    return ""


def output_format(sql: str) -> str | None:
    """Return the format of the statement's own FORMAT clause, or None."""
    found, depth, previous = None, 0, ""
    for token in tokens(sql):
        if token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.kind == "word" and depth == 0 and previous == "FORMAT":
            found = token.text
        previous = token.text.upper() if token.kind == "word" else ""
    return found


def split_insert(sql: str) -> InsertHead | None:
    """Return where the data of an INSERT start, or None for any other statement (INSERT ... SELECT included)."""
    depth, settings_start, format_start = 0, -1, -1
    for index, token in enumerate(tokens(sql)):
        word = token.text.upper() if token.kind == "word" else ""
        start = token.end - len(token.text)
        if index == 0 and word != "INSERT":
            return None
        if token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth or not word:
            continue
        if format_start >= 0:
            return _insert_head(sql, settings_start, format_start, token.text, _after_newline(sql, token.end))
        if word in {"SELECT", "WITH", "INFILE"}:
            return None
        if word == "VALUES":
            return _insert_head(sql, settings_start, start, "Values", token.end)
        format_start = start if word == "FORMAT" else -1
        settings_start = start if word == "SETTINGS" else settings_start
    return None


def _insert_head(sql: str, settings_start: int, end: int, data_format: str, data_start: int) -> InsertHead:
    cut = settings_start if settings_start >= 0 else end
    return InsertHead(target=sql[:cut], settings=sql[cut:end], data_format=data_format, data_start=data_start)


def _after_newline(sql: str, position: int) -> int:
    """Skip what stands between the format's name and its data: blanks and one line end."""
    while position < len(sql) and sql[position] in " \t\f":
        position += 1
    if sql.startswith("\r", position):
        position += 1
    return position + 1 if sql.startswith("\n", position) else position
