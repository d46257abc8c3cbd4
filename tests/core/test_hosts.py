"""Names of machines and lists of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.hosts import HostNames, expand_hosts, may_be_one


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gx1", ["gx1"]),
        ("gx[01-03,07]", ["gx01", "gx02", "gx03", "gx07"]),
        ("gx[9-11],login1", ["gx9", "gx10", "gx11", "login1"]),
        ("a[1-2]-ib,b", ["a1-ib", "a2-ib", "b"]),
        ("r[1-2]n[08,10]-ib", ["r1n08-ib", "r1n10-ib", "r2n08-ib", "r2n10-ib"]),
        ("r[1-2]n[1-4", []),
        ("r[1]2]n", []),
        ("r[1-200]n[1-200]", []),
        ("gx[098-101]", ["gx098", "gx099", "gx100", "gx101"]),
        ("gx[1-", []),
        ("gx1-3]", []),
        ("gx[]", []),
        ("gx[3-1]", []),
        ("gx[a-b]", []),
        ("gx[1],", []),
        ("two words", []),
        ("", []),
        ("gx[1-999999999]", []),
    ],
)
def test_a_list_of_slurm_is_expanded_in_its_order_and_anything_else_is_none(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@given(st.text(alphabet="gx01-9[],²٣ ", max_size=40))
def test_no_text_breaks_the_expansion_of_lists(text: str) -> None:
    assert all(host and "," not in host for host in expand_hosts(text))


@given(first=st.integers(0, 500), count=st.integers(0, 40), width=st.integers(1, 6))
def test_every_number_of_a_range_is_there_once(first: int, count: int, width: int) -> None:
    hosts = expand_hosts(f"n[{str(first).zfill(width)}-{str(first + count).zfill(width)}]")
    assert [int(host[1:]) for host in hosts] == list(range(first, first + count + 1))
    assert all(len(host) >= width + 1 for host in hosts)


def test_a_short_name_is_the_one_long_name_that_begins_with_it() -> None:
    names = HostNames(["gx1", "gx1.cluster.example", "GX1"])
    assert len({names.host(name) for name in ("gx1", "gx1.cluster.example", "GX1")}) == 1
    assert names.host("gx1.cluster.example") == "gx1"


def test_a_short_name_that_fits_two_machines_is_neither() -> None:
    names = HostNames(["gx1", "gx1.a.example", "gx1.b.example"])
    assert len({names.host(name) for name in ("gx1", "gx1.a.example", "gx1.b.example")}) == 3


def test_an_address_is_cut_at_no_dot() -> None:
    names = HostNames(["10.9.0.1", "10.9.0.2", "10"])
    assert names.host("10.9.0.1") != names.host("10.9.0.2")


def test_an_address_is_a_name_only_where_a_line_shows_both_and_for_one_machine_only() -> None:
    apart = HostNames(["gx1", "10.9.0.1"])
    assert apart.host("10.9.0.1") == "10.9.0.1"
    joined = HostNames(["gx1", "10.9.0.1"], [("gx1", "10.9.0.1")])
    assert joined.host("10.9.0.1") == "gx1"
    torn = HostNames(["gx1", "gx2"], [("gx1", "10.9.0.1"), ("gx2", "10.9.0.1")])
    assert len({torn.host(name) for name in ("gx1", "gx2", "10.9.0.1")}) == 3


def test_two_spellings_of_a_host_may_show_one_address() -> None:
    names = HostNames([], [("gx1", "10.9.0.1"), ("gx1.cluster.example", "10.9.0.1")])
    assert names.host("10.9.0.1") == names.host("gx1.cluster.example") == "gx1"


def test_every_machine_has_the_loopback_address() -> None:
    names = HostNames(["gx1"], [("gx1", "127.0.0.1")])
    assert names.host("127.0.0.1") == "127.0.0.1"


def test_the_name_of_the_reporter_is_the_one_to_print() -> None:
    names = HostNames(["gx1", "gx1.cluster.example"], preferred=["gx1.cluster.example"])
    assert names.host("gx1") == "gx1.cluster.example"


def test_a_pod_is_on_its_node_and_not_its_node() -> None:
    names = HostNames(["train-0", "gx1"], pods={"train-0": "gx1.cluster.example"})
    assert names.host("train-0") == "train-0"
    assert names.machine("train-0") == "gx1"


@given(st.permutations([("gx1", "10.9.0.1"), ("gx2", "10.9.0.2"), ("gx2.a.example", "10.9.0.2"), ("gx1", "gx1-ib")]))
def test_the_order_of_lines_does_not_matter(shown: list[tuple[str, str]]) -> None:
    names = ["gx1", "gx2", "gx2.a.example", "gx1-ib", "10.9.0.1", "10.9.0.2"]
    assert {n: HostNames(names, shown).host(n) for n in names} == {
        "gx1": "gx1", "gx1-ib": "gx1", "10.9.0.1": "gx1", "gx2": "gx2", "gx2.a.example": "gx2", "10.9.0.2": "gx2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "one"),
    [
        ("gx1", "gx1", True),
        ("gx1", "gx1.cluster.example", True),
        ("gx1.a.example", "gx1.b.example", False),
        ("gx1", "gx10.cluster.example", False),
        ("10.9.0.1", "10.9.0.2", False),
        ("10", "10.9.0.1", False),
    ],
)
def test_a_name_may_be_another_without_its_domain(a: str, b: str, one: bool) -> None:
    assert may_be_one(a, b) is one
    assert may_be_one(b, a) is one
