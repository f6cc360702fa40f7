"""Publishers that give their messages ids themselves, before the broker has seen them.

Rule 1: an id names its own publisher and the broker where it enters. Any other id is refused.
Rule 2: over one connection ids rise from message to message. An id that does not rise is refused.
Rule 3: a publisher that lost its connection may return as the same one, with its number and its token. Messages that it
    sends again, up to the last id that entered, are left out. Because of rule 2, and because a connection keeps order,
    one number per publisher decides this exactly; there is no window that could be too small. After a restart of the
    broker the token still proves the identity (`AssigningPublishers.secret`). That number is lost then, and repeated
    messages are looked up among the ids that were stored.
Rule 4: an id whose time is further from the broker's than the tolerance is accepted, and the publisher learns how far
    its clock is off. If it is further than `FAR_MS`, the record says so, and its receipt waits until that is on disk:
    readers of the record look for a message around the time in its id, and would deny it if it were lost.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.messages import MessageId
from postroad.messages.id_columns import TIME_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker.numbers import PublisherNumbers
    from postroad.messages.columns import Ids

__all__ = ["DEFAULT_SKEW_TOLERANCE_MS", "FAR_MS", "AssigningPublisher", "AssigningPublishers", "IdAdmission"]

# With this, a history that is open for a second or more needs at most one filter more for skewed ids (twice the
# tolerance is one opening time). Synchronised clocks are within tens of milliseconds, and half a round trip around the
# world, the error of a client's measurement, is below 200.
DEFAULT_SKEW_TOLERANCE_MS = 500

# Readers of the record look for a message from so long before its id's time on (`DEFAULT_SKEW_MS` of the trail), and
# expect messages that are sent again for as long after a restart (`RESENT_MS`).
FAR_MS = 5_000

# 128 bits cannot be guessed.
_TOKEN_DIGITS = 32


class IdAdmission(NamedTuple):
    """What may enter of a batch with given ids: rows from `resent` to `end`.

    Attributes:
        resent: how many rows at the beginning entered over an earlier connection.
        end: the first row that may not enter, or the number of rows.
        refusal: why that row may not enter; None if all may.
        skewed: how many of the rows that enter have a time out of tolerance.
        first_skewed: the first of them.
        is_far: one of them has a time further than `FAR_MS` from the broker's.
    """

    resent: int
    end: int
    refusal: str | None = None
    skewed: int = 0
    first_skewed: MessageId | None = None
    is_far: bool = False


class AssigningPublisher:
    """One publisher that gives its own ids.

    Attributes:
        number: its publisher number.
        principal: who it is.
        token: what it must show to return as the same publisher.
        last: time and counter of its last message that entered, as one number; -1 for none.
        session: the number of its session; None while it is disconnected.
        restored: it was a publisher of an earlier process of this broker.
    """

    __slots__ = ("_head", "_heard", "_mark", "last", "number", "principal", "restored", "session", "token")

    def __init__(self, number: int, broker: int, principal: str, token: str, restored: bool = False) -> None:
        self.number = number
        self.restored = restored
        self.principal = principal
        self.token = token
        self.last = -1
        self.session: int | None = None
        self._head = MessageId(number, broker, 0, 0).head
        self._heard = self._mark = -1

    @property
    def last_id(self) -> MessageId | None:
        """Return the id of its last message that entered."""
        return None if self.last < 0 else MessageId.of(self._head, self.last)

    def speaks_over(self, session: int) -> None:
        """Begin a connection: repeated messages of earlier ones come first."""
        self.session = session
        self._heard, self._mark = -1, self.last

    def lost(self, tail: int) -> None:
        """Note that a message (time and counter) was lost: it, and what follows it, may be sent again."""
        self.last = min(self.last, tail - 1)
        self._mark = min(self._mark, tail - 1)

    def admit(self, ids: Ids, now: int, tolerance: int) -> IdAdmission:
        """Return which rows may enter, by their ids; there is at least one row."""
        tails = ids[:, 1]
        good = ids[:, 0] == self._head
        good[0] &= int(tails[0]) > self._heard
        good[1:] &= tails[1:] > tails[:-1]
        end = len(ids) if good.all() else int(good.argmin())
        refusal = None if end == len(ids) else self._refusal(ids, end)
        if not end:
            return IdAdmission(0, 0, refusal)
        self._heard = int(tails[end - 1])
        resent = 0 if self._mark < 0 else int(np.searchsorted(tails[:end], np.uint64(self._mark), "right"))
        times = (tails[resent:end] >> TIME_SHIFT).astype(np.int64)
        distances = np.abs(times - now)
        off = distances > tolerance
        skewed = int(np.count_nonzero(off))
        is_far = bool(skewed or tolerance > FAR_MS) and bool((distances > FAR_MS).any())
        if not skewed:
            return IdAdmission(resent, end, refusal, is_far=is_far)
        first = MessageId.of(self._head, int(tails[resent + int(off.argmax())]))
        return IdAdmission(resent, end, refusal, skewed, first, is_far)

    def _refusal(self, ids: Ids, row: int) -> str:
        head, tail = ids[row].tolist()
        given = MessageId.of(head, tail)
        own = MessageId.of(self._head, 0)
        if head != self._head:
            return (
                f"message-id {given} is not this publisher's own; its ids have publisher {own.publisher} and broker "
                f"{own.broker}, and begin with {str(own)[:17]}"
            )
        before = int(ids[row - 1, 1]) if row else self._heard
        return (
            f"message-id {given} does not follow {MessageId.of(self._head, before)}: the ids of a publisher rise in "
            "the order in which its messages count, those of a transaction at its COMMIT"
        )


class AssigningPublishers:
    """All such publishers of a broker, including disconnected ones that may return.

    Args:
        broker: the broker's number.
        numbers: gives publisher numbers.
        kept: how many disconnected ones are remembered; beyond that, the one that is away longest is forgotten.

    Attributes:
        secret: returns a secret that survives a restart and makes tokens, so that they still prove an identity then;
            None for tokens that do not.
    """

    def __init__(self, broker: int, numbers: PublisherNumbers, kept: int) -> None:
        self._broker = broker
        self._numbers = numbers
        self._kept = kept
        self.secret: Callable[[], bytes] | None = None
        # The first number of this process: lower ones belong to earlier processes.
        self._first: int | None = None
        self._present: dict[int, AssigningPublisher] = {}
        self._away: dict[int, AssigningPublisher] = {}

    def new(self, principal: str, token: str) -> AssigningPublisher:
        """Return a new publisher; the token is used if there is no secret to make one."""
        number = self._numbers.take()
        if self._first is None:
            self._first = number
        if self.secret is not None:
            token = self._token(self.secret(), number, principal)
        publisher = AssigningPublisher(number, self._broker, principal, token)
        self._present[number] = publisher
        return publisher

    def _token(self, secret: bytes, number: int, principal: str) -> str:
        claim = f"{self._broker} {number} {principal}".encode()
        return hmac.new(secret, claim, "sha256").hexdigest()[:_TOKEN_DIGITS]

    def find(self, number: int, token: str, principal: str) -> AssigningPublisher | None:
        """Return the publisher that a client claims to be; None if it is forgotten, or the claim is not proved."""
        publisher = self._present.get(number) or self._away.get(number)
        if publisher is None and self.secret is not None and (self._first is None or number < self._first):
            right = self._token(self.secret(), number, principal)
            publisher = AssigningPublisher(number, self._broker, principal, right, restored=True)
        if publisher is None or publisher.principal != principal:
            return None
        if not hmac.compare_digest(publisher.token.encode(), token.encode()):
            return None
        self._away.pop(number, None)
        self._present[number] = publisher
        return publisher

    def left(self, publisher: AssigningPublisher, for_good: bool) -> None:
        """Note that its connection is gone; it may return unless it said goodbye."""
        self._present.pop(publisher.number, None)
        publisher.session = None
        if for_good:
            return
        self._away[publisher.number] = publisher
        if len(self._away) > self._kept:
            del self._away[next(iter(self._away))]

    @property
    def away(self) -> int:
        """Return how many disconnected ones are remembered."""
        return len(self._away)
