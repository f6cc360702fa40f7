"""Frames of messages that arrived over a simulated link, and those that a broker takes together.

A live broker takes small frames that wait in a socket as one batch (`protocols/link/joined_frames.py`), because the
work per frame costs far more than a message. A simulated broker does the same with frames that arrived while its
processor was busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.messages import Batch
from postroad.routing.destinations import Destinations

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JOINED_BYTES", "ArrivedFrame", "joined"]

# As on live links: a larger frame is worth its cost, and this much is taken together at most.
SMALL_FRAME_BYTES = 16 << 10
JOINED_BYTES = 256 << 10


class ArrivedFrame(NamedTuple):
    """A frame of messages that arrived over a link.

    Attributes:
        link: the neighbour that sent it.
        life: of the link, when it was sent; see `Direction`.
        number: under which the sender holds it.
        batch: its rows.
        destinations: of each row.
    """

    link: int
    life: int
    number: int
    batch: Batch
    destinations: Destinations

    def goes_with(self, other: ArrivedFrame) -> bool:
        """Return whether two frames can be taken together."""
        if self.link != other.link or self.life != other.life:
            return False
        if max(self.batch.buffer.nbytes, other.batch.buffer.nbytes) > SMALL_FRAME_BYTES:
            return False
        return bool(self.destinations.sets.shape[1] == other.destinations.sets.shape[1])


def joined(arrivals: Sequence[ArrivedFrame]) -> tuple[Batch, Destinations]:
    """Return the rows of all frames as one batch, in order, and their destinations; equal tables of sets become one."""
    if len(arrivals) == 1:
        return arrivals[0].batch, arrivals[0].destinations
    starts: dict[bytes, int] = {}
    tables, lines = [], []
    count = 0
    for one in arrivals:
        sets = one.destinations.sets
        start = starts.setdefault(sets.tobytes(), count)
        if start == count:
            tables.append(sets)
            count += len(sets)
        lines.append(one.destinations.lines + start)
    batch = Batch.concatenate([one.batch for one in arrivals])
    return batch, Destinations(np.concatenate(tables), np.concatenate(lines))
