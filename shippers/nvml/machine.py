"""Which NVIDIA GPUs the machine has, and which are awake: read from /sys and /proc alone, which wakes none.

A handle that NVML gives initialises the GPU, which powers it up. So it is asked only of GPUs that somebody else has
initialised already.
"""

import os
import signal
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"  # class of VGA and 3D controllers
_UNKNOWN: Final = "??"  # stands for what the driver knows only of a GPU that it has initialised
_INITIAL_PIDS: Final = "pid:[4026531836]"  # the first pid namespace of a kernel has this number in all
_ASLEEP: Final = ("suspended", "suspending")

ProcessState = Literal["here", "zombie", "gone"]


class PciGpu(Struct, frozen=True, kw_only=True):
    """A GPU by its address. `asleep` says why it is left alone, where it is."""

    address: str
    asleep: str = ""


class Machine:
    """The machine under `sys_root` and `proc_root`: in a container those of the host may be mounted elsewhere."""

    def __init__(self, sys_root: str = "/sys", proc_root: str = "/proc") -> None:
        self._devices = Path(sys_root) / "bus/pci/devices"
        self._module = Path(sys_root) / "module/nvidia"
        self._proc = Path(proc_root)

    def gpus(self) -> list[PciGpu]:
        """All NVIDIA GPUs, by address."""
        found = (
            PciGpu(address=device.name.lower(), asleep=self.why_asleep(device.name))
            for device in _listed(self._devices)
            if _text(device / "vendor") == NVIDIA and _text(device / "class").startswith(_DISPLAY)
        )
        return sorted(found, key=lambda gpu: gpu.address)

    def why_asleep(self, address: str) -> str:
        """Why a GPU must not be asked now; empty where it may be."""
        status = _text(self._devices / address / "power/runtime_status")
        if status in _ASLEEP:
            return f"runtime power management has it {status}"
        information = _text(self._proc / "driver/nvidia/gpus" / address / "information")
        uuid = next((line for line in information.splitlines() if line.startswith("GPU UUID")), "")
        return (
            "the driver has not initialised it: nobody uses it, and persistence mode is off" if _UNKNOWN in uuid else ""
        )

    def tells_sleep(self) -> bool:
        """Whether a GPU that nobody uses can be told from one that is initialised."""
        return (self._proc / "driver/nvidia/gpus").is_dir()

    def driver_version(self) -> str:
        """The version of the loaded driver; empty where none is loaded."""
        version = _text(self._module / "version")
        if version:
            return version
        words = _text(self._proc / "driver/nvidia/version").split()
        return next((word for word in words if word.count(".") in (1, 2) and word[0].isdigit()), "")

    def sees_all_pids(self) -> bool:
        """Whether a process that is not under /proc is gone: in a pid namespace of its own most are not shown."""
        if self._proc != Path("/proc"):
            return True
        try:
            return os.readlink("/proc/self/ns/pid") == _INITIAL_PIDS  # noqa: PTH115 the link leads nowhere
        except OSError:
            return False

    def process(self, pid: int) -> ProcessState:
        """Whether a process is there, and more than an entry that nobody has collected."""
        try:
            stat = (self._proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return "gone"
        except OSError:
            return "here"
        state = stat.rpartition(")")[2].split()[:1]
        return "zombie" if state and state[0] in "ZXx" else "here"


def name_of_signal(number: int) -> str:
    """SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
