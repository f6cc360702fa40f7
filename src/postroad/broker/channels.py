"""A channel between two brokers of a network: what one end sends reaches the other once, whole and in order.

It runs over datagrams that may be lost, repeated or reordered, through whatever brokers lie between.

Rule 1: a session is named by two numbers, one from each end. A datagram counts only if it names both as this end knows
    them. An end that gets a datagram with an outdated number says hello with its current one.
Rule 2: items are sent only after the other end has said this end's number (`is_open`). Datagrams are numbered; one that
    arrives out of order is dropped, and sent again.
Rule 3: if the other end has a new number, or was silent for `SILENCE_MS`, the session is over (`on_lost`), with all
    that was under way: the senders decide again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SILENCE_MS", "Channel", "Datagram"]

# A broker that is silent for this long counts as dead. A broken link is replaced within three heart-beats of a second,
# and messages of topics wait as long for a route.
SILENCE_MS = 10_000
# How often an open channel sends something.
BEAT_MS = 2_000
# What is not confirmed after this time is sent again: many round trips of any network.
RESEND_MS = 1_000
# How often to ask whether the other end is there.
HELLO_MS = 500
# How much may be under way: enough for 100 MiB/s at a round trip of 40 ms.
WINDOW_BYTES = 4 * 1024 * 1024
WINDOW_DATAGRAMS = 256
# Waiting items are sent together up to this size.
DATAGRAM_BYTES = 256 * 1024

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Datagram(msgspec.Struct, frozen=True, array_like=True):
    """One datagram.

    Attributes:
        sender: the session number of the end that sends it.
        receiver: that of the other end; 0 if it is not known.
        number: counts the datagrams with items, from 1; 0 for one without.
        heard: all datagrams of the other end up to this number have arrived.
        items: what it carries.
    """

    sender: _Number
    receiver: _Number
    number: _Number = 0
    heard: _Number = 0
    items: list[bytes] = []


class _Sent(NamedTuple):
    number: int
    items: list[bytes]
    size: int


class Channel:
    """One end.

    Args:
        number: makes a session number that is never used twice, not even in another process.
        on_open: called when a session begins.
        on_lost: called when one is over.

    Attributes:
        is_wanted: this end wants a session; otherwise it waits for the other end to want one.
        is_open: items are sent.
        closed_since: since when it wants a session and has none, in ms; None if it has one, or wants none.
        backlog_bytes: what waits to be sent, or to be confirmed.
    """

    def __init__(self, number: Callable[[], int], on_open: Callable[[], None], on_lost: Callable[[], None]) -> None:
        self._number = number
        self._on_open = on_open
        self._on_lost = on_lost
        self.is_wanted = False
        # The end to inform that the session it names is over; 0 for none.
        self._hello_to = 0
        self._mine = number()
        self._begin()
        self.closed_since: int | None = None

    def _begin(self) -> None:
        """Forget the other end."""
        self._theirs = 0
        self.is_open = False
        self._next = 1
        self._heard = 0
        self._waiting: deque[bytes] = deque()
        self._sent: deque[_Sent] = deque()
        self._window = 0
        self.backlog_bytes = 0
        self._sent_at = self._heard_at = self._resent_at = 0
        self._says = False

    def lose(self) -> None:
        """The session is over."""
        was_open = self.is_open
        if was_open:
            # Whatever was sent under the old number is void.
            self._mine = self._number()
        self._begin()
        if was_open:
            self._on_lost()

    def send(self, item: bytes) -> None:
        """Send an item, in order; only while the channel is open."""
        assert self.is_open
        self._waiting.append(item)
        self.backlog_bytes += len(item)

    def receive(self, datagram: Datagram, now: int) -> list[bytes]:
        """Take a datagram of the other end; return the items that are new."""
        if datagram.receiver not in (0, self._mine):
            # It belongs to a session that is over.
            self._hello_to = datagram.sender
            return []
        if datagram.sender != self._theirs:
            self.lose()
            self._theirs = datagram.sender
            self._says = True
            # The earlier number of this end is void.
            if datagram.receiver not in (0, self._mine):
                self._heard_at = now
                return []
        self._heard_at = now
        if datagram.receiver == 0:
            self._says = True
            return []
        if not self.is_open:
            self.is_open = self._says = True
            self.closed_since = None
            self._on_open()
        self._confirmed(datagram.heard, now)
        if not datagram.number:
            return []
        self._says = True
        if datagram.number != self._heard + 1:
            return []
        self._heard = datagram.number
        return datagram.items

    def _confirmed(self, number: int, now: int) -> None:
        while self._sent and self._sent[0].number <= number:
            self._resent_at = now
            gone = self._sent.popleft()
            self._window -= gone.size
            self.backlog_bytes -= gone.size

    def tick(self, now: int) -> None:
        """Handle time-outs."""
        since = now
        if self._theirs and now - self._heard_at >= SILENCE_MS:
            # It was over when the other end was heard for the last time: nobody has to wait for it any longer.
            since = self._heard_at
            self.lose()
        if not self.is_open:
            if self.is_wanted and self.closed_since is None:
                self.closed_since = since
            if self.is_wanted and now - self._sent_at >= HELLO_MS:
                self._says = True
        elif now - self._sent_at >= BEAT_MS:
            self._says = True

    def flush(self, now: int) -> list[Datagram]:
        """Return what is to be sent now."""
        out: list[Datagram] = []
        if self._hello_to:
            out.append(Datagram(self._mine, self._hello_to))
            self._hello_to = 0
        if self.is_open:
            if self._sent and now - self._resent_at >= RESEND_MS:
                self._resent_at = now
                out += [self._made(each) for each in self._sent]
            while self._waiting and self._window < WINDOW_BYTES and len(self._sent) < WINDOW_DATAGRAMS:
                if not self._sent:
                    self._resent_at = now
                sent = self._gathered()
                self._sent.append(sent)
                out.append(self._made(sent))
        if (self._says and not out) or (self._says and not self.is_open):
            out.append(Datagram(self._mine, self._theirs, 0, self._heard))
        if out:
            self._says = False
            self._sent_at = now
        return out

    def _gathered(self) -> _Sent:
        items: list[bytes] = []
        size = 0
        while self._waiting and (not items or size + len(self._waiting[0]) <= DATAGRAM_BYTES):
            items.append(self._waiting.popleft())
            size += len(items[-1])
        number, self._next = self._next, self._next + 1
        self._window += size
        return _Sent(number, items, size)

    def _made(self, sent: _Sent) -> Datagram:
        return Datagram(self._mine, self._theirs, sent.number, self._heard, sent.items)
