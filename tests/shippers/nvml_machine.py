"""A machine whose GPUs are a stub of NVML, steered by a text file, and a tree of /sys and /proc."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.records import RawLine
from shippers.clock import HostClock
from shippers.config import NvmlSettings
from shippers.nvml.source import NvmlSource
from shippers.pieces import Moment
from shippers.positions import SourcePosition
from tests.shippers.fakes import LARGE, eventually

STUB = Path(__file__).parent / "nvml_stub" / "stub.c"
INFORMATION = "Model: \t\t NVIDIA Stub\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00\n"
ASLEEP = "GPU-????????-????-????-????-????????????"
AWAKE = "GPU-0a1b2c3d-0000-4000-8000-000000000000"


def build(folder: Path) -> Path:
    """The stub as a driver root has it. Built with gcc."""
    library = folder / "usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    flags = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    subprocess.run(("gcc", *flags, "-o", str(library), str(STUB)), check=True)
    return folder


class StubMachine:
    """`gpus` GPUs, one address each. `say` changes what NVML tells of them."""

    def __init__(self, folder: Path, driver_root: Path, gpus: int = 1) -> None:
        self.sys, self.proc, self.scenario = folder / "sys", folder / "proc", folder / "scenario"
        self.driver_root = driver_root
        self.count = gpus
        self._lines: dict[str, str] = {"gpus": str(gpus)}
        for number in range(gpus):
            self.put_gpu(number)
        self.write(self.sys / "module/nvidia/version", "570.86.15\n")
        self.say()

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")

    @staticmethod
    def address(number: int) -> str:
        return f"0000:{0x10 + number:02x}:00.0"

    def put_gpu(self, number: int, *, status: str = "active", uuid: str = AWAKE) -> None:
        device = self.sys / "bus/pci/devices" / self.address(number)
        self.write(device / "vendor", "0x10de\n")
        self.write(device / "class", "0x030200\n")
        self.write(device / "power/runtime_status", f"{status}\n")
        information = self.proc / "driver/nvidia/gpus" / self.address(number) / "information"
        self.write(information, INFORMATION.format(uuid=uuid))

    def put_process(self, pid: int, state: str = "S") -> None:
        self.write(self.proc / str(pid) / "stat", f"{pid} (python (x) y) {state} 1 1\n")

    def say(self, **values: object) -> None:
        """`gpu0_hang=1` for `0.hang 1`; None takes a line away; keys may have dots when given as `lines`."""
        for name, value in values.items():
            gpu, _, rest = name.partition("_")
            key = f"{gpu.removeprefix('gpu')}.{rest}" if gpu[3:].isdecimal() else name
            self.put(key, value)
        self._save()

    def put(self, key: str, value: object) -> None:
        if value is None:
            self._lines.pop(key, None)
        else:
            self._lines[key] = str(value)

    def field(self, number: int, value: object, *, gpu: int = 0, link: int = 0) -> None:
        self.put(f"{gpu}.field.{number}.{link}" if link else f"{gpu}.field.{number}", value)
        self._save()

    def event(self, seq: int, kind: int, data: int, gpu: int = 0) -> None:
        self.put(f"event {seq}", f"{gpu} {kind} {data}")
        self._save()

    def opened(self) -> list[str]:
        path = Path(f"{self.scenario}.opened")
        return path.read_text(encoding="ascii").split() if path.exists() else []

    def settings(self, *, interval_s: int = 1, deadline_s: int = 5) -> NvmlSettings:
        return NvmlSettings(
            driver_root=str(self.driver_root), sys_root=str(self.sys), proc_root=str(self.proc),
            interval_s=interval_s, deadline_s=deadline_s,
        )  # fmt: skip

    def _save(self) -> None:
        text = "".join(f"{key} {value}\n" for key, value in self._lines.items())
        fresh = self.scenario.with_suffix(".new")
        self.write(fresh, text)
        fresh.replace(self.scenario)


class Reader:
    """Looks at the source as the agent does, and keeps what it gives."""

    def __init__(self, settings: NvmlSettings, saved: SourcePosition | None = None) -> None:
        self.source = NvmlSource(settings, saved)
        self.lines: list[RawLine] = []
        self.position = saved
        self._clock = HostClock()
        self._numbers = itertools.count(1)

    def look(self, later_s: float = 0) -> None:
        """One pass; `later_s` moves its clock on, as if so long had passed."""
        now = self._clock.moment()
        moment = Moment(
            observed_ns=now.observed_ns, mono_ns=now.mono_ns + int(later_s * 1e9), wall_ns=now.wall_ns
        )  # fmt: skip
        self.source.look(moment)
        piece = self.source.read(LARGE, moment, self._numbers)
        if piece is not None:
            self.lines.extend(piece.lines)
            self.position = piece.position

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Look until it holds."""

        def looked() -> Any:
            self.look()
            return condition()

        return eventually(looked, what)

    def wait_for_look(self) -> None:
        """Until all GPUs were asked once more."""
        before = self.source.looks
        self.until(lambda: self.source.looks > before, "another look")

    def bodies(self, thing: str = "") -> list[str]:
        self.look()
        return [line.body for line in self.lines if line.body.startswith(f"rootrank: {thing}")]

    def wait_for(self, thing: str, count: int = 1) -> list[str]:
        def found() -> list[str]:
            bodies = self.bodies(f"{thing} ")
            return bodies if len(bodies) >= count else []

        return list(eventually(found, f"{count} lines {thing}; there are {[line.body for line in self.lines]}"))

    def state(self) -> tuple[str, str]:
        self.look()
        progress = self.source.progress()
        return progress.state, progress.reason or ""

    def wait_for_state(self, state: str, words: str = "") -> str:
        return str(
            eventually(lambda: (s := self.state())[0] == state and words in s[1] and (s[1] or "-"), f"{state} {words}")
        )
