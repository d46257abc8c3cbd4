"""NVML of a real GPU, through the real process. Skipped where there is none."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shippers.config import NvmlSettings
from shippers.nvml.machine import Machine
from tests.shippers.nvml_machine import Reader

HAS_GPU = bool(Machine().driver_version()) and any(not gpu.asleep for gpu in Machine().gpus())

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA GPU that is awake, or no driver")]


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader(NvmlSettings(driver_root=os.environ.get("ROOTRANK_DRIVER_ROOT", "/"), interval_s=1))
    yield made
    made.source.close()


def test_every_gpu_is_named_by_what_sysfs_and_nvml_say(reader: Reader) -> None:
    reader.wait_for_state("on")
    bodies = reader.wait_for("gpu.identity")
    assert all(" uuid=GPU-" in body and " pci=0000" in body and " driver=" in body for body in bodies)
    addresses = {gpu.address for gpu in Machine().gpus()}
    assert {body.partition("pci=")[2].split()[0] for body in bodies} <= addresses


def test_a_healthy_gpu_is_asked_again_and_again_without_a_word(reader: Reader) -> None:
    reader.wait_for_state("on")
    for _ in range(3):
        reader.wait_for_look()
    things = {line.body.split()[1] for line in reader.lines}
    assert things <= {"gpu.identity", "gpu.process", "gpu.process_gone", "gpu.memory_dead"}


def test_what_it_says_of_runtime_power_management_stays_as_it_was(reader: Reader) -> None:
    def status() -> dict[str, str]:
        devices = Path("/sys/bus/pci/devices")
        return {
            gpu.address: (devices / gpu.address / "power/runtime_status").read_text().strip()
            for gpu in Machine().gpus()
        }  # fmt: skip

    before = status()
    reader.wait_for_state("on")
    reader.wait_for_look()
    asleep = {address for address, said in before.items() if said != "active"}
    assert {address: said for address, said in status().items() if address in asleep} == {
        address: before[address] for address in asleep
    }
