"""Reads the feed over HTTP with the standard library alone, so that `rootrank incidents` needs no extra."""

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pipeline.web.answers import ClockListing, JobView, Listing
from schemas.records import Incident

T = TypeVar("T")

_ANSWER_S: Final = 10.0
# Three heartbeats: a stream that is silent for longer is dead.
_SILENT_S: Final = 45.0

_KINDS: Final[dict[str, type[http.client.HTTPConnection]]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}


class FeedUnreachableError(Exception):
    """Nobody answers at the address, or not as a feed does."""


class FeedRefusedError(Exception):
    """The feed answered that it will not; the text is its own."""


@dataclass(frozen=True, kw_only=True)
class FeedClient:
    """One feed, by its address (`http://127.0.0.1:8088`)."""

    url: str

    def listing(self, asked: Mapping[str, str]) -> Listing:
        """The incidents that a query asks for. Raises FeedUnreachableError, FeedRefusedError."""
        return self._ask(f"/api/incidents?{urlencode(asked)}", Listing)

    def job(self, job_id: str, asked: Mapping[str, str]) -> JobView:
        """What the feed holds of a job. Raises FeedUnreachableError, FeedRefusedError."""
        return self._ask(f"/api/jobs/{quote(job_id, safe='')}?{urlencode(asked)}", JobView)

    def clocks(self, asked: Mapping[str, str]) -> ClockListing:
        """The clocks of the nodes. Raises FeedUnreachableError, FeedRefusedError."""
        return self._ask(f"/api/clocks?{urlencode(asked)}", ClockListing)

    def _ask(self, path: str, answer: type[T]) -> T:
        connection = self._connection(_ANSWER_S)
        try:
            return msgspec.json.decode(self._get(connection, path).read(), type=answer)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise FeedUnreachableError(str(error)) from None
        finally:
            connection.close()

    def stream(self, asked: Mapping[str, str], last_event_id: str) -> Iterator[tuple[str, Incident]]:
        """Event ids and incidents as they change. Ends by FeedUnreachableError when the connection does."""
        connection = self._connection(_SILENT_S)
        try:
            answer = self._get(connection, f"/events?{urlencode(asked)}", {"Last-Event-ID": last_event_id})
            yield from _events(answer)
            raise FeedUnreachableError("the feed closed the stream")
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise FeedUnreachableError(str(error)) from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        try:
            parts = urlsplit(self.url)
            return _KINDS[parts.scheme](parts.hostname or "", parts.port, timeout=timeout_s)
        except (KeyError, ValueError, http.client.InvalidURL):
            raise FeedUnreachableError("this is not an http:// or https:// address") from None

    def _get(
        self, connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection.request("GET", urlsplit(self.url).path.rstrip("/") + path, headers=dict(headers or {}))
        answer = connection.getresponse()
        if answer.status == 400:
            raise FeedRefusedError(_reason(answer.read()))
        if answer.status != 200:
            raise FeedUnreachableError(f"it answered {answer.status}: {_reason(answer.read())}")
        return answer


def _reason(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=dict[str, str])["error"]
    except (msgspec.MsgspecError, KeyError):
        return "not the answer of a rootrank feed"


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Incident]]:
    # The feed writes an incident as one line of data; other fields and comments are skipped, as the format asks.
    kind, name = "", ""
    while line := answer.readline():
        field, _, value = line.decode("utf-8").rstrip("\r\n").partition(": ")
        if field == "event":
            kind = value
        elif field == "id":
            name = value
        elif field == "data" and kind == "incident":
            yield name, msgspec.json.decode(value, type=Incident)
        elif field == "":
            kind = ""
