"""A channel between two brokers of a network: what one end sends comes to the other once, whole and in order.

It runs over datagrams that may be lost, repeated or overtake each other, through whatever brokers lie between.

Rule 1: a session is named by two numbers, one of each end. A datagram counts only if it names both as this end knows
    them; whoever is addressed by a number that is over says hello with the one that it has now.
Rule 2: items go out only when the other end has said this end's number (`is_open`). They are numbered by the datagram;
    one that comes out of turn is left out, and sent again.
Rule 3: when the other end has another number, or was not heard for `SILENCE_MS`, the session is over (`on_lost`), with
    all that was on its way: whoever sent it decides anew.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SILENCE_MS", "Channel", "Datagram"]

# A broker that is not heard for so long is taken for dead: a link that broke is replaced within three heart-beats of a
# second, and messages of topics wait as long for a way.
SILENCE_MS = 10_000
# How often an open channel says something.
BEAT_MS = 2_000
# What is not confirmed after this time is sent again: many round trips of any network.
RESEND_MS = 1_000
# How often the other end is asked whether it is there.
HELLO_MS = 500
# What may be on its way: enough for 100 MiB/s at a round trip of 40 ms.
WINDOW_BYTES = 4 * 1024 * 1024
WINDOW_DATAGRAMS = 256
# Items that wait go together up to this size.
DATAGRAM_BYTES = 256 * 1024

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Datagram(msgspec.Struct, frozen=True, array_like=True):
    """What travels at once.

    Attributes:
        sender: the number of the session at the end that sends it.
        receiver: that at the other end; 0 if it is not known.
        number: counts the datagrams with items, from 1; 0 for one without.
        heard: all datagrams of the other end up to this number have come.
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
        number: makes the number of a session: never twice the same, also in another process.
        on_open: called when a session begins.
        on_lost: called when one is over.

    Attributes:
        is_wanted: this end wants a session; otherwise it waits for the other to want one.
        is_open: items go out.
        closed_since: when it began to want a session that there is not, in ms; None if there is one, or none is wanted.
        backlog_bytes: what waits to be sent, or to be confirmed.
    """

    def __init__(self, number: Callable[[], int], on_open: Callable[[], None], on_lost: Callable[[], None]) -> None:
        self._number = number
        self._on_open = on_open
        self._on_lost = on_lost
        self.is_wanted = False
        # Who has to hear that the session it names is over; 0 for nobody.
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
            # Whatever was said under the old number is void.
            self._mine = self._number()
        self._begin()
        if was_open:
            self._on_lost()

    def send(self, item: bytes) -> None:
        """Send an item, in order; only while it is open."""
        assert self.is_open
        self._waiting.append(item)
        self.backlog_bytes += len(item)

    def receive(self, datagram: Datagram, now: int) -> list[bytes]:
        """The other end has sent this; returns the items that are new."""
        if datagram.receiver not in (0, self._mine):
            # For a session that is over.
            self._hello_to = datagram.sender
            return []
        if datagram.sender != self._theirs:
            self.lose()
            self._theirs = datagram.sender
            self._says = True
            # The number that this end had before is void.
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
        """Time passes."""
        if self._theirs and now - self._heard_at >= SILENCE_MS:
            self.lose()
        if not self.is_open:
            if self.is_wanted and self.closed_since is None:
                self.closed_since = now
            if self.is_wanted and now - self._sent_at >= HELLO_MS:
                self._says = True
        elif now - self._sent_at >= BEAT_MS:
            self._says = True

    def flush(self, now: int) -> list[Datagram]:
        """What is to be sent now."""
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
