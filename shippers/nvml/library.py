"""NVML through nvidia-ml-py: finding the library, opening GPUs one by one, and reading what each supports.

What a GPU does not support is asked once. A call never waits here: the process that makes it is watched by the agent.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pynvml
from msgspec import Struct

from shippers.nvml.messages import Identity, Value

LIBRARY: Final = "libnvidia-ml.so.1"
# Where distributions and the vendor's containers put it, below the driver root.
_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "lib64", "lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64",
)  # fmt: skip
NOT_SUPPORTED: Final = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, pynvml.NVML_ERROR_DEPRECATED,
    )
)  # fmt: skip
# After these the library must be opened anew: the driver was unloaded or loaded again.
CLOSED: Final = frozenset((pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
LOST: Final[int] = pynvml.NVML_ERROR_GPU_IS_LOST
RESET_REQUIRED: Final[int] = pynvml.NVML_ERROR_RESET_REQUIRED
MISMATCH: Final[int] = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
EVENTS: Final[dict[int, str]] = {
    pynvml.nvmlEventTypeXidCriticalError: "xid",
    pynvml.nvmlEventTypeSingleBitEccError: "ecc_single",
    pynvml.nvmlEventTypeDoubleBitEccError: "ecc_double",
    pynvml.nvmlEventTypeSingleBitEccErrorStorm: "ecc_single_storm",
    pynvml.nvmlEventTypeDramRetirementEvent: "dram_retirement",
    pynvml.nvmlEventTypeDramRetirementFailure: "dram_retirement_failure",
    pynvml.nvmlEventTypeNonFatalPoisonError: "poison_nonfatal",
    pynvml.nvmlEventTypeFatalPoisonError: "poison_fatal",
    pynvml.nvmlEventTypeGpuUnavailableError: "gpu_unavailable",
    pynvml.nvmlEventTypeGpuRecoveryAction: "recovery_action",
}
_ACTIONS: Final = ("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain")
_FABRIC: Final = ("not_supported", "not_started", "in_progress", "completed")
NO_INSTANCE: Final = 0xFFFFFFFF
_LOADED_PERCENT: Final = 50

# Reading, NVML field.
_FIELDS: Final[tuple[tuple[str, int], ...]] = (
    ("ecc_corrected", 3), ("ecc_uncorrected", 4), ("retired_single", 29), ("retired_double", 30),
    ("retired_pending", 31), ("pcie_replays", 94), ("remapped_correctable", 142), ("remapped_uncorrectable", 143),
    ("remap_pending", 144), ("remap_failure", 145), ("recovery_action", 230), ("sw_thermal_ns", 269),
    ("hw_thermal_ns", 270), ("power_brake_ns", 271),
)  # fmt: skip
# The same of each link.
_LINK_FIELDS: Final[tuple[tuple[str, int], ...]] = (
    ("nvlink_replay", 161), ("nvlink_recovery", 162), ("nvlink_crc", 163), ("nvlink_receive_errors", 208),
    ("nvlink_recovery_failed", 214), ("nvlink_recovery_events", 215),
)  # fmt: skip


class NvmlError(Exception):
    """A call failed with a code of NVML."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Process(Struct, frozen=True, kw_only=True):
    """A process that holds memory of a GPU, by the number that it has on the host."""

    pid: int
    memory_mib: int | None
    gpu_instance: int | None = None


