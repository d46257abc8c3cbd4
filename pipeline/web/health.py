"""Whether what the feed shows is the present."""

from typing import Literal

from msgspec import Struct

Following = Literal["starting", "following", "unreachable", "stopped"]


class Health(Struct, frozen=True, kw_only=True):
    """State of the consumer. Only `following` is healthy; `reason` says what to do about anything else."""

    state: Following
    reason: str = ""
    unreadable: int = 0

    @property
    def ok(self) -> bool:
        """Whether the feed is caught up with its topic and still connected."""
        return self.state == "following"
