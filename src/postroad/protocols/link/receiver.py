"""`LinkReceiver`: which frames of one neighbour have arrived, and which are settled. It outlives connections."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.protocols.link.errors import LinkError
from postroad.protocols.link.frames import Progress
from postroad.protocols.link.limits import MAX_HELD_FRAMES, MAX_PROGRESS_RANGES, PROGRESS_FRAMES, PROGRESS_MS

__all__ = ["LinkReceiver", "ReceiverStatistics"]


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """Counts since the start; the last two are of the present."""

    received_frames: int
    repeated_frames: int
    skipped_frames: int
    restarts: int
    unsettled_frames: int
    settled_early: int


class LinkReceiver:
    """Checks the order of DATA frames from one neighbour, and reports which are received and settled.

    Attributes:
        epoch: the neighbour's process; 0 before the first handshake.
        received: the last frame that arrived.
        settled: all frames up to this one are settled.
        custody: whether the neighbour asks to settle frames when they are done with; if not, on receipt.
    """

    def __init__(self, *, every_frames: int = PROGRESS_FRAMES, every_ms: int = PROGRESS_MS) -> None:
        self.epoch = 0
        self.received = 0
        self.settled = 0
        self.custody = False
        # Settled out of order: after `settled`, at most `received`.
        self._early: set[int] = set()
        # Those that were not reported to the peer yet.
        self._untold: set[int] = set()
        self._reported = Progress(0, 0)
        self._news_since: int | None = None
        self._every_frames = every_frames
        self._every_ms = every_ms
        self._received_frames = self._repeated = self._skipped = self._restarts = 0

    def attach(self, epoch: int, first: int, *, custody: bool) -> None:
        """Start a connection, after its handshake.

        Args:
            epoch: from the peer's HELLO; another one than before means that its numbering restarts.
            first: from its WELCOME; it sends nothing before this frame.
            custody: whether it asks to settle frames when they are done with; if not, they are settled on receipt.
        """
        if epoch != self.epoch:
            self._restarts += self.epoch != 0
            self.epoch = epoch
            self._move_to(first - 1)
        elif first > self.received + 1:
            # The sender gave up the frames before, and they took another route.
            self._skipped += first - 1 - self.received
            self._move_to(first - 1)
        self.custody = custody
        if not custody:
            self._move_to(self.received)
        # The peer may know some of it from our WELCOME; reporting it twice does no harm.
        self._reported = Progress(0, 0)
        self._untold = set(self._early)
        self._news_since = None

    def _move_to(self, number: int) -> None:
        self.received = self.settled = number
        self._early.clear()
        self._untold.clear()

    def accept(self, number: int) -> bool:
        """Whether a DATA frame is new. The caller drops one that is not.

        Raises:
            LinkError: frames before it are missing, or too many are not settled.
        """
        if number <= self.received:
            self._repeated += 1
            return False
        if number != self.received + 1:
            raise LinkError(f"DATA {number} came, and {self.received + 1} is next: frames are missing")
        if self.received - self.settled >= MAX_HELD_FRAMES:
            raise LinkError(f"more than {MAX_HELD_FRAMES:,} frames are under way and not settled; the peer must wait")
        self.received = number
        self._received_frames += 1
        if not self.custody:
            self._move_to(number)
        return True

    def settle(self, epoch: int, number: int) -> None:
        """Settle a frame: this broker, and all to which it relayed the frame, are done with it. The order is free.

        Args:
            epoch: the neighbour's when the frame arrived; frames of an earlier process are ignored.
            number: of the frame.

        Raises:
            LinkError: no such frame arrived.
        """
        if epoch != self.epoch or number <= self.settled:
            return
        if number > self.received:
            raise LinkError(f"DATA {number} cannot be settled: {self.received} is the last that came")
        if number in self._early:
            return
        self._early.add(number)
        self._untold.add(number)
        while self.settled + 1 in self._early:
            self.settled += 1
            self._early.remove(self.settled)
            self._untold.discard(self.settled)

    def progress(self, now: int) -> Progress | None:
        """Return what to report to the peer now, or None. To be called after each read and on each tick."""
        news = Progress(self.received, self.settled)
        if news == self._reported and not self._untold:
            self._news_since = None
            return None
        if self._news_since is None:
            self._news_since = now
        fresh = max(news.received - self._reported.received, news.settled - self._reported.settled, len(self._untold))
        if fresh < self._every_frames and now - self._news_since < self._every_ms:
            return None
        self._reported = news
        self._news_since = None
        return news._replace(early=self._tell_early())

    def _tell_early(self) -> tuple[tuple[int, int], ...]:
        """Return ranges of frames that are settled out of order and not reported yet; as many as fit in a frame."""
        runs: list[tuple[int, int]] = []
        for number in sorted(self._untold):
            if runs and runs[-1][1] == number - 1:
                runs[-1] = (runs[-1][0], number)
            elif len(runs) == MAX_PROGRESS_RANGES:
                break
            else:
                runs.append((number, number))
            self._untold.remove(number)
        return tuple(runs)

    def statistics(self) -> ReceiverStatistics:
        """Return the counts."""
        return ReceiverStatistics(
            self._received_frames,
            self._repeated,
            self._skipped,
            self._restarts,
            self.received - self.settled,
            len(self._early),
        )
