"""A client as a publisher: it gives its messages ids by the broker's clock, as far as it knows that clock."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from postroad.client.clock import ClientClock, wall_clock
from postroad.client.unconfirmed_messages import Unconfirmed
from postroad.errors import PostroadError
from postroad.messages import IdGenerator, MessageId
from postroad.protocols.stomp.id_headers import (
    BROKER_HEADER,
    CLOCK_RECEIPT,
    LAST_HEADER,
    MESSAGE_ID_HEADER,
    PUBLISHER_HEADER,
    SERVER_TIME_HEADER,
    TOKEN_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Grant", "Publisher"]

# When ids were given, one entry for each millisecond with one: enough for corrections that are seconds late.
_MOMENTS = 8_192

# The decimal digits of 32 bits.
_NUMBER = re.compile(r"[0-9]{1,10}")


class Grant(NamedTuple):
    """What a broker grants to a client that gives its own ids.

    Attributes:
        publisher: the publisher number.
        broker: the broker's number.
        token: what to show to come back as the same publisher.
        last: the last id that has entered, when the client is the publisher it was.
    """

    publisher: int
    broker: int
    token: str
    last: MessageId | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Grant | None:
        """What the headers of CONNECTED say; None when the broker grants nothing."""
        try:
            last = headers.get(LAST_HEADER)
            numbers = headers[PUBLISHER_HEADER], headers[BROKER_HEADER]
            if not all(_NUMBER.fullmatch(number) for number in numbers):
                return None
            return cls(
                int(numbers[0]),
                int(numbers[1]),
                headers[TOKEN_HEADER],
                None if last is None else MessageId.parse(last),
            )
        except (KeyError, ValueError, PostroadError):
            return None


class Publisher:
    """Gives ids, in rising order, whatever the clocks do.

    Args:
        grant: what the broker granted.
        clock: how the broker's clock compares with this machine's.
        keeps: whether to keep what is not confirmed, to send it again over the next connection.
        now: this machine's time in ms.

    Attributes:
        grant: what the broker granted last.
        clock: the same as above, corrected since.
        unconfirmed: what may be lost with the connection; None when it is not kept.
    """

    def __init__(
        self, grant: Grant, clock: ClientClock, keeps: bool = False, now: Callable[[], int] = wall_clock
    ) -> None:
        self.grant = grant
        self.clock = clock
        self.unconfirmed = Unconfirmed() if keeps else None
        self._now = now
        self._ids = IdGenerator(grant.publisher, grant.broker)
        self._moments: deque[tuple[int, int]] = deque(maxlen=_MOMENTS)

    def stamp(self) -> MessageId:
        """The id of the next message: the broker's time, as far as it is known, and never before the last one."""
        now = self._now()
        given = self._ids.next(max(0, now + (self.clock.skew_ms or 0)))
        if not self._moments or self._moments[-1][1] != now:
            self._moments.append((given.tail, now))
        return given

    def heard(self, headers: Mapping[str, str]) -> None:
        """Handle a RECEIPT, which confirms messages or has the broker's time."""
        text = headers.get(MESSAGE_ID_HEADER)
        if text is None:
            return
        named = MessageId.parse(text)
        if headers.get("receipt-id") == CLOCK_RECEIPT:
            self.correct(named, headers.get(SERVER_TIME_HEADER))
        elif self.unconfirmed is not None:
            self.unconfirmed.confirm(named.tail)

    def correct(self, skewed: MessageId, server_time: str | None) -> None:
        """The broker took a message at this time of its clock, and found its id out of tolerance.

        The message was stamped before that, and this is heard after: the same exchange as at the connect. If the skew
        in use is possible anyway, the message has only waited on its way, and the skew stays.
        """
        asked = next((now for tail, now in reversed(self._moments) if tail <= skewed.tail), None)
        if asked is None:
            return
        measured = ClientClock.from_exchange(asked, self._now(), server_time)
        if measured.skew_ms is not None and measured.contradicts(self.clock.skew_ms or 0):
            self.clock = measured

    def is_granted(self, grant: Grant) -> bool:
        """Whether a broker knows this publisher, and has not granted another one."""
        return grant[:3] == self.grant[:3]

    def resume(self, grant: Grant, clock: ClientClock) -> list[bytes]:
        """The broker knows this publisher over a new connection: the frames to send again, in order."""
        self.grant, self.clock = grant, clock
        if self.unconfirmed is None:
            return []
        if grant.last is not None:
            self.unconfirmed.confirm(grant.last.tail)
        return self.unconfirmed.again()
