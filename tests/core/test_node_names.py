"""Names that may go to a scheduler, and lists of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.hosts import expand_hosts
from pipeline.core.node_names import host_list, is_kubernetes_name, is_plain_name, is_slurm_name, node_affinity

SLURM = st.from_regex(r"[a-z]{1,6}[-_.]?[0-9]{0,12}[a-z]?", fullmatch=True).filter(is_slurm_name)


@given(st.sets(SLURM, max_size=30))
def test_a_list_holds_its_names_and_no_other(names: set[str]) -> None:
    written = host_list(names)

    assert expand_hosts(written) == [] if not names else sorted(expand_hosts(written)) == sorted(names)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ([], ""),
        (["gpu07"], "gpu07"),
        (["gpu11", "gpu07"], "gpu[07,11]"),
        (["gpu08", "gpu07", "gpu09", "gpu11"], "gpu[07-09,11]"),
        (["gpu9", "gpu10", "gpu09"], "gpu9,gpu[09-10]"),
        (["gpu7", "gpu7", "login"], "gpu7,login"),
        (["n1.lab", "n2.lab"], "n1.lab,n2.lab"),
        (["i-00a1b2c3d4e5f60718", "i-00a1b2c3d4e5f60719"], "i-00a1b2c3d4e5f[60718-60719]"),
        (["x1234567890", "x1234567891"], "x1234567890,x1234567891"),
    ],
)
def test_a_list_is_written_as_slurm_writes_it(names: list[str], written: str) -> None:
    assert host_list(names) == written


@pytest.mark.parametrize("name", ["gpu07", "gpu-07.lab.example", "n_7", "GPU07", "7"])
def test_a_name_that_slurm_takes(name: str) -> None:
    assert is_slurm_name(name)


HOSTILE = [
    "", " ", "gpu07 ", "gpu 07", "gpu07\n", "-w", "--nodelist=x", "gpu[01-99]", "gpu01,gpu02", "$(id)", "`id`", "a;b",
    "a|b", "a&b", "a>b", "a'b", 'a"b', "a\\b", "a/b", "..", ".", "a.", "*", "a*", "~", "{a,b}", "\u202egpu", "gpü", "٣",
    "a\x00b", "x" * 65,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_a_shell_or_a_list_would_take_otherwise_is_none(name: str) -> None:
    assert not is_plain_name(name)
    assert not is_slurm_name(name)
    assert not is_kubernetes_name(name)


@pytest.mark.parametrize("name", ["ALL", "all", "All"])
def test_the_word_for_every_node_names_none(name: str) -> None:
    # `scontrol update nodename=ALL state=drain` takes the whole cluster out of service.
    assert not is_plain_name(name)
    assert not is_slurm_name(name)


def test_a_name_of_every_machine_is_no_node_of_slurm() -> None:
    assert not is_slurm_name("localhost")


@pytest.mark.parametrize(("name", "legal"), [
    ("ip-10-0-3-7.ec2.internal", True), ("gpu07", True), ("7", True), ("GPU07", False), ("n_7", False), ("a..b", False),
    ("a-.b", False), ("x" * 64, False), ("x" * 63, True),
])  # fmt: skip
def test_a_kubernetes_node_is_an_rfc_1123_subdomain_that_a_label_can_hold(name: str, legal: bool) -> None:
    assert is_kubernetes_name(name) is legal


def test_an_address_is_no_node_of_slurm() -> None:
    assert not is_slurm_name("10.74.4.158")
    assert is_plain_name("10.74.4.158")
    assert is_kubernetes_name("10.74.4.158")


def test_an_affinity_keeps_a_pod_off_the_nodes_and_is_empty_without_any() -> None:
    (term,) = node_affinity(["b", "a"])["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]

    assert term == {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "b"]}]}
    assert node_affinity([]) == {}
