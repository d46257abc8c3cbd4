"""Pickles of plain values are read as Python reads them; everything else is a named error, and nothing is executed."""

import contextlib
import os
import pickle
import pickletools
import struct
import sys
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import pickles
from pipeline.core.pickles import PickleError, is_pickle, read_pickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN, st.integers(3, 5))
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    shared = {"name": "step", "line": 7}
    value: Any = {
        "none": None, "yes": True, "no": False, "small": 7, "large": 2**40, "minus": -5, "float": 1.25, "text": "é \n'",
        "list": [shared, shared], "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "empty": [[], {}],
    }  # fmt: skip
    assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_many_items_come_in_batches(protocol: int) -> None:
    value = {"list": list(range(5_000)), "dict": {str(n): n for n in range(5_000)}}
    assert read_pickle(pickle.dumps(value, protocol)) == value


def test_what_refers_to_itself_is_one_value() -> None:
    value: list[Any] = [1]
    value.append(value)
    read = read_pickle(pickle.dumps(value))
    assert read[1] is read


# --- hostile ----------------------------------------------------------------------------------------------------------


class Shell:
    """Runs a command when Python unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        return os.system, ("exit 1",)


class Evaluated:
    """Evaluates code when Python unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        return eval, ("ran.append(1)",)


class Plain:
    """An object with a state."""

    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize(
    "value", [Shell(), Evaluated(), Plain(), OrderedDict(a=1), 1j, range(3), {1, 2}, len, b"".join]
)
@pytest.mark.parametrize("protocol", range(6))
def test_what_asks_for_code_is_refused_by_name(value: object, protocol: int) -> None:
    data = pickle.dumps({"entries": [value]}, protocol)
    names = {op.name for op, _, _ in pickletools.genops(data)}
    with pytest.raises(PickleError, match=r"pickle, byte \d+: [A-Z_0-9]+ asks for more than plain values") as caught:
        read_pickle(data)
    assert str(caught.value).split(": ")[1].split(" ")[0] in names


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.", b"(S'true'\nios\nsystem\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02(cos\nsystem\no.", b"\x80\x02}\x82\x01.", b"\x80\x02}\x83\x01\x00.", b"\x80\x02}\x84\x01\0\0\0.",
        b"P1\n.", b"\x80\x02K\x01Q.", b"\x80\x04\x8f.", b"\x80\x04(K\x01\x91.", b"\x80\x05\x97.",
        b"\x80\x05\x96" + b"\0" * 8, b"\x80\x02}}b.", b"\x80\x02})\x81.",
    ],
)  # fmt: skip
def test_each_opcode_that_is_not_plain_is_refused(data: bytes) -> None:
    with pytest.raises(PickleError, match="never executed"):
        read_pickle(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends too early"), (b"\x80", "ends too early"), (b"\x80\x04", "ends too early"),
        (b"\x80\x07.", "protocol 7 is not known"), (b"\x80\x02.", "0 values"), (b"\x80\x02NN.", "2 values"),
        (b"\x80\x02(N.", "1 marks"), (b"\x80\x02\xff.", "0xff is no opcode"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "2,147,483,647 bytes are announced, 3 are left"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"ab.", "bytes are announced"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.", "a frame of"),
        (b"\x80\x04\x8b" + struct.pack("<i", 2**30) + b"ab.", "a number of 1,073,741,824 bytes"),
        (b"\x80\x04\x8b" + struct.pack("<i", -1) + b"ab.", "a number of -1 bytes"),
        (b"L" + b"9" * 10_000 + b"L\n.", "none or too long"), (b"I12x\n.", "none or too long"), (b"Fx\n.", "is none"),
        (b"S'abc\n.", "no quotes"), (b"S'\\x1'\n.", "an escape that is none"), (b"V" + b"a" * 100, "does not end"),
        (b"\x80\x02h\x05.", "recalls value 5"), (b"\x80\x02q\x00.", "remembers a value that is not there"),
        (b"\x80\x02]K\x01K\x02s.", "adds to what is no dict"), (b"\x80\x02}K\x01a.", "adds to what is no list"),
        (b"\x80\x02}(K\x01u.", "a key has no value"), (b"\x80\x02}]K\x01s.", "a key is neither text"),
        (b"\x80\x02}(]K\x01u.", "a key is neither text"), (b"\x80\x020.", "takes values that are not there"),
        (b"\x80\x02t.", "a mark is missing"), (b"\x80\x02N(\x85.", "from below a mark"),
        (b"\x80\x02X\x01\0\0\0\xff.", "no utf-8"),
        (b"\x80\x02J\x01\x02", "ends too early"), (b"\x80\x02G\x01\x02", "ends too early"),
    ],
)  # fmt: skip
def test_what_is_broken_says_where_and_why(data: bytes, why: str) -> None:
    with pytest.raises(PickleError, match=r"pickle, byte \d+: ") as caught:
        read_pickle(data)
    assert why in str(caught.value)


