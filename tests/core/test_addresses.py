"""GPU addresses: every spelling of one address is one address."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Entity
from schemas.values import CONVERTERS
from tests.core.reading_placement import lines, map_of

domains = st.one_of(st.just(0), st.integers(0, 0xFFFF))
buses = st.integers(0, 0xFF)
devices = st.integers(0, 0x1F)
functions = st.integers(0, 7)


def spellings(domain: int, bus: int, device: int, function: int) -> list[str]:
    """How the kernel, NVML, nvidia-smi and the driver write an address, with and without what may be left out."""
    long = f"{bus:02x}:{device:02x}.{function:x}"
    written = [f"{domain:04x}:{long}", f"{domain:08x}:{long}", f"GPU{domain:04x}:{long}", f"gpu{domain:08x}:{long}"]
    if function == 0:
        written += [text.removesuffix(".0") for text in written]
    if domain == 0:
        written += [long, long.removesuffix(".0") if function == 0 else long]
    return [*written, *(text.upper() for text in written)]


@given(domain=domains, bus=buses, device=devices, function=functions)
def test_any_spelling_of_one_address_is_that_address(domain: int, bus: int, device: int, function: int) -> None:
    one = f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
    assert {CONVERTERS["pci"](text) for text in spellings(domain, bus, device, function)} == {one}
    packed = domain << 20 | bus << 12 | device << 4 | function
    assert CONVERTERS["busid"](f"{packed:x}") == one
    assert CONVERTERS["busid"](f"{packed:X}".zfill(9)) == one


@given(a=st.tuples(domains, buses, devices), b=st.tuples(domains, buses, devices))
def test_two_addresses_are_never_one(a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    packed = [domain << 20 | bus << 12 | device << 4 for domain, bus, device in (a, b)]
    assert (CONVERTERS["busid"](f"{packed[0]:x}") == CONVERTERS["busid"](f"{packed[1]:x}")) == (a == b)


def test_lines_of_nccl_the_driver_the_kernel_and_nvml_speak_of_one_gpu() -> None:
    uuid = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    files = {
        "gx1/job.log": "gx1:31:9 [0] NCCL INFO comm 0x7f rank 0 nranks 1 cudaDev 0 busId 9c3b000 - Init COMPLETE",
        "gx1/kern.log": f"NVRM: GPU at PCI:009c:3b:00: {uuid}",
        "gx1/smi.csv": lines("index, uuid, pci.bus_id, serial", f"6, {uuid}, 0000009C:3B:00.0, 1650987654321"),
    }
    placement = map_of(files)
    found = placement.ranks[0]
    assert (found.pci_bus_id, found.gpu_uuid, found.gpu_index, found.serial) == (
        "009c:3b:00.0", uuid, 6, "1650987654321",
    )  # fmt: skip
    assert placement.resolve(Entity(node="gx1", pci_bus_id=CONVERTERS["pci"]("GPU0000009C:3B:00.0"))).rank == 0
