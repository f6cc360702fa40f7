"""`LinkSender`: holds what one neighbour has not yet received or settled. It outlives connections.

Theory of operation. DATA frames to a neighbour are numbered 1, 2, 3, … and held, as bytes, until they can be released:
under *relay* when the neighbour has received them, under *custody* when it has settled them, in any order. Each frame
has a mark of the caller, which comes back when the frame is released or returned. After a lost connection the neighbour
says exactly what it has received, so the sender sends only what is missing, and nothing arrives twice. A neighbour that
comes back as another process (another epoch) has forgotten everything: held frames are returned, and the caller routes
them again, marked as maybe-duplicate.

Each connection begins with the number of the first frame that may follow (`first`). Earlier frames are settled, or were
given up and took another route; the receiver does not wait for them. So numbers are never used for two frames that
one process of the neighbour could see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.protocols.link.data import (
    DATA_HEAD_BYTES,
    ROW_BYTES,
    Data,
    check_destinations,
    decode_data,
    encode_checked,
    row_sizes,
)
from postroad.protocols.link.errors import LinkError
from postroad.protocols.link.handshake import LinkStanding
from postroad.protocols.link.limits import (
    CROWDED,
    MAX_HELD_BYTES,
    MAX_HELD_FRAMES,
    MAX_HELD_ROWS,
    MAX_LINK_FRAME_BYTES,
    MAX_ROWS_PER_FRAME,
    OVERDRAFT,
    RELAXED,
    TARGET_FRAME_BYTES,
)

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.protocols.link.data import Lines, Sets
    from postroad.protocols.link.frames import Progress

__all__ = ["Attached", "LinkSender", "Room", "SenderLimits", "SenderStatistics", "Sent"]


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """How much is held for one neighbour, and how large a frame grows before the next one begins."""

    bytes: int = MAX_HELD_BYTES
    rows: int = MAX_HELD_ROWS
    frames: int = MAX_HELD_FRAMES // OVERDRAFT
    frame_bytes: int = TARGET_FRAME_BYTES

    def __post_init__(self) -> None:
        if min(self.bytes, self.rows, self.frames, self.frame_bytes) < 1:
            raise LinkError(f"the limits of a link are 1 or more, not {self}")
        if self.frame_bytes > MAX_LINK_FRAME_BYTES or self.frames > MAX_HELD_FRAMES:
            raise LinkError(f"a frame has at most {MAX_LINK_FRAME_BYTES:,} bytes, and {MAX_HELD_FRAMES:,} may be held")


class Room(NamedTuple):
    """What may still be added to a link."""

    bytes: int
    rows: int
    frames: int


class Sent(NamedTuple):
    """The result of a send: frames to write now (none without a connection), how many rows are taken, in how many
    frames."""

    frames: list[memoryview]
    taken: int
    held: int


class Attached(NamedTuple):
    """What a new connection requires: frames to write, and frames that must take another route."""

    resend: list[memoryview]
    returned: list[Data]


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    """Counts since the start; `held_…` are of the present."""

    sent_frames: int
    sent_rows: int
    resent_frames: int
    returned_frames: int
    freed_frames: int
    refused_rows: int
    held_frames: int
    held_rows: int
    held_bytes: int


class _Held(NamedTuple):
    number: int
    frame: memoryview
    rows: int
    mark: object


class LinkSender:
    """Numbers and holds what goes to one neighbour.

    Args:
        epoch: of this process; numbering belongs to it.
        custody: hold until settled, not only until received.
        limits: how much to hold.
    """

    def __init__(self, epoch: int, *, custody: bool = False, limits: SenderLimits | None = None) -> None:
        self.custody = custody
        self._epoch = epoch
        self._limits = limits or SenderLimits()
        # By number, in order.
        self._held: dict[int, _Held] = {}
        self._let_go: list[object] = []
        self._bytes = self._rows = 0
        self._next = 1
        self._received = self._settled = 0
        self._peer_epoch = 0
        # Whether that process has shown that it knows this process.
        self._known = False
        # The last frame the peer can have: it was returned to be written, or given up.
        self._offered = 0
        # The last frame that was given up.
        self._given_up = 0
        self._attached = False
        self._sent_frames = self._sent_rows = self._resent = self._returned = self._freed = self._refused = 0

    @property
    def first(self) -> int:
        """The first frame that a new connection would carry."""
        return self._received + 1

    @property
    def room(self) -> Room:
        """What may still be added before the limits are reached."""
        return self._room(1)

    def _room(self, times: int) -> Room:
        limits = self._limits
        # The receiver keeps the numbers that are settled out of order, so those under way must not be too far apart.
        span = MAX_HELD_FRAMES - (self._next - 1 - self._settled) if self.custody else MAX_HELD_FRAMES
        frames = min(limits.frames * times - len(self._held), span)
        left = (limits.bytes * times - self._bytes, limits.rows * times - self._rows, frames)
        return Room(*(max(0, each) for each in left))

    @property
    def fill(self) -> float:
        """The used share of the limits, from 0; rows returned by other links can make it more than 1."""
        limits = self._limits
        under_way = self._next - 1 - self._settled if self.custody else 0
        return max(
            self._bytes / limits.bytes,
            self._rows / limits.rows,
            len(self._held) / limits.frames,
            under_way / MAX_HELD_FRAMES,
        )

    @property
    def crowded(self) -> bool:
        """Whether publishers whose messages take this link should be paused."""
        return self.fill > CROWDED

    @property
    def relaxed(self) -> bool:
        """Whether they may resume."""
        return self.fill <= RELAXED

    def send(
        self,
        batch: Batch,
        rows: Lines,
        sets: Sets,
        lines: Lines,
        epoch: int,
        *,
        mark: object = None,
        returned: bool = False,
    ) -> Sent:
        """Number and hold rows of a batch; see `encode_data`. Takes as many of the first rows as there is room for.

        Args:
            batch, rows, sets, lines, epoch: as in `encode_data`.
            mark: comes back with each frame that is made; see `take_let_go` and `Data.mark`.
            returned: another link returned these rows, so there is more room for them.

        Raises:
            PostroadError: rows or destinations are not valid; nothing is taken.
        """
        check_destinations(len(rows), sets, lines)
        sizes = row_sizes(batch, rows)
        frames: list[memoryview] = []
        taken = 0
        while taken < len(rows):
            count = self._fitting(sizes[taken:], len(sets), sets.shape[1] * 8, OVERDRAFT if returned else 1)
            if count == 0:
                break
            part = slice(taken, taken + count)
            frame = encode_checked(batch, rows[part], sets, lines[part], epoch, self._next, sizes[part])
            self._hold(frame, count, mark)
            frames.append(frame)
            taken += count
        self._refused += len(rows) - taken
        if not self._attached:
            return Sent([], taken, len(frames))
        self._offered = self._next - 1
        return Sent(frames, taken, len(frames))

    def _fitting(self, sizes: Lines, distinct: int, set_bytes: int, times: int) -> int:
        """Return how many rows the next frame takes: at least one, if there is room for it."""
        room = self._room(times)
        if room.frames < 1:
            return 0
        most = min(len(sizes), room.rows, MAX_ROWS_PER_FRAME)
        # A frame has no more sets than rows.
        all_rows = int(sizes.sum()) + len(sizes) * ROW_BYTES + min(distinct, len(sizes)) * set_bytes
        limit = min(room.bytes, self._limits.frame_bytes) - DATA_HEAD_BYTES
        if most == len(sizes) and all_rows <= limit:
            return most
        ends = np.cumsum(sizes[:most] + ROW_BYTES) + np.minimum(np.arange(1, most + 1), distinct) * set_bytes
        count = int(np.searchsorted(ends, limit, side="right"))
        if count == 0 and most and int(ends[0]) <= room.bytes - DATA_HEAD_BYTES:
            return 1
        return count

    def _hold(self, frame: memoryview, rows: int, mark: object) -> None:
        self._held[self._next] = _Held(self._next, frame, rows, mark)
        self._next += 1
        self._bytes += len(frame)
        self._rows += rows
        self._sent_frames += 1
        self._sent_rows += rows

    def attach(self, peer_epoch: int, theirs: LinkStanding, first: int) -> Attached:
        """Start a connection, after its handshake.

        Args:
            peer_epoch: from the peer's HELLO.
            theirs: from the peer's WELCOME.
            first: what this end said in its own WELCOME.

        Raises:
            LinkError: the peer claims frames that were never sent, or `first` is no longer true; nothing changes.
        """
        if theirs.epoch == self._epoch and theirs.received > self._offered:
            raise self._unsent(theirs.received)
        resend: list[memoryview] = []
        returned: list[Data] = []
        if theirs.epoch == self._epoch and self._peer_epoch in (0, peer_epoch):
            resend = self._continue(theirs, first)
        elif self._peer_epoch in (0, peer_epoch) and not self._known:
            # It has never completed a handshake with this process: it has nothing.
            resend = self._continue(LinkStanding(), first)
        else:
            returned = self._start_anew(first)
        self._peer_epoch = peer_epoch
        self._known = theirs.epoch == self._epoch
        self._attached = True
        self._offered = self._next - 1
        self._resent += len(resend)
        return Attached(resend, returned)

    def _continue(self, theirs: LinkStanding, first: int) -> list[memoryview]:
        """Return the frames that the peer lacks; it remembers this process, or has never met it."""
        # The peer continues after what it has, and after what it was told not to wait for. It must not wait for frames
        # that were given up since.
        if self._given_up > max(theirs.received, first - 1):
            raise self._stale(first)
        received = max(theirs.received, self._received)
        self._free(received, max(theirs.settled, self._settled))
        return [held.frame for held in self._held.values() if held.number > received]

    def _start_anew(self, first: int) -> list[Data]:
        """Return what is held and renumber from `first`, for which the peer waits: it has forgotten everything."""
        if first != self.first:
            raise self._stale(first)
        returned = self._give_back()
        self._next = first
        self._settled = self._received
        self._given_up = 0
        return returned

    def _unsent(self, number: int) -> LinkError:
        return LinkError(
            f"the peer has DATA {number}, and {self._offered} is the last that was sent to it; the sender of a "
            "neighbour must be kept as long as the process lives"
        )

    def _stale(self, first: int) -> LinkError:
        return LinkError(f"frame {first} was announced as the first, but by now it is {self.first}; dial again")

    def detach(self) -> None:
        """End the connection. What is sent from now on waits for the next one."""
        self._attached = False

    def progress(self, reported: Progress) -> None:
        """Release what the peer has received or settled; an old report changes nothing.

        Raises:
            LinkError: the peer claims frames that were never sent.
        """
        if reported.received > self._offered:
            raise self._unsent(reported.received)
        self._known = True
        self._free(max(reported.received, self._received), max(reported.settled, self._settled))
        if self.custody:
            for first, last in reported.early:
                # The peer can claim any ranges, so go through what is held, which is bounded.
                for number in range(max(first, self._settled + 1), min(last, self._next - 1) + 1):
                    self._let(number)

    def _free(self, received: int, settled: int) -> None:
        self._received, self._settled = received, settled
        done = settled if self.custody else received
        while self._held and (number := next(iter(self._held))) <= done:
            self._let(number)

    def _let(self, number: int) -> None:
        """Release a frame, if it is held."""
        held = self._held.pop(number, None)
        if held is None:
            return
        self._bytes -= len(held.frame)
        self._rows -= held.rows
        self._freed += 1
        if held.mark is not None:
            self._let_go.append(held.mark)

    def take_let_go(self) -> list[object]:
        """Return the marks of the frames released since the last call, each once per frame; never None."""
        taken, self._let_go = self._let_go, []
        return taken

    def give_up(self) -> list[Data]:
        """Return all held frames, because the neighbour is gone for too long. Only while detached.

        Raises:
            LinkError: there is a connection; `detach` first.
        """
        if self._attached:
            raise LinkError("frames are given up only when the connection is gone; detach first")
        # The next connection tells the peer not to wait for these.
        self._received = self._settled = self._offered = self._given_up = self._next - 1
        return self._give_back()

    def _give_back(self) -> list[Data]:
        returned = [decode_data(held.frame)._replace(mark=held.mark) for held in self._held.values()]
        self._returned += len(returned)
        self._held.clear()
        self._bytes = self._rows = 0
        return returned

    def statistics(self) -> SenderStatistics:
        """Return the counts."""
        return SenderStatistics(
            self._sent_frames,
            self._sent_rows,
            self._resent,
            self._returned,
            self._freed,
            self._refused,
            len(self._held),
            self._rows,
            self._bytes,
        )
