"""Records of link state as they are held: whose they are, how old, and what is believed of them."""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from postroad.routing.control_frames import Interest, InterestDelta, LinkRecord
from postroad.routing.errors import RoutingError

__all__ = [
    "MAX_AHEAD_MS",
    "MAX_CHANGES",
    "MIN_CHANGES_BYTES",
    "AnyRecord",
    "HeldLinks",
    "Record",
    "RecordVerdict",
    "SaidInterest",
    "Seals",
    "aged",
    "check_links",
]

# How far a counter may be ahead of the clock here: a clock may be set to the wrong day, and a broker that started with
# such a clock is believed anyway. What is further ahead is not a clock set by mistake.
MAX_AHEAD_MS = 86_400_000

# Changes of an interest that are kept beside the whole, in number and in bytes; or as many bytes as the whole has. Then
# the whole is sent again, so that no broker keeps more than twice the whole, and a newcomer gets no more than that.
MAX_CHANGES = 4_096
MIN_CHANGES_BYTES = 4_096

Record = LinkRecord | Interest | InterestDelta
AnyRecord = TypeVar("AnyRecord", LinkRecord, Interest, InterestDelta)


class Seals(Protocol):
    """Signs what this broker says about itself, and knows the keys of the others."""

    def sign(self, data: bytes) -> bytes:
        """The signature of this broker."""

    def knows(self, broker: int) -> bool:
        """Whether the broker belongs to the network."""

    def verify(self, broker: int, data: bytes, signature: bytes) -> bool:
        """Whether a broker has signed this."""


class RecordVerdict(Enum):
    """What becomes of a record."""

    NEWS = 1  # it is taken over
    OLD = 2  # something as new is held
    REFUSED = 3  # it cannot be believed; the neighbour that sent it need not know


class HeldLinks(NamedTuple):
    """A record of links, and when it was made by the clock here."""

    record: LinkRecord
    born: int  # by the local clock


class SaidInterest:
    """What a broker said it wants: the whole, and what has changed since."""

    __slots__ = ("base", "changes", "size")

    def __init__(self, base: Interest) -> None:
        self.base = base
        self.changes: list[InterestDelta] = []
        self.size = 0

    @property
    def newest(self) -> tuple[int, int]:
        """Its number."""
        return self.base.epoch, self.base.version + len(self.changes)

    def append(self, change: InterestDelta) -> None:
        """The next change."""
        self.changes.append(change)
        self.size += len(change.added) + len(change.removed)

    def has_room(self, size: int) -> bool:
        """Whether another change of this size is kept beside the whole."""
        return len(self.changes) < MAX_CHANGES and self.size + size <= max(MIN_CHANGES_BYTES, len(self.base.summary))

    def holds(self, frame: Interest | InterestDelta) -> bool:
        """Whether just this was said."""
        if isinstance(frame, Interest):
            return frame == self.base
        place = frame.version - self.base.version - 1
        return 0 <= place < len(self.changes) and self.changes[place] == frame

    def after(self, number: tuple[int, int]) -> list[Interest | InterestDelta]:
        """What a broker lacks that has this version."""
        if number[0] == self.base.epoch and number[1] >= self.base.version:
            return [*self.changes[number[1] - self.base.version :]]
        return [self.base, *self.changes]


def aged(held: HeldLinks, now: int) -> LinkRecord:
    one = held.record
    # The age is not part of what is signed: it changes on every hop.
    return msgspec.structs.replace(one, age=max(0, now - held.born))


def check_links(record: LinkRecord, link: int) -> None:
    """A broker names its neighbours in order, each once, and never itself."""
    named = [number for number, _ in record.neighbours]
    if record.broker in named or any(one >= other for one, other in pairwise(named)):
        raise RoutingError(f"broker {link} sent links of broker {record.broker} that no broker has")