class GpuEvent(Struct, frozen=True, kw_only=True):
    """What NVML reports without being asked. `kind` is a word of `EVENTS`, or the number of another type."""

    gpu: "Gpu | None"
    kind: str
    code: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Gpu:
    """One open GPU."""

    def __init__(self, address: str, handle: Any) -> None:
        self.address = address
        self.handle = handle
        self._unsupported: set[str] = set()
        self._fields = list(_FIELDS)
        self._links: list[tuple[str, int, int]] | None = None
        self.index = self._ask("index", pynvml.nvmlDeviceGetIndex)
        self.uuid = self._ask("uuid", pynvml.nvmlDeviceGetUUID)
        self.serial = self._ask("serial", pynvml.nvmlDeviceGetSerial)
        self.model = self._ask("model", pynvml.nvmlDeviceGetName)
        self.has_mig = bool((self._ask("mig", pynvml.nvmlDeviceGetMigMode) or [0])[0])
        self.is_persistent = bool(self._ask("persistence", pynvml.nvmlDeviceGetPersistenceMode))
        self._width_max = self._ask("width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth)
        self._generation_max = self._ask("generation_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration)
        self._default_mw = self._ask("default_limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        slowdown = (pynvml.nvmlDeviceGetTemperatureThreshold, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        self._slowdown_celsius = self._ask("slowdown", *slowdown)

    def names(self) -> dict[str, Value]:
        """What identifies it, as lines say it."""
        told = {"gpu": self.index, "uuid": self.uuid, "pci": self.address, "serial": self.serial}
        return {name: value for name, value in told.items() if value not in (None, "")}

    def identity(self) -> Identity:
        """The same for an inventory, with its model."""
        return Identity(address=self.address, index=self.index, uuid=self.uuid, serial=self.serial, model=self.model)

    def read(self, *, with_links: bool) -> dict[str, Value]:
        """All that it supports. Raises NvmlError where it does not answer."""
        found: dict[str, Value] = {}
        self._read_clocks(found)
        self._read_link(found)
        found.update(self._field_values(self._fields))
        if with_links:
            found.update(self._read_nvlinks())
        _in_words(found)
        fabric = self._ask("fabric", _fabric)
        if fabric is not None:
            found["fabric"] = fabric
        return found

    def processes(self) -> list[Process]:
        """Who holds memory of it."""
        listed = self._ask("processes", pynvml.nvmlDeviceGetComputeRunningProcesses_v3) or []
        return [
            Process(
                pid=one.pid,
                memory_mib=None if one.usedGpuMemory is None else one.usedGpuMemory >> 20,
                gpu_instance=None if one.gpuInstanceId == NO_INSTANCE else one.gpuInstanceId,
            )
            for one in listed
            if one.pid
        ]

    def _read_clocks(self, found: dict[str, Value]) -> None:
        """Clocks, heat and power."""
        kind = pynvml.NVML_TEMPERATURE_GPU
        _put(found, "clock_reasons", self._ask("clock_reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons))
        _put(found, "sm_clock_mhz", self._ask("sm_clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM))
        celsius = self._ask("temperature", pynvml.nvmlDeviceGetTemperatureV, kind)
        if celsius is None:  # drivers up to R565
            celsius = self._ask("temperature_before", pynvml.nvmlDeviceGetTemperature, kind)
        _put(found, "temperature_celsius", celsius)
        margin = self._ask("margin", pynvml.nvmlDeviceGetMarginTemperature)
        if margin is None and celsius is not None and self._slowdown_celsius:
            margin = self._slowdown_celsius - celsius
        _put(found, "margin_celsius", margin)
        power, limit = (
            self._ask("power", pynvml.nvmlDeviceGetPowerUsage),
            self._ask("limit", pynvml.nvmlDeviceGetEnforcedPowerLimit),
        )
        if power is not None:
            found["power_watts"] = power // 1000
        if limit is not None:
            found["power_limit_watts"] = limit // 1000
            if self._default_mw:
                found["power_limit_missing_watts"] = max(0, (self._default_mw - limit) // 1000)
        use = self._ask("utilization", pynvml.nvmlDeviceGetUtilizationRates)
        if use is not None:
            found["utilization_percent"] = use.gpu
            found["is_loaded"] = int(use.gpu >= _LOADED_PERCENT)

    def _read_link(self, found: dict[str, Value]) -> None:
        """Its PCIe link."""
        both = (
            ("width", self._ask("width", pynvml.nvmlDeviceGetCurrPcieLinkWidth), self._width_max),
            ("generation", self._ask("generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration), self._generation_max),
        )
        for name, now, most in both:
            if now and most:
                found.update({name: now, f"{name}_max": most, f"{name}_missing": max(0, most - now)})

    def _read_nvlinks(self) -> dict[str, Value]:
        if self._links is None:
            links = dict(self._field_values([("links", pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)])).get("links", 0)
            self._links = [(f"{name}.{link}", number, link) for link in range(links) for name, number in _LINK_FIELDS]
        return dict(self._field_values(self._links)) if self._links else {}

    def _field_values(self, asked: "list[Any]") -> list[tuple[str, int]]:
        """The values of fields; those that are not supported are taken out of `asked`."""
        if not asked:
            return []
        wanted = [one[1:] if len(one) > 2 else one[1] for one in asked]
        values = self._ask("fields", pynvml.nvmlDeviceGetFieldValues, wanted) or []
        found, kept = [], []
        for one, value in zip(asked, values, strict=False):
            if value.nvmlReturn in NOT_SUPPORTED:
                continue
            kept.append(one)
            _raise_if_gone(value.nvmlReturn)
            number = _number(value) if value.nvmlReturn == pynvml.NVML_SUCCESS else None
            if number is not None:
                found.append((one[0], number))
        asked[:] = kept
        return found

    def _ask(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call gives; None where it is not supported. Raises NvmlError."""
        if name in self._unsupported:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in NOT_SUPPORTED:
                self._unsupported.add(name)
                return None
            if error.value in (pynvml.NVML_ERROR_NO_DATA, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NOT_READY):
                return None
            raise NvmlError(error.value, str(error)) from None


class Library:
    """The open library, and what waits for events."""

    def __init__(self, driver_root: str) -> None:
        """Open it. Raises NvmlError; OSError with the folders where it was looked for."""
        _load(Path(driver_root))
        _checked(pynvml.nvmlInit)
        self._events: Any = None
        self._by_handle: dict[int, Gpu] = {}

    def versions(self) -> tuple[str, str]:
        """Of the driver and of the library."""
        return _checked(pynvml.nvmlSystemGetDriverVersion), _checked(pynvml.nvmlSystemGetNVMLVersion)

    def open_gpu(self, address: str) -> Gpu | None:
        """One GPU by its address, no other; None where it is not this process's to see. Raises NvmlError."""
        try:
            handle = _checked(pynvml.nvmlDeviceGetHandleByPciBusId, address.encode())
        except NvmlError as error:
            if error.code in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION):
                return None
            raise
        gpu = Gpu(address, handle)
        self._by_handle[_address_of(handle)] = gpu
        return gpu

    def listen(self, gpu: Gpu) -> bool:
        """Ask for the events of a GPU. Whether it has any. Raises NvmlError."""
        try:
            supported = _checked(pynvml.nvmlDeviceGetSupportedEventTypes, gpu.handle)
            wanted = supported & sum(EVENTS)
            if not wanted:
                return False
            if self._events is None:
                self._events = _checked(pynvml.nvmlEventSetCreate)
            _checked(pynvml.nvmlDeviceRegisterEvents, gpu.handle, wanted, self._events)
        except NvmlError as error:
            if error.code in NOT_SUPPORTED:
                return False
            raise
        return True

    @property
    def listens(self) -> bool:
        """Whether there is anything to wait for."""
        return self._events is not None

    def wait(self, timeout_ms: int) -> GpuEvent | None:
        """The next event; None where none comes in time. Raises NvmlError."""
        try:
            event = _checked(pynvml.nvmlEventSetWait_v2, self._events, timeout_ms)
        except NvmlError as error:
            if error.code == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        return GpuEvent(
            gpu=self._by_handle.get(_address_of(event.device)),
            kind=EVENTS.get(event.eventType, str(event.eventType)),
            code=event.eventData,
            gpu_instance=None if event.gpuInstanceId == NO_INSTANCE else event.gpuInstanceId,
            compute_instance=None if event.computeInstanceId == NO_INSTANCE else event.computeInstanceId,
        )


def _load(driver_root: Path) -> None:
    """Load the library below the driver root, so that nvidia-ml-py, which asks for it by name, is given that one."""
    if driver_root == Path("/"):
        return
    tried = [driver_root / folder / LIBRARY for folder in _FOLDERS]
    path = next((each for each in tried if each.exists()), None)
    if path is None:
        raise FileNotFoundError(f"no {LIBRARY} under {driver_root} ({', '.join(_FOLDERS)}); set [nvml] driver_root")
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _checked(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(error.value, str(error)) from None


def _raise_if_gone(code: int) -> None:
    if code in CLOSED or code in (LOST, RESET_REQUIRED):
        raise NvmlError(code, str(pynvml.NVMLError(code)))


def _fabric(handle: Any) -> str:
    """The state of the fabric, or the status where it is completed with an error."""
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    state = _FABRIC[info.state] if info.state < len(_FABRIC) else str(info.state)
    if state == "completed" and info.status != pynvml.NVML_SUCCESS:
        return "_".join(str(pynvml.NVMLError(info.status)).lower().split())
    return state


def _number(value: Any) -> int | None:
    """The number of a field, by its type."""
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return int(getattr(value.value, kinds[value.valueType])) if value.valueType < len(kinds) else None


def _in_words(found: dict[str, Value]) -> None:
    """Recovery actions by name, times slowed down in ms."""
    action = found.get("recovery_action")
    if isinstance(action, int):
        found["recovery_action"] = _ACTIONS[action] if action < len(_ACTIONS) else f"action_{action}"
    slowed = [found.pop(name) for name in ("sw_thermal_ns", "hw_thermal_ns") if name in found]
    if slowed:
        found["thermal_violation_ms"] = sum(int(one) for one in slowed) // 1_000_000
    if "power_brake_ns" in found:
        found["power_brake_ms"] = int(found.pop("power_brake_ns")) // 1_000_000


def _put(found: dict[str, Value], name: str, value: Any) -> None:
    if value is not None:
        found[name] = value


def _address_of(handle: Any) -> int:
    """What tells handles apart: the pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
