"""Small DATA frames that came together, as one: what a broker does for each frame costs far more than a message.

A neighbour that gets messages one by one passes each on in a frame of its own. Without this, a broker that falls behind
such a neighbour would stay behind, although it could do a thousand messages in the time of a few frames.
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

# A larger frame is worth its costs; copying it is not.
SMALL_FRAME_BYTES = 16 << 10
# The most that is copied into one batch: about what one read brings.
JOINED_BYTES = 256 << 10


def group_frames(frames: Sequence[Data | Control]) -> Iterator[Control | list[Data]]:
    """The frames in order; DATA frames that can be taken together, in lists."""
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
    """Small, and with destination sets that fit one table."""
    small = max(one.batch.buffer.nbytes, other.batch.buffer.nbytes) <= SMALL_FRAME_BYTES
    return small and one.epoch == other.epoch and one.sets.shape[1] == other.sets.shape[1]


def join_frames(frames: Sequence[Data]) -> Data:
    """Frames of one group as one, with the number of the last; equal tables of sets become one."""
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
