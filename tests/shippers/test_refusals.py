"""A kernel log that cannot be opened is told with what to do, by why it cannot."""

import errno
import os
from pathlib import Path

import pytest

from shippers.refusals import kmsg_refusal, reason_of

KMSG = Path("/dev/kmsg")


@pytest.mark.parametrize(
    ("number", "may", "restricted", "says", "advises"),
    [
        (errno.ENOENT, True, True, "is not there: this container was not given the device", "--device /dev/kmsg"),
        (errno.EPERM, False, True, "asks for CAP_SYSLOG", "--cap-add SYSLOG"),
        (errno.EPERM, True, True, "may not open the device although it is there", "capabilities alone do not do"),
        (errno.EPERM, False, False, "may not open the device although it is there", "--device /dev/kmsg"),
        (errno.EACCES, False, True, "its mode keeps this user out", "run as root"),
    ],
    ids=["no device", "no capability", "device denied", "device denied, kernel open", "mode"],
)
def test_a_refused_kernel_log_says_what_is_missing(
    number: int, may: bool, restricted: bool, says: str, advises: str
) -> None:
    error = OSError(number, os.strerror(number))
    reason = reason_of(KMSG, error, may_read_kernel_log=may, is_restricted=restricted)
    assert says in reason
    assert advises in reason
    assert "docs/node-agent/privileges.md" in reason


def test_another_error_is_told_as_it_is_on_this_machine() -> None:
    assert kmsg_refusal(KMSG, OSError(errno.EIO, "Input/output error")) == "/dev/kmsg: Input/output error"
