"""How to get into Kafka: TLS, SCRAM, client certificates; and why it lets nobody in, in words that say what to do.

Standard library only: the node agent and the pipeline use different clients and share this. Secrets are read from
files each time they are needed, so that one that was changed is used with the next connection; no text holds one.
"""

import socket
import ssl
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from schemas.kafka_login import login_problem
from schemas.small_file import read_small

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

ENVIRONMENT: Final = "KAFKA_"
CONNECT_S: Final = 3.0
ANSWER_S: Final = 5.0
NOTHING_LISTENS: Final = "nothing listens there"
NO_ANSWER: Final = "does not answer"
NOT_KAFKA: Final = "something listens there and does not answer as Kafka does; correct the address"
_API_VERSIONS: Final = struct.pack(">ihhih8s", 18, 18, 0, 1, 8, b"rootrank")
_METADATA: Final = struct.pack(">ihhih8sib", 23, 3, 7, 1, 8, b"rootrank", 0, 0)
_LEAST_ANSWER: Final = 8
# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_...).
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "PACKET_LENGTH_TOO_LONG",
)  # fmt: skip
_EXPIRED, _NOT_YET, _WRONG_HOST, _WRONG_ADDRESS = 10, 9, 62, 64


class AccessError(ValueError):
    """A file that is needed cannot be used. The text names it and says what to do."""


class Access(Struct, frozen=True, kw_only=True):
    """How to log in. The names are those of the settings of the node agent."""

    security_protocol: Protocol = "PLAINTEXT"
    ssl_cafile: str = ""
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    ssl_password_file: str = ""
    sasl_mechanism: Mechanism = ""
    sasl_username: str = ""
    sasl_password_file: str = ""

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """Whether a user name and a password are sent."""
        return self.security_protocol.startswith("SASL")

    def password(self) -> str:
        """The password now. Raises AccessError."""
        return secret(self.sasl_password_file, "sasl_password_file")

    def context(self) -> ssl.SSLContext:
        """TLS as these settings want it: certificate and name of the server are checked. Raises AccessError."""
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ssl_cafile:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            _bytes(self.ssl_cafile, "ssl_cafile")  # OpenSSL reads a device or a pipe for ever
            try:
                context.load_verify_locations(self.ssl_cafile)
            except OSError as error:
                raise AccessError(_unusable("ssl_cafile", self.ssl_cafile, error)) from None
        if self.ssl_certfile:
            self._load_own(context)
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        key = self.ssl_keyfile or self.ssl_certfile
        for name, path in (("ssl_certfile", self.ssl_certfile), ("ssl_keyfile", key)):
            _bytes(path, name)
        # OpenSSL would ask on the terminal for a password that is missing.
        password = secret(self.ssl_password_file, "ssl_password_file") if self.ssl_password_file else ""
        try:
            context.load_cert_chain(self.ssl_certfile, key, password=lambda: password)
        except (OSError, ValueError) as error:
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                why = f"ssl_keyfile {key} is not the key of ssl_certfile {self.ssl_certfile}; name the pair"
            else:
                why = (
                    f"ssl_certfile {self.ssl_certfile} with ssl_keyfile {key} cannot be used: no PEM, or the password "
                    "in ssl_password_file does not open the key"
                )
            raise AccessError(why) from None


PLAIN: Final = Access()


