"""Why the kernel's ring buffer cannot be opened, and what to do, told apart by what the kernel answers."""

import errno
from pathlib import Path
from typing import Final

_CAP_SYSLOG: Final = 34
_ELSE: Final = "or read the journal or the kernel's log file instead (docs/node-agent/privileges.md)"


def kmsg_refusal(path: Path, error: OSError) -> str:
    """The reason of an error, as it is on this machine."""
    return reason_of(path, error, may_read_kernel_log=_has_syslog(), is_restricted=_is_restricted())


def reason_of(path: Path, error: OSError, *, may_read_kernel_log: bool, is_restricted: bool) -> str:
    """The reason, by whether the process has CAP_SYSLOG and whether the kernel asks for it."""
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return (
            f"{path} is not there: this container was not given the device; give it the device, capabilities alone do "
            f"not do (docker: --device {path}:{path}:r; Kubernetes: hostPath {path} and privileged), {_ELSE}"
        )
    if error.errno == errno.EACCES:
        return f"{path}: its mode keeps this user out; run as root, or let a group of this user read it, {_ELSE}"
    if error.errno == errno.EPERM and is_restricted and not may_read_kernel_log:
        return (
            f"{path}: the kernel asks for CAP_SYSLOG (kernel.dmesg_restrict is 1); give it "
            f"(systemd: AmbientCapabilities=CAP_SYSLOG; docker: --cap-add SYSLOG), {_ELSE}"
        )
    if error.errno == errno.EPERM:
        return (
            f"{path}: this container may not open the device although it is there; give it the device, capabilities "
            f"alone do not do (docker: --device {path}:{path}:r; Kubernetes: privileged), {_ELSE}"
        )
    return f"{path}: {error.strerror}"


def _has_syslog() -> bool:
    """Whether this process has CAP_SYSLOG."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYSLOG & 1)


def _is_restricted() -> bool:
    """Whether the kernel shows its log to those alone that have CAP_SYSLOG; taken for so where it does not say."""
    try:
        return Path("/proc/sys/kernel/dmesg_restrict").read_text(encoding="ascii").strip() != "0"
    except OSError:
        return True
