"""Which loopback port a part gets."""

import socket
from collections.abc import Iterator

import pytest

from pipeline.embedded.errors import PortTakenError
from pipeline.embedded.ports import accepts_connections, choose_port, free_port, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_that_was_asked_for_is_refused_with_what_to_do(taken: int) -> None:
    with pytest.raises(PortTakenError, match=f"127.0.0.1:{taken}.*stop that program"):
        choose_port(name="x", asked=taken, last_used=None)


def test_a_taken_port_that_was_used_last_time_is_replaced(taken: int) -> None:
    assert choose_port(name="x", asked=None, last_used=taken) != taken
    assert free_port(taken) != taken


def test_the_port_of_last_time_is_kept_when_it_is_free() -> None:
    port = free_port()

    assert choose_port(name="x", asked=None, last_used=port) == port
    assert free_port(port) == port


def test_a_listener_is_seen(taken: int) -> None:
    assert accepts_connections(taken)
    assert not is_free(taken)
    assert not accepts_connections(free_port())
