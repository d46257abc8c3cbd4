"""A fake of the Kubernetes API server: real sockets and HTTP on loopback, objects in memory. No cluster is behind it.

It lists in pages, watches with bookmarks, forgets old versions (410), checks tokens and rights, and takes a Lease only
from whoever read its last version. Faults are set by tests: it drops connections, ends within a line, is slow.
"""

import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Shape = dict[str, Any]


class FakeApi:
    """What the server knows and how it misbehaves."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[str, dict[str, Shape]] = {}
        self.history: list[tuple[int, str, str, Shape]] = []
        self.forgotten = 0
        self.leases: dict[str, Shape] = {}
        self.tokens: set[str] | None = None
        self.forbidden: set[str] = set()
        self.missing: set[str] = {"/apis/kueue.x-k8s.io", "/apis/jobset.x-k8s.io"}
        self.page = 500
        self.half_lines = 0
        self.drops = 0
        self.slow_s = 0.0
        self.ends_at_once = False
        self.bookmark_s = 0.1
        self.requests: list[str] = []
        self.is_down = False
        self.port = 0

    def put(self, path: str, shape: Shape, *, kind: str = "") -> None:
        """Add or change an object."""
        with self.changed:
            self.version += 1
            shape = copy.deepcopy(shape)
            uid = shape["metadata"].setdefault("uid", shape["metadata"]["name"])
            shape["metadata"]["resourceVersion"] = str(self.version)
            known = self.objects.setdefault(path, {})
            self.history.append((self.version, path, kind or ("MODIFIED" if uid in known else "ADDED"), shape))
            known[uid] = shape
            self.changed.notify_all()

    def delete(self, path: str, uid: str) -> None:
        """Remove an object."""
        with self.changed:
            self.version += 1
            shape = copy.deepcopy(self.objects[path].pop(uid))
            shape["metadata"]["resourceVersion"] = str(self.version)
            self.history.append((self.version, path, "DELETED", shape))
            self.changed.notify_all()

    def forget(self) -> None:
        """Compact: no watch can begin at a version before this one."""
        with self.changed:
            self.forgotten = self.version
            self.history.clear()
            self.changed.notify_all()

    def watches(self, path: str) -> int:
        """How many watches of a path were asked for."""
        return sum(request.startswith(f"GET {path}?") and "watch=1" in request for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        api.requests.append(f"GET {self.path}")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self._is_refused(url.path):
            return
        if "/leases/" in url.path:
            self._lease(url.path)
        elif url.path.startswith("/apis/") and url.path.count("/") == 2:
            self._answer(200, {"preferredVersion": {"version": "v1beta1"}})
        elif query.get("watch"):
            self._watch(url.path, query)
        else:
            self._list(url.path, query)

    def do_POST(self) -> None:
        self._write(created=True)

    def do_PUT(self) -> None:
        self._write(created=False)

    def _is_refused(self, path: str) -> bool:
        api = self.server.api
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if api.is_down:
            self.close_connection = True
            self.connection.close()
        elif api.slow_s:
            time.sleep(api.slow_s)  # the one thing that a slow server does
        if api.is_down:
            return True
        if api.tokens is not None and token not in api.tokens:
            self._answer(401, {"kind": "Status", "message": "Unauthorized"})
            return True
        if path in api.forbidden:
            self._answer(403, {"kind": "Status", "message": f'cannot list resource at "{path}"'})
            return True
        if any(path.startswith(each) for each in api.missing):
            self._answer(404, {"kind": "Status", "message": "the server could not find the requested resource"})
            return True
        return False

    def _answer(self, code: int, shape: Shape) -> None:
        data = json.dumps(shape).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _lease(self, path: str) -> None:
        with self.server.api.changed:
            lease = copy.deepcopy(self.server.api.leases.get(path))
        if lease is None:
            self._answer(404, {"kind": "Status", "message": "leases not found"})
        else:
            self._answer(200, lease)

    def _write(self, *, created: bool) -> None:
        api = self.server.api
        api.requests.append(f"{self.command} {self.path}")
        shape = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._is_refused(self.path):
            return
        path = f"{self.path}/{shape['metadata']['name']}" if created else self.path
        with api.changed:
            known = api.leases.get(path)
            said = shape["metadata"].get("resourceVersion")
            is_stale = known is not None if created else known is None or known["metadata"]["resourceVersion"] != said
            if not is_stale:
                api.version += 1
                shape["metadata"]["resourceVersion"] = str(api.version)
                api.leases[path] = shape
        if is_stale:
            self._answer(409, {"kind": "Status", "message": "the object has been modified"})
        else:
            self._answer(201 if created else 200, shape)

    def _list(self, path: str, query: dict[str, str]) -> None:
        api = self.server.api
        with api.changed:
            items = list(api.objects.get(path, {}).values())
            version = api.version
        begin = int(query.get("continue", "0"))
        size = min(api.page, int(query.get("limit", "500")))
        meta: Shape = {"resourceVersion": str(version)}
        if begin + size < len(items):
            meta["continue"] = str(begin + size)
        self._answer(200, {"metadata": meta, "items": items[begin : begin + size]})

    def _watch(self, path: str, query: dict[str, str]) -> None:
        api, since = self.server.api, int(query["resourceVersion"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        until_s = time.monotonic() + float(query.get("timeoutSeconds", "5"))
        while time.monotonic() < until_s and not api.ends_at_once:
            with api.changed:
                if since < api.forgotten:
                    self._chunk({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
                    break
                news = [(v, kind, shape) for v, at, kind, shape in api.history if v > since and at == path]
                if not news:
                    api.changed.wait(api.bookmark_s)
                    news = [(v, kind, shape) for v, at, kind, shape in api.history if v > since and at == path]
                version = api.version
            if api.drops > 0:
                api.drops -= 1
                self.close_connection = True
                return
            for version_of_it, kind, shape in news:
                if api.half_lines > 0:
                    api.half_lines -= 1
                    self._send(json.dumps({"type": kind, "object": shape}).encode()[:40])
                    self.close_connection = True
                    return
                self._chunk({"type": kind, "object": shape})
                since = version_of_it
            if not news and since >= api.forgotten:
                since = version
                self._chunk({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}})
        self._send(b"")

    def _chunk(self, shape: Shape) -> None:
        self._send(json.dumps(shape).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeApi

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none."""


@contextmanager
def serving(api: FakeApi) -> Iterator[FakeApi]:
    """The server on a free port of loopback."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.api = api
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
