"""Logging in to a broker by hand, only to learn whether it lets us in: SASL PLAIN and SCRAM (RFC 5802).

The client libraries answer a refused login with a time-out; this says what was refused.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from typing import Final

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_UNSUPPORTED: Final = 33
_LONGEST: Final = 64 * 1024
_ITERATIONS_AT_MOST: Final = 1_000_000


class _RefusedError(Exception):
    """The broker says no."""


def login_problem(connection: socket.socket, mechanism: str, user: str, password: str) -> str:
    """Why this user cannot log in, and what to do; empty where it can. Raises OSError. The password is in no text."""
    code, body = _ask(connection, _HANDSHAKE, 1, _text(mechanism))
    if code == _UNSUPPORTED:
        offered = ", ".join(_texts(body)) or "none"
        return f"it does not offer sasl_mechanism {mechanism}; it offers {offered}: set one of them"
    try:
        if mechanism == "PLAIN":
            _authenticate(connection, b"\0" + user.encode() + b"\0" + password.encode())
        elif not _scram(connection, mechanism, user, password):
            return "it does not prove that it knows the password: it may not be the broker; look at the address"
    except (_RefusedError, ConnectionError):
        return f'it refuses user "{user}": correct sasl_username or the password in sasl_password_file'
    except (ValueError, KeyError):
        return f"its answer to {mechanism} is not understood; is it a Kafka broker?"
    return ""


def _scram(connection: socket.socket, mechanism: str, user: str, password: str) -> bool:
    digest = "sha" + mechanism.rsplit("-", 1)[1]
    nonce = secrets.token_urlsafe(24)
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    said = _authenticate(connection, f"n,,{first}".encode()).decode()
    fields = dict(field.split("=", 1) for field in said.split(","))
    iterations = int(fields["i"])
    if not fields["r"].startswith(nonce) or iterations > _ITERATIONS_AT_MOST:
        raise ValueError("no SCRAM")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), iterations)
    last = f"c=biws,r={fields['r']}"
    signed = f"{first},{said},{last}".encode()
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = _authenticate(connection, f"{last},p={proof}".encode()).decode()
    proven = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    return hmac.compare_digest(answer, f"v={base64.b64encode(proven).decode()}")


def _authenticate(connection: socket.socket, token: bytes) -> bytes:
    code, body = _ask(connection, _AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    if code:
        raise _RefusedError
    (length,) = struct.unpack_from(">h", body)  # of the error's text, -1 where there is none
    start = 2 + max(length, 0)
    (length,) = struct.unpack_from(">i", body, start)
    return body[start + 4 : start + 4 + max(length, 0)]


def _ask(connection: socket.socket, key: int, version: int, body: bytes) -> tuple[int, bytes]:
    """The error code and the rest of an answer."""
    head = struct.pack(">hhi", key, version, 2) + _text("rootrank")
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 6 <= size <= _LONGEST:
        raise ConnectionError("no answer of Kafka")
    answer = _read(connection, size)
    return struct.unpack_from(">h", answer, 4)[0], answer[6:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("it hung up")
        data += more
    return data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _texts(body: bytes) -> list[str]:
    (count,), at, found = struct.unpack_from(">i", body), 4, []
    for _ in range(min(count, 20)):
        (length,) = struct.unpack_from(">h", body, at)
        found.append(body[at + 2 : at + 2 + length].decode("utf-8", "replace"))
        at += 2 + length
    return found
