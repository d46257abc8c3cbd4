"""The few requests that are made of an API server: get, put, and lines of a watch. Standard library only.

A watch is one HTTP answer that does not end, one JSON object a line. Whatever breaks it (a closed connection, half a
line, silence beyond the time that was asked for) is one error, and the watch begins again where it was.
"""

import http.client
import ssl
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from shippers.control.kube_access import Access

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_SHOWN: Final = 200


class ApiError(Exception):
    """The server cannot be reached, or did not answer as agreed. Asking again later may do."""


class GoneError(ApiError):
    """The server has forgotten what was before (410): list again."""


class ForbiddenError(ApiError):
    """The agent has no right to it (401, 403)."""


class MissingError(ApiError):
    """There is nothing of that name (404)."""


class ConflictError(ApiError):
    """Somebody wrote it since it was read (409)."""


_ERRORS: Final[dict[int, type[ApiError]]] = {
    401: ForbiddenError, 403: ForbiddenError, 404: MissingError, 409: ConflictError, 410: GoneError,
}  # fmt: skip


class Api:
    """Requests to one API server, each on a connection of its own. Safe to use from several threads."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self.access = access
        self._timeout_s = timeout_s

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The object or list at `path`. Raises ApiError."""
        return self._whole("GET", path, query, None)

    def send(self, method: str, path: str, shape: dict[str, Any]) -> dict[str, Any]:
        """PUT or POST an object. Raises ApiError."""
        return self._whole(method, path, {}, orjson.dumps(shape))

    def watch(self, path: str, silence_s: float, **query: str) -> Iterator[dict[str, Any]]:
        """The changes that the server tells, until it ends the answer. Raises ApiError where it breaks off."""
        connection, answer = self._ask("GET", path, {"watch": "1", **query}, None, silence_s)
        try:
            while line := answer.readline(MAX_LINE_BYTES + 1):
                if not line.endswith(b"\n"):
                    raise ApiError(f"{path}: the answer broke off within a line")
                yield self._object(path, line)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{path}: {_why(error)}") from None
        finally:
            connection.close()

    def _whole(self, method: str, path: str, query: dict[str, str], body: bytes | None) -> dict[str, Any]:
        connection, answer = self._ask(method, path, query, body, self._timeout_s)
        try:
            data = answer.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{path}: {_why(error)}") from None
        finally:
            connection.close()
        if len(data) > MAX_ANSWER_BYTES:
            raise ApiError(f"{path}: the answer is larger than {MAX_ANSWER_BYTES} bytes")
        return self._object(path, data)

    def _ask(
        self, method: str, path: str, query: dict[str, str], body: bytes | None, timeout_s: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The connection and the answer of a request that was taken. A token that is refused is read anew once."""
        try:
            token = self.access.bearer()
            answered = self._once(method, path, query, body, timeout_s, token)
            if answered[1].status == 401 and (fresh := self.access.bearer(is_refused=True)) != token:
                answered[0].close()
                answered = self._once(method, path, query, body, timeout_s, fresh)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{self.access.name}: {_why(error)}") from None
        connection, answer = answered
        if answer.status >= 300:
            text = _message(answer)
            connection.close()
            raise _ERRORS.get(answer.status, ApiError)(f"{path}: {answer.status} {text}")
        return connection, answer

    def _once(
        self, method: str, path: str, query: dict[str, str], body: bytes | None, timeout_s: float, token: str
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        access = self.access
        connection: http.client.HTTPConnection
        if access.tls is None:
            connection = http.client.HTTPConnection(access.host, access.port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(access.host, access.port, timeout=timeout_s, context=access.tls)
        headers = {"Accept": "application/json", "User-Agent": "rootrank-shipper"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, access.path + path + ("?" + urlencode(query) if query else ""), body, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _object(self, path: str, data: bytes) -> dict[str, Any]:
        try:
            shape = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ApiError(f"{path}: the answer is no JSON") from None
        if not isinstance(shape, dict):
            raise ApiError(f"{path}: the answer is no JSON object")
        return shape


def _message(answer: http.client.HTTPResponse) -> str:
    """What the server says of its refusal, cut."""
    try:
        shape = orjson.loads(answer.read(65_536))
        return str(shape.get("message") or answer.reason)[:_SHOWN]
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError, AttributeError):
        return answer.reason[:_SHOWN]


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); give the certificate authority of the cluster"
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"the answer broke off ({type(error).__name__})"
