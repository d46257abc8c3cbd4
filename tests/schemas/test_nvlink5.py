"""NVLink errors: the words of Xid 144 to 150 and the registers of Xid 74 say how bad it is and who to look at."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import nvlink4, nvlink5, signals
from schemas.nvlink5 import Row, Unit, decode

ROWS = [(unit, row) for unit in nvlink5.units() for row in unit.rows]


def name_of(value: object) -> str:
    return value.names[-1] if isinstance(value, Unit) else ""


def word0(unit: Unit, row: Row, *, r575: bool) -> int:
    code = unit.code_r575 if r575 else unit.code << 5 | 0x06
    return (row.reason or 0) << 20 | code


def test_the_table_has_94_rows_of_which_22_are_fatal_and_21_lose_a_link() -> None:
    severities = [row.severity for _, row in ROWS]
    assert len(ROWS) == 94
    assert (severities.count("fatal"), severities.count("link-fatal"), severities.count("non-fatal")) == (22, 21, 51)


@pytest.mark.parametrize(("unit", "row"), ROWS, ids=name_of)
def test_every_row_decodes_to_itself_under_the_name_that_new_drivers_print(unit: Unit, row: Row) -> None:
    for branch in (None, 575, 590):
        found = decode(unit.xid, unit.names[-1], word0(unit, row, r575=True), row.status, branch)
        assert found is not None
        assert found.row is row
        assert (found.severity, found.action) == (row.severity, row.action)


@pytest.mark.parametrize(("unit", "row"), ROWS, ids=name_of)
def test_every_row_decodes_to_its_equal_under_the_name_that_old_drivers_print(unit: Unit, row: Row) -> None:
    # Both pipes have one name and one sub-code there, and the same rows.
    for branch in (None, 570):
        found = decode(unit.xid, unit.names[0], word0(unit, row, r575=False), row.status, branch)
        assert found is not None
        assert found.row == row
        assert found.layout in ("before_r575", "")


def test_a_link_event_of_an_old_driver_blames_the_signal_of_its_own_link() -> None:
    found = decode(149, "NETIR_LINK_EVT", 0x004505C6, 0)
    assert found is not None
    assert found.layout == "before_r575"
    assert (found.reason, found.severity, found.action) == (4, "link-fatal", "RESET_GPU")
    assert (found.look_at, found.row.look_into) == ("own_link", "INVESTIGATE_LINK_SI")


@pytest.mark.parametrize(
    ("reasons", "look_at"),
    [
        ([2, 4, 10], "own_link"),
        ([15, 17, 22, 38], "software"),
        ([16, 18], "software_or_own_link"),
        ([21, *range(32, 38)], "peer"),
        ([40], "host"),
        ([42, 43], "own_link_or_cables"),
        ([0], "other_fault"),
    ],
)
def test_the_reason_of_a_link_event_says_who_to_look_at(reasons: list[int], look_at: str) -> None:
    for reason in reasons:
        found = decode(149, "NETIR_LINK_EVT", reason << 20 | 0x01C6, 0)
        assert found is not None
        assert (found.reason, found.look_at) == (reason, look_at)


def test_the_same_sub_code_is_another_unit_on_the_other_side_of_r575() -> None:
    # 0x0b is the transmitter before R575 and a receiver pipe from R575 on.
    before, after = decode(146, "", 0x0B << 5, 4, 570), decode(146, "", 0x0B, 4, 575)
    assert before is not None
    assert after is not None
    assert (before.unit, before.layout) == ("TLW_TX", "before_r575")
    assert (after.unit, after.layout) == ("TLW_RX", "r575")


def test_the_printed_name_is_trusted_over_the_sub_code() -> None:
    found = decode(145, "RLW_REMAP", 0x0409A0C2, 0x40)
    assert found is not None
    assert (found.unit, found.severity, found.layout) == ("RLW_REMAP", "fatal", "")


def test_a_name_that_is_not_in_the_table_is_told_by_its_sub_code() -> None:
    found = decode(147, "TREX_ERR", 0x0E, 1)
    assert found is not None
    assert (found.unit, found.layout, found.action) == ("TREX_ERR", "r575", "IGNORE")


def test_of_several_status_bits_the_worst_counts() -> None:
    found = decode(144, "SAW_MVB", 0x01, 0x3)
    assert found is not None
    assert (found.severity, found.row.status) == ("fatal", 2)


@pytest.mark.parametrize(
    ("xid", "unit", "word", "status"),
    [
        (149, "NETIR_LINK_EVT", 0x03F005C6, 0),  # a reason that nobody has published
        (149, "NETIR_BER_EVENT", 0x13, 9),
        (145, "RLW_CTRL", 0x03, 1),
        (146, "TLW_NEW", 0x7F, 1),
        (143, "SAW_MVB", 0x01, 1),
    ],
)
def test_what_the_table_does_not_have_is_not_made_up(xid: int, unit: str, word: int, status: int) -> None:
    assert decode(xid, unit, word, status) is None


def test_a_watchdog_of_the_management_engine_is_always_fatal() -> None:
    found = decode(150, "MSE_WATCHDOG", 0x1234_5600, 7)
    assert found is not None
    assert (found.severity, found.action, found.look_at) == ("fatal", "RESET_GPU", "firmware")


@given(
    st.integers(0, 200), st.text(max_size=12), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 999),
)  # fmt: skip
def test_any_words_can_be_decoded(xid: int, unit: str, first: int, second: int, branch: int | None) -> None:
    found = decode(xid, unit, first, second, branch)
    assert found is None or 144 <= xid <= 150


@pytest.mark.parametrize(
    ("word", "bit", "kind", "look_at"),
    [
        (1, 4, "ecc", "gpu"), (3, 6, "ecc", "gpu"), (5, 28, "ecc", "gpu"),
        (1, 16, "mechanical", "own_link_or_cables"),
        (1, 22, "signal", "own_link"),
        (1, 20, "secondary", "other_fault"), (4, 17, "secondary", "other_fault"),
        (5, 29, "threshold", "nothing"),
        (1, 30, "harmless", "nothing"),
    ],
)  # fmt: skip
def test_a_register_bit_of_xid_74_has_its_kind(word: int, bit: int, kind: str, look_at: str) -> None:
    registers = [0] * 7
    registers[word - 1] = 1 << bit
    found = nvlink4.decode(registers)
    assert found is not None
    assert (found.kind, found.look_at) == (kind, look_at)


def test_of_several_register_bits_the_weightiest_kind_counts() -> None:
    order = [kind.kind for kind in nvlink4.kinds()]
    assert order == ["ecc", "mechanical", "signal", "secondary", "threshold", "harmless"]
    for heavy, light in pairwise(nvlink4.kinds()):
        registers = [0] * 7
        for kind in (heavy, light):
            word, bits = next(iter(kind.words.items()))
            registers[int(word) - 1] |= 1 << bits[0]
        assert nvlink4.decode(registers) is heavy


@pytest.mark.parametrize("registers", [[], [0] * 7, [0, 0xFFFF_FFFF, 0, 0, 0, 0, 0], [0, 0, 1 << 16, 0, 0, 0, 0]])
def test_registers_without_a_published_bit_say_nothing(registers: list[int]) -> None:
    assert nvlink4.decode(registers) is None


@pytest.mark.parametrize(
    ("line", "role", "severity", "told"),
    [
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x0 0x0 0x0 0x0)", "cause", "critical",
            {"nvlink_unit": "NETIR_LINK_EVT", "nvlink_severity": "link-fatal", "nvlink_action": "RESET_GPU",
             "nvlink_look_at": "own_link", "nvlink_reason": "4", "link": "8"},
        ),
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 03 (0x022005c6 0x00000000)", "intermediate", "critical",
            {"nvlink_severity": "link-fatal", "nvlink_look_at": "peer", "nvlink_reason": "34"},
        ),
        (
            "145, RLW_REMAP  Nonfatal   XC0 i0 Link 02 (0x00000082 0x00000004)", "intermediate", "error",
            {"nvlink_severity": "non-fatal", "nvlink_action": "XID_154_EVAL", "nvlink_look_at": "other_link"},
        ),
        (
            "146, TLW_CTRL Nonfatal XC0 i0 Link -1 (0x00000009 0x00000001)", "context", "warning",
            {"nvlink_severity": "non-fatal", "nvlink_action": "IGNORE", "nvlink_look_at": "nothing", "link": None},
        ),
        ("148, NVLPW_CTRL Fatal XC0 i0 Link 05", "cause", "critical", {"nvlink_severity": "fatal"}),
        ("145, driver-specific detail", "intermediate", "warning", {"nvlink_severity": None}),
    ],
)  # fmt: skip
def test_the_event_of_an_nvlink_error_says_how_bad_it_is_and_who_to_look_at(
    line: str, role: str, severity: str, told: dict[str, str | None]
) -> None:
    match = signals.load().match(f"NVRM: Xid (PCI:0018:01:00): {line}")
    assert match is not None
    assert (match.role, match.severity, match.label) == (role, severity, "hardware/nvlink")
    assert {name: match.attributes.get(name) for name in told} == told
