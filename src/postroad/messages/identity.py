"""`MessageId`: the 16 bytes that identify a message.

An id is (publisher u32, broker u32, time u48 in Unix ms, counter u16), big-endian, so that bytes, text and tuples sort
alike: by publisher, then broker, then time. This module does not import numpy: commands start
sooner without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from postroad.messages.errors import DecodeError, MessageError

__all__ = [
    "COUNTER_BITS",
    "COUNTER_MASK",
    "ID_BYTES",
    "LARGEST_TAIL",
    "LARGEST_TIME",
    "ORIGIN_BITS",
    "ORIGIN_MASK",
    "MessageId",
    "check_field",
]

ID_BYTES = 16
ORIGIN_BITS = 32
ORIGIN_MASK = 2**32 - 1
COUNTER_BITS = 16
COUNTER_MASK = 0xFFFF
_LARGEST_U32 = 2**32 - 1
LARGEST_TIME = 2**48 - 1  # the year 10889
LARGEST_TAIL = 2**64 - 1
_TEXT = re.compile(r"([0-9a-f]{8})-([0-9a-f]{8})-([0-9a-f]{12})-([0-9a-f]{4})")


@dataclass(frozen=True, order=True, slots=True)
class MessageId:
    """Who sent a message through which broker, and when; `bytes(id)` and `str(id)` encode it."""

    publisher: int
    broker: int
    time: int
    counter: int

    def __post_init__(self) -> None:
        check_field("publisher", self.publisher, _LARGEST_U32)
        check_field("broker", self.broker, _LARGEST_U32)
        check_field("time", self.time, LARGEST_TIME)
        check_field("counter", self.counter, COUNTER_MASK)

    def __bytes__(self) -> bytes:
        return self.head.to_bytes(8, "big") + self.tail.to_bytes(8, "big")

    def __str__(self) -> str:
        return f"{self.publisher:08x}-{self.broker:08x}-{self.time:012x}-{self.counter:04x}"

    @property
    def head(self) -> int:
        """The first 8 bytes as a number: the first column of `Batch.ids`."""
        return self.publisher << ORIGIN_BITS | self.broker

    @property
    def tail(self) -> int:
        """The last 8 bytes as a number: the second column of `Batch.ids`."""
        return self.time << COUNTER_BITS | self.counter

    @classmethod
    def of(cls, head: int, tail: int) -> MessageId:
        """Return the id with these two halves, as in a row of `Batch.ids`."""
        return cls(head >> ORIGIN_BITS, head & ORIGIN_MASK, tail >> COUNTER_BITS, tail & COUNTER_MASK)

    @classmethod
    def from_bytes(cls, data: bytes) -> MessageId:
        """Decode the 16 bytes of an id."""
        if len(data) != ID_BYTES:
            raise DecodeError(f"a message id has {ID_BYTES} bytes, this has {len(data)}")
        return cls.of(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Decode the text form: lower-case hexadecimal, 8-8-12-4 digits."""
        found = _TEXT.fullmatch(text)
        if found is None:
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise DecodeError(
                f"{shown!r} is not a message id; write publisher-broker-time-counter in lower-case hexadecimal, "
                "8-8-12-4 digits, like 00000007-00000002-018bcfe56800-0001"
            )
        return cls(*(int(part, 16) for part in found.groups()))


def check_field(field: str, value: int, largest: int) -> None:
    """Raise `MessageError` for a number that a field of an id cannot hold."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MessageError(f"a message id's {field} is an integer, not {type(value).__name__}")
    if not 0 <= value <= largest:
        raise MessageError(f"a message id's {field} is between 0 and {largest:,}, not {value:,}")