@pytest.mark.parametrize("cut", range(0, 300, 7))
def test_what_is_cut_short_is_an_error(cut: int) -> None:
    data = pickle.dumps({"entries": [{"record_id": n, "state": "scheduled"} for n in range(40)]}, 4)
    assert len(data) > 300
    with pytest.raises(PickleError):
        read_pickle(data[:cut])


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x80\x02", b"\x80\x04\x95", b"(d", b"}q\x00"]))
def test_any_bytes_are_a_value_or_a_named_error(data: bytes, head: bytes) -> None:
    with contextlib.suppress(PickleError):
        read_pickle(head + data)


@given(st.data())
def test_a_damaged_pickle_is_a_value_or_a_named_error(data: st.DataObject) -> None:
    whole = bytearray(
        pickle.dumps({"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [{"a": [1, 2], "b": (1, "x")}]}, 2)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PickleError):
        read_pickle(bytes(whole))


def test_what_is_shared_many_times_stays_one_value() -> None:
    # Ten times ten times … what a walk would take for a billion entries.
    laughs: Any = ["ha"]
    for _ in range(9):
        laughs = [laughs] * 10
    read = read_pickle(pickle.dumps(laughs))
    assert read[0] is read[9]
    assert sys.getsizeof(read) < 1_000


def test_keys_that_would_take_for_ever_to_compare_are_refused() -> None:
    key: Any = ()
    for _ in range(40):
        key = (key, key)
    # Only Python's own dict would hash it: the bytes are put together by hand.
    data = b"\x80\x02}" + pickle.dumps(key, 2)[2:-1] + b"K\x01s."
    with pytest.raises(PickleError, match="neither text nor a whole number"):
        read_pickle(data)


_MERSENNE = 2**61 - 1


@pytest.mark.parametrize("opcodes", [b"\x8a\x08%b", b"I%d\n", b"F%d.5\n"])
def test_keys_that_python_puts_in_one_place_are_refused(opcodes: bytes) -> None:
    # Python's hash of a whole number is its rest by this prime.
    number: Any = _MERSENNE.to_bytes(8, "little") if b"%b" in opcodes else _MERSENNE
    with pytest.raises(PickleError, match="a key is"):
        read_pickle(b"\x80\x02}" + opcodes % number + b"K\x01s.")
    with pytest.raises(PickleError, match="a key is"):
        read_pickle(b"\x80\x02}J\xff\xff\xff\xffK\x01s.")
    with pytest.raises(PickleError, match="remembers a value under"):
        read_pickle(b"\x80\x02]p%d\n." % _MERSENNE)
    assert read_pickle(b"\x80\x02}J\xff\xff\xff\x7fK\x01s.") == {2**31 - 1: 1}


def test_depth_is_bounded() -> None:
    with pytest.raises(PickleError, match="nested more than"):
        read_pickle(b"\x80\x02" + b"(" * 100_000 + b".")
    # Without marks a value may be deep; it is never walked.
    assert read_pickle(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".") != []


def test_the_number_of_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_OPCODES", 1_000)
    with pytest.raises(PickleError, match="more than 1,000 opcodes"):
        read_pickle(b"\x80\x02" + b"]" * 5_000)


def test_what_may_be_a_pickle_shows_at_its_beginning() -> None:
    heads = [pickle.dumps({"entries": [1]}, protocol)[:3] for protocol in range(6)]
    assert all(map(is_pickle, heads))
    assert not any(map(is_pickle, (b"", b"{", b'{"a', b"[1]", b"2026", b"(dum", b"\x80\x20a", b"\x1f\x8b")))
