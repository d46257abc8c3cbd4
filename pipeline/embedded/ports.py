"""Choosing a loopback port: the one asked for, the one used last time, or any free one."""

import socket
from pathlib import Path

from pipeline.embedded.errors import PortTakenError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT are no listener
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port(preferred: int | None = None) -> int:
    """Return the preferred port where nothing listens on it at the moment, else any free one."""
    if preferred is not None and is_free(preferred):
        return preferred
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def choose_port(*, name: str, asked: int | None, last_used: int | None) -> int:
    """Return the port to listen on; a port asked for is used or refused, never replaced.

    Raises:
        PortTakenError: the port asked for has a listener.

    """
    if asked is not None:
        if not is_free(asked):
            raise PortTakenError(
                f"{name} cannot listen on {LOOPBACK}:{asked}: the port is taken (`ss -ltnp` shows by whom); "
                "stop that program, or leave the port out to get a free one"
            )
        return asked
    return free_port(last_used)


def read_last_port(path: Path) -> int | None:
    """Return the port remembered in a file, or None."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def accepts_connections(port: int) -> bool:
    """Tell whether something accepts a TCP connection on this loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False
