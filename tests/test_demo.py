"""What `make demo` says at its end: addresses only while something answers there."""

from pathlib import Path

from pipeline.demo.__main__ import how_to_look_again, where_to_look
from pipeline.up import Addresses

ADDRESSES = Addresses(
    kafka="127.0.0.1:19092", clickhouse_url="http://127.0.0.1:18123/rootrank", web="http://127.0.0.1:18088"
)


def test_while_it_serves_the_addresses_are_printed() -> None:
    said = where_to_look(ADDRESSES)

    assert all(one in said for one in (ADDRESSES.kafka, ADDRESSES.clickhouse_url, f"{ADDRESSES.web}/?run=replay"))


def test_where_it_ends_at_once_no_dead_address_is_printed_but_how_to_look_again() -> None:
    said = how_to_look_again(Path("my demo"))

    assert "127.0.0.1" not in said
    assert "rootrank up --data 'my demo'" in said
    assert "?run=replay" in said
    assert all(len(line) <= 120 for line in said.splitlines())
