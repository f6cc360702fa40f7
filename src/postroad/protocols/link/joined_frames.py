"""Joins small DATA frames of one read: a broker's work for a frame costs far more than for a message.

A neighbour that gets single messages relays each in a separate frame. Without this, a broker that falls behind such a
neighbour would stay behind, although it can handle a thousand messages in the time of a few frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch
from postroad.protocols.link.data import Data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from postroad.protocols.link.data import Lines, Sets
    from postroad.protocols.link.frames import Control

__all__ = ["JOINED_BYTES", "SMALL_FRAME_BYTES", "group_frames", "join_frames"]

# For a larger frame, copying costs more than it saves.
SMALL_FRAME_BYTES = 16 << 10
# The most that is copied into one batch: about one read.
JOINED_BYTES = 256 << 10


def group_frames(frames: Sequence[Data | Control]) -> Iterator[Control | list[Data]]:
    """Yield the frames in order; consecutive DATA frames that can be joined come as a list."""
    group: list[Data] = []
    held = 0
    for frame in frames:
        size = frame.batch.buffer.nbytes if isinstance(frame, Data) else 0
        if group and not (isinstance(frame, Data) and _are_alike(group[-1], frame) and held + size <= JOINED_BYTES):
            yield group
            group, held = [], 0
        if isinstance(frame, Data):
            group.append(frame)
            held += size
        else:
            yield frame
    if group:
        yield group


def _are_alike(one: Data, other: Data) -> bool:
    """Whether two frames are small, and their destination sets fit one table."""
    small = max(one.batch.buffer.nbytes, other.batch.buffer.nbytes) <= SMALL_FRAME_BYTES
    return small and one.epoch == other.epoch and one.sets.shape[1] == other.sets.shape[1]


def join_frames(frames: Sequence[Data]) -> Data:
    """Join the frames of one group into one, with the number of the last; equal tables of sets become one."""
    if len(frames) == 1:
        return frames[0]
    starts: dict[bytes, int] = {}
    tables: list[Sets] = []
    lines: list[Lines] = []
    count = 0
    for frame in frames:
        start = starts.setdefault(frame.sets.tobytes(), count)
        if start == count:
            tables.append(frame.sets)
            count += len(frame.sets)
        lines.append(frame.lines + start)
    batch = Batch.concatenate([frame.batch for frame in frames])
    return Data(frames[-1].number, frames[-1].epoch, batch, np.concatenate(tables), np.concatenate(lines))
