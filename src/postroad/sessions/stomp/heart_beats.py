"""Heart-beats of one connection, both ways. No clock here: each call gets a monotonic time in ms."""

from __future__ import annotations

__all__ = ["GRACE", "HeartBeats"]

# A client is closed after this many of its intervals in silence: one beat may be late, or lost in a slow network.
GRACE = 2
# Beats are sent after this part of an interval, so that they arrive within it.
EARLY = 0.75


class HeartBeats:
    """What was agreed, and when each side was heard last.

    Attributes:
        sent: when something was written last; kept only if `sends_every`.
        heard: when something was read last; kept only if `expects_every`.
        deaf: nothing is read at the moment, so silence proves nothing.
    """

    __slots__ = ("deaf", "expects_every", "heard", "sends_every", "sent")

    def __init__(self, now: int) -> None:
        self.sent = self.heard = now
        self.deaf = False
        self.sends_every = 0
        self.expects_every = 0

    def agree(self, promised: int, wanted: int, least: int, now: int) -> None:
        """Agree on intervals: the client sends a beat every `promised` ms and wants one each `wanted` ms; 0 is none."""
        self.sent = self.heard = now
        self.sends_every = max(wanted, least) if wanted else 0
        self.expects_every = max(promised, least) if promised else 0

    def must_beat(self, now: int) -> bool:
        """Return whether it is time to send something."""
        return bool(self.sends_every) and now >= self._beat_at()

    def is_silent(self, now: int) -> bool:
        """Return whether the client has been silent for too long."""
        return bool(self.expects_every) and not self.deaf and now > self._silent_at()

    def due(self) -> int | None:
        """Return when to check again; None for never."""
        times = []
        if self.sends_every:
            times.append(self._beat_at())
        if self.expects_every and not self.deaf:
            times.append(self._silent_at() + 1)
        return min(times, default=None)

    def _beat_at(self) -> int:
        return self.sent + int(EARLY * self.sends_every)

    def _silent_at(self) -> int:
        return self.heard + GRACE * self.expects_every
