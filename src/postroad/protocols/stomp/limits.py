"""Limits of STOMP frames, each with its reason. STOMP allows a server to set them ("Size Limits" in all versions)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from postroad.errors import LimitError, PostroadError
from postroad.messages.limits import MAX_ATTRIBUTES
from postroad.messages.limits import MAX_BODY_BYTES as MAX_MESSAGE_BODY_BYTES
from postroad.messages.limits import MAX_HEADER_BYTES as MAX_MESSAGE_HEADER_BYTES

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_COMMAND_BYTES",
    "MAX_CONNECT_HEADERS",
    "MAX_CONNECT_HEADER_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_HEADERS",
    "MAX_HEADER_BYTES",
    "MAX_SUBSCRIPTION_ID_BYTES",
    "StompLimits",
]

# The longest command is UNSUBSCRIBE. Bytes that are not a command are found at once, and not kept.
MAX_COMMAND_BYTES = 16
# All header lines of a frame with their blank line. Header lines of a SEND become those of the message, so this is
# their limit there.
MAX_HEADER_BYTES = MAX_MESSAGE_HEADER_BYTES
# Lines in a frame. Every user-defined one becomes an attribute, so this is the limit of a message's attributes.
MAX_HEADERS = MAX_ATTRIBUTES
# The limit of a message's body.
MAX_BODY_BYTES = MAX_MESSAGE_BODY_BYTES
# A whole frame, which follows from the others: the most that is kept for a connection that never ends its frame.
# The 5 are two line ends of two bytes and the NUL.
MAX_FRAME_BYTES = MAX_COMMAND_BYTES + MAX_HEADER_BYTES + MAX_BODY_BYTES + 5

# The same for the first frame of a connection, whose sender is a stranger. The longest values that a CONNECT has are
# tokens in place of a passcode, which other servers limit to some KiB as well; brokers define a dozen headers for it.
MAX_CONNECT_HEADER_BYTES = 8 * 1024
MAX_CONNECT_HEADERS = 64

# The id of a subscription, which is in every MESSAGE for it: without a limit, one read of small messages could become a
# gigabyte. Some clients use the destination as the id; the longest one fits.
MAX_SUBSCRIPTION_ID_BYTES = 1_280

# The shortest useful frame: with lower limits, no client could connect.
_SMALLEST = {"command_bytes": len("UNSUBSCRIBE"), "header_bytes": 256, "headers": 8, "body_bytes": 0}
_LARGEST = {
    "command_bytes": 256,
    "header_bytes": MAX_HEADER_BYTES,
    "headers": MAX_HEADERS,
    "body_bytes": MAX_BODY_BYTES,
}


@dataclass(frozen=True, slots=True)
class StompLimits:
    """The limits of one connection. They can be lower than the defaults, which are those of the message format."""

    command_bytes: int = MAX_COMMAND_BYTES
    header_bytes: int = MAX_HEADER_BYTES
    headers: int = MAX_HEADERS
    body_bytes: int = MAX_BODY_BYTES

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value > _LARGEST[field.name]:
                raise LimitError(f"the STOMP limit {field.name}", value, _LARGEST[field.name])
            if value < _SMALLEST[field.name]:
                raise PostroadError(f"the STOMP limit {field.name} is {value}; set {_SMALLEST[field.name]} or more")

    def before_connect(self) -> StompLimits:
        """The limits of the first frame."""
        return StompLimits(
            command_bytes=self.command_bytes,
            header_bytes=min(self.header_bytes, MAX_CONNECT_HEADER_BYTES),
            headers=min(self.headers, MAX_CONNECT_HEADERS),
            body_bytes=0,
        )

    @property
    def frame_bytes(self) -> int:
        """The largest size of a frame, and so the most that is kept of an unfinished one."""
        return self.command_bytes + self.header_bytes + self.body_bytes + 5