def from_environment(environment: Mapping[str, str]) -> Access:
    """What the variables KAFKA_SECURITY_PROTOCOL, KAFKA_SSL_CAFILE, … say. Raises AccessError."""
    said = {name: environment.get(f"{ENVIRONMENT}{name.upper()}", "") for name in Access.__struct_fields__}
    if said["security_protocol"] not in ("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise AccessError("KAFKA_SECURITY_PROTOCOL is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; correct it")
    if said["sasl_mechanism"] not in ("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise AccessError("KAFKA_SASL_MECHANISM is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; correct it")
    access = Access(**{name: value for name, value in said.items() if value})  # type: ignore[arg-type]
    if problem := incomplete(access):
        raise AccessError(f"the environment: {problem} (KAFKA_ and the name in capitals)")
    return access


def incomplete(access: Access) -> str:
    """What these settings lack or contradict; empty where they fit together."""
    if access.logs_in and not access.sasl_mechanism:
        return f"security_protocol is {access.security_protocol} and sasl_mechanism is not set; set SCRAM-SHA-512"
    if access.logs_in and not (access.sasl_username and access.sasl_password_file):
        return "sasl_mechanism is set and sasl_username or sasl_password_file is not; set both"
    if access.sasl_mechanism and not access.logs_in:
        return f"sasl_mechanism is set and security_protocol is {access.security_protocol}; set SASL_SSL"
    if access.ssl_keyfile and not access.ssl_certfile:
        return "ssl_keyfile is set and ssl_certfile is not; set both"
    if (access.ssl_cafile or access.ssl_certfile) and not access.uses_tls:
        return f"certificates are set and security_protocol is {access.security_protocol}; set SSL or SASL_SSL"
    return ""


def secret(path: str, setting: str) -> str:
    """The text in a file, without the end of its line. Raises AccessError."""
    try:
        return _bytes(path, setting).decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise AccessError(f"{setting} {path} is no text in UTF-8; write the secret anew") from None


def stamps(access: Access) -> list[tuple[int, int, int] | None]:
    """What changes when one of the files does."""
    names = [name for name in Access.__struct_fields__ if name.endswith("file")]
    return [_stamp(path) for name in names if (path := getattr(access, name))]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size)


def too_open(access: Access) -> list[str]:
    """Files with secrets that every user of the machine can read, each with what to do."""
    said = []
    for name in ("ssl_keyfile", "ssl_password_file", "sasl_password_file"):
        path = getattr(access, name)
        try:
            mode = Path(path).stat().st_mode if path else 0
        except OSError:
            continue
        if mode & stat.S_IROTH:
            said.append(f"{name} {path} can be read by every user of this machine; chmod 600 it")
    return said


def problem_at(address: str, access: Access) -> str:
    """Why a broker at this address does not let us in, and what to do; empty where it does. Takes seconds at most."""
    host, _, port = address.rpartition(":")
    host, listens = host.strip("[]"), False
    try:
        context = access.context() if access.uses_tls else None
        password = access.password() if access.logs_in else ""
        with socket.create_connection((host, int(port)), timeout=CONNECT_S) as plain:
            listens = True
            plain.settimeout(ANSWER_S)
            if context is None:
                return _ask(plain, access, password)
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                return _ask(encrypted, access, password)
    except AccessError as error:
        return str(error)
    except ssl.SSLError as error:
        return _refusal(error, host, access)
    except TimeoutError:
        return NOT_KAFKA if listens else NO_ANSWER
    except ConnectionRefusedError:
        return NOTHING_LISTENS
    except ConnectionError:
        return _hung_up(access)
    except (OSError, ValueError):
        return NOTHING_LISTENS


def _ask(connection: socket.socket, access: Access, password: str) -> str:
    """The question that every broker answers before a login; then the login."""
    connection.sendall(_API_VERSIONS)
    answer = connection.recv(_LEAST_ANSWER)
    if not answer:
        return _hung_up(access)
    if answer[:2] == b"\x15\x03":
        return "it speaks TLS; set security_protocol to SSL or SASL_SSL"
    if len(answer) < _LEAST_ANSWER or answer[4:] != struct.pack(">i", 1):
        return NOT_KAFKA
    left = struct.unpack(">i", answer[:4])[0] - 4
    while left > 0 and (more := connection.recv(min(left, 65536))):
        left -= len(more)
    if access.logs_in:
        return login_problem(connection, access.sasl_mechanism, access.sasl_username, password)
    connection.sendall(_METADATA)
    return "" if connection.recv(1) else "it wants a login; set security_protocol to SASL_SSL, and sasl_mechanism"


def _hung_up(access: Access) -> str:
    if access.uses_tls and not access.ssl_certfile:
        return "it hung up: it may want a client certificate; set ssl_certfile and ssl_keyfile, or use its other port"
    return "it hung up; is security_protocol that of this port?"


def _refusal(error: ssl.SSLError, host: str, access: Access) -> str:
    """What a failed handshake means and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return "the broker's certificate has expired; renew it there (and check this machine's clock)"
        if error.verify_code == _NOT_YET:
            return "the broker's certificate is not valid yet; check this machine's clock"
        if error.verify_code in (_WRONG_HOST, _WRONG_ADDRESS):
            return f"the broker's certificate is not for {host}; use a name that it holds, or have it issued for {host}"
        return (
            "the broker's certificate is signed by nobody known here; "
            f"set ssl_cafile to its authority's certificate{f' (now {access.ssl_cafile})' if access.ssl_cafile else ''}"
        )
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or ("HANDSHAKE_FAILURE" in reason and not access.ssl_certfile):
        return "it wants a client certificate; set ssl_certfile and ssl_keyfile"
    if "CERTIFICATE_EXPIRED" in reason:
        return f"it says that our certificate {access.ssl_certfile} has expired; have it renewed"
    if "CERTIFICATE" in reason and not access.ssl_certfile:
        return "it wants a client certificate; set ssl_certfile and ssl_keyfile"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"it does not accept our certificate {access.ssl_certfile}; have it issued by an authority it trusts"
    if reason in (
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_EOF_WHILE_READING",
        "PACKET_LENGTH_TOO_LONG",
    ):
        return "it does not speak TLS there; set security_protocol to PLAINTEXT or SASL_PLAINTEXT, or use its TLS port"
    return (
        f"TLS failed ({reason.lower().replace('_', ' ') or 'no reason given'}); compare the settings with the broker's"
    )


def _bytes(path: str, setting: str) -> bytes:
    try:
        return read_small(Path(path))
    except OSError as error:
        raise AccessError(_unusable(setting, path, error)) from None


def _unusable(setting: str, path: str, error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{setting} {path} is no certificate in PEM; convert it, or name the right file"
    do = {
        PermissionError: "let the user of this process read it",
        FileNotFoundError: "put it there, or correct the setting",
    }.get(type(error), "look at the path")  # fmt: skip
    return f"{setting} {path or '(not set)'} cannot be read ({error.strerror}); {do}"
