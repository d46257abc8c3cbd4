"""How to reach the API server: from inside the cluster, or by a kubeconfig.

Credentials come from files and are never logged.
"""

import base64
import binascii
import os
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from schemas.small_file import read_small
from shippers.config import ConfigError
from shippers.control.settings import KubernetesSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A projected token is replaced long before it ends; the file is read again after so long, and after every 401.
TOKEN_FRESH_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Access:
    """One API server. `token_file` is read again and again: its content rotates. `tls` is None for plain HTTP, which is
    taken for loopback only.
    """

    host: str
    port: int
    path: str = ""
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None
    namespace: str = "default"
    _read: tuple[float, str] = field(default=(float("-inf"), ""))

    def bearer(self, *, is_refused: bool = False) -> str:
        """The token to send now; empty where there is none. `is_refused`: the last one was not taken.

        Raises OSError.
        """
        if self.token_file is None:
            return self.token
        now_s = time.monotonic()
        if is_refused or now_s - self._read[0] >= TOKEN_FRESH_S:
            self._read = now_s, self.token_file.read_text(encoding="ascii").strip()
        return self._read[1]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.host}:{self.port}"


def access_of(settings: KubernetesSettings, folder: Path = SERVICE_ACCOUNT) -> Access:
    """Where the settings say that the API server is. Raises ConfigError, which says what to do."""
    if settings.kubeconfig:
        return _of_kubeconfig(Path(settings.kubeconfig), settings.context)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            "[control.kubernetes] this is no pod (KUBERNETES_SERVICE_HOST is not set); set "
            'kubeconfig = "/path", or leave the table out where Kubernetes is not to be read'
        )
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; give the pod a service account and mount its token") from None
    return Access(host=host, port=int(port), tls=tls, token_file=folder / "token", namespace=namespace or "default")


def _of_kubeconfig(path: Path, wanted: str) -> Access:
    shape = _yaml(path)
    name = wanted or str(shape.get("current-context") or "")
    context = _named(path, shape, "contexts", "context", name)
    cluster = _named(path, shape, "clusters", "cluster", str(context.get("cluster")))
    user = _named(path, shape, "users", "user", str(context.get("user")))
    for key in ("exec", "auth-provider"):
        if key in user:
            raise ConfigError(
                f"{path}: user {context.get('user')} logs in by a program ({key}), which an agent does not run; "
                "make a service account for it and give its token by tokenFile"
            )
    if cluster.get("insecure-skip-tls-verify"):
        raise ConfigError(f"{path}: insecure-skip-tls-verify is not supported; give certificate-authority")
    url = urlsplit(str(cluster.get("server") or ""))
    if url.scheme not in ("https", "http") or not url.hostname:
        raise ConfigError(f"{path}: server of the cluster is {cluster.get('server')!r}; write https://HOST:PORT")
    if url.scheme == "http" and url.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(f"{path}: the server is not https; plain HTTP is for loopback only (kubectl proxy)")
    token_file = user.get("tokenFile")
    return Access(
        host=url.hostname, port=url.port or (443 if url.scheme == "https" else 80), path=url.path.rstrip("/"),
        tls=_tls(path, cluster, user) if url.scheme == "https" else None, token=str(user.get("token") or ""),
        token_file=path.parent / str(token_file) if token_file else None,
        namespace=str(context.get("namespace") or "default"),
    )  # fmt: skip


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        shape = yaml.safe_load(read_small(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; set [control.kubernetes] kubeconfig") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path}: no kubeconfig: it is not YAML") from None  # the error would show parts of the file
    if not isinstance(shape, dict):
        raise ConfigError(f"{path}: no kubeconfig")
    return shape


def _named(path: Path, shape: dict[str, Any], table: str, key: str, name: str) -> dict[str, Any]:
    entries = shape.get(table)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            return dict(entry[key])
    raise ConfigError(
        f"{path}: there is no {key} called {name!r}; set [control.kubernetes] context to one that there is"
    )


def _tls(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    try:
        data = _decoded(cluster.get("certificate-authority-data"))
        file = cluster.get("certificate-authority")
        tls = ssl.create_default_context(
            cafile=str(path.parent / str(file)) if file and not data else None,
            cadata=data.decode("ascii") if data else None,
        )
        certificate, key = _decoded(user.get("client-certificate-data")), _decoded(user.get("client-key-data"))
        if certificate and key:
            # The library takes a client's key from a file only; nobody else may read this one, and it is gone at once.
            with tempfile.NamedTemporaryFile() as together:
                together.write(certificate + b"\n" + key)
                together.flush()
                tls.load_cert_chain(together.name)
        elif user.get("client-certificate"):
            tls.load_cert_chain(
                path.parent / str(user["client-certificate"]), path.parent / str(user.get("client-key") or "")
            )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: certificates cannot be used ({type(error).__name__}: {error})") from None
    return tls


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True) if text else b""
    except binascii.Error:
        raise ValueError("a certificate or key is not base64") from None
