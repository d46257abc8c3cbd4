"""Errors as ClickHouse's HTTP interface tells them: a code, a name, a status."""

READONLY = 164
SYNTAX_ERROR = 62
NOT_IMPLEMENTED = 48
AUTHENTICATION_FAILED = 516
ACCESS_DENIED = 497
TOO_MANY_QUERIES = 202
QUERY_TOO_LARGE = 307
INCORRECT_DATA = 117
UNKNOWN_EXCEPTION = 1002

_CODE_MARK = "Code: "
# The codes a client may see most often; all others are status 500, as in ClickHouse.
_STATUS_BY_CODE = {
    6: 400, 26: 400, 27: 400, 36: 400, 38: 400, 41: 400, 43: 400, 44: 400, 53: 400, 62: 400, 69: 400, 72: 400, 117: 400,
    46: 404, 47: 404, 50: 404, 56: 404, 60: 404, 63: 404, 73: 404, 81: 404, 115: 404,
    48: 501, 159: 408, 194: 401, 192: 403, 193: 403, 202: 500, 307: 413, 497: 403, 516: 403,
}  # fmt: skip


class StatementError(Exception):
    """A statement was refused or failed; `code` is ClickHouse's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def status(self) -> int:
        """The HTTP status ClickHouse answers with."""
        return _STATUS_BY_CODE.get(self.code, 500)


def refusal(code: int, name: str, text: str) -> StatementError:
    """Return an error of the adapter in the engine's own words' shape."""
    return StatementError(code, f"{_CODE_MARK}{code}. DB::Exception: {text} ({name})")


def from_engine(error: Exception) -> StatementError:
    """Return an engine error with its code taken from its text."""
    text = str(error)
    start = text.find(_CODE_MARK)
    if start < 0:
        return StatementError(UNKNOWN_EXCEPTION, f"{_CODE_MARK}{UNKNOWN_EXCEPTION}. DB::Exception: {text}")
    digits = text[start + len(_CODE_MARK) :].partition(".")[0]
    return StatementError(int(digits) if digits.isdigit() else UNKNOWN_EXCEPTION, text[start:].strip())
