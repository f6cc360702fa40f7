"""Messages that wait at one broker for another one: for a queue there, or for the durable subscriptions there."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.accepted_states import AcceptedStates
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.store import NO_CEILING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.broker.accepted_states import StateSpan
    from postroad.broker.asked_rows import AskedRows
    from postroad.messages import Batch
    from postroad.store import Cursor, Taken

    Rows = NDArray[np.int64]

__all__ = [
    "DURABLE_PUT",
    "OutgoingQueue",
    "OutgoingTerms",
    "PutPiece",
    "RemoteInterestTerms",
    "is_outgoing",
    "is_remote_interest",
    "put_pieces",
]

# In place of the name of a queue, in a put for the durable subscriptions and retained topics of its target. No queue
# has this name.
DURABLE_PUT = ""
# Bytes of one put: some records of the store, so that others have their turn in between.
PUT_BYTES = 512 * 1024


class OutgoingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of an outgoing queue.

    Attributes:
        outgoing: the name of the queue.
        principal: who made it here.
        homes: the brokers that were its home while what waits came here, the present one last. A store of an earlier
            version does not say it.
    """

    outgoing: str
    principal: str
    homes: tuple[int, ...] = ()

    def at(self, home: int, *, waits: bool) -> OutgoingTerms:
        """Return the same with another present home; if nothing waits, the former ones are of no interest."""
        former = [each for each in self.homes if each != home] if waits else []
        return msgspec.structs.replace(self, homes=(*former, home))


class RemoteInterestTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of an outgoing queue for the durable subscriptions of a broker.

    Attributes:
        broker: the broker that its messages are for.
        interest: what the durable subscriptions and retained topics there want, each row by itself (`encode_exact`).
        states: under which states of the interest the messages were accepted (`AcceptedStates`).
    """

    broker: int
    interest: list[bytes]
    states: tuple[tuple[int, int, int], ...] = ()


class PutPiece(NamedTuple):
    """Rows of one put.

    Attributes:
        places: where they are in the store.
        batch: the rows.
        span: the states under which they were accepted.
    """

    places: Rows
    batch: Batch
    span: StateSpan


class OutgoingQueue:
    """Messages for one queue of another broker, or for all its durable subscriptions and retained topics.

    Attributes:
        name: of the queue; `DURABLE_PUT` if they are for durable subscriptions.
        home: the broker that its messages are for.
        former_homes: for which others an earlier process may have kept some of them, by other plans.
        principal: who made it here.
        holder: stands for it where subscriptions are named.
        cursor: its rows in the store.
        attempt: how often its home has refused something.
        doubtful: how many of its first rows may already be at the home.
        retry_at: nothing is put before that time, in ms.
        trouble: why the home took nothing the last time; empty if it did.
        asked: who waits for rows to be stored at the home, in the order of the rows.
        asked_again: the same for sessions that sent something again: all that was in the queue then.
        states: under which states of its home's standing interest the rows were accepted, if they are for that.
    """

    def __init__(
        self, terms: OutgoingTerms | RemoteInterestTerms, home: int, cursor: Cursor, end: int = NO_CEILING
    ) -> None:
        if isinstance(terms, OutgoingTerms):
            self.name, self.principal, topic = terms.outgoing, terms.principal, "/queue/" + terms.outgoing
            self.states = AcceptedStates()
            self.former_homes = terms.homes[:-1]
        else:
            self.name, self.principal, topic = DURABLE_PUT, "", f"broker {home}"
            self.states = AcceptedStates(terms.states, end)
            self.former_homes = ()
        self.home = home
        self.cursor = cursor
        session = Session(0, self.principal)
        session.congested = True
        self.holder = Subscription(cursor.number, session, topic, topic, AckMode.AUTO, OverflowPolicy.SPOOL)
        self.holder.cursor = cursor
        self.holder.outgoing = self
        self.attempt = self.doubtful = self.retry_at = self.unconfirmed = 0
        self.trouble = ""
        self.asked: deque[AskedRows] = deque()
        self.asked_again: list[AskedRows] = []

    @property
    def is_for_durables(self) -> bool:
        """Return whether its messages are for durable subscriptions, not for a queue."""
        return self.name == DURABLE_PUT

    @property
    def messages(self) -> int:
        """Return how many messages the home has not confirmed."""
        return self.holder.waiting.stored + self.unconfirmed


def put_pieces(taken: Taken, states: AcceptedStates) -> Iterator[PutPiece]:
    """Return the rows of a record in pieces, none much larger than a put may be, each of one span of states."""
    for part, span in states.divide(taken.places):
        places, rows = taken.places[part], taken.rows[part]
        spans = taken.batch.spans[rows].astype(np.int64)
        sizes = (spans[:, 1::2] - spans[:, ::2]).sum(axis=1)
        which = np.cumsum(sizes) // PUT_BYTES
        for at in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(which)) + 1):
            yield PutPiece(places[at], taken.batch.take(rows[at]), span)


def is_outgoing(terms: bytes) -> bool:
    """Return whether the terms of a cursor are those of an outgoing queue."""
    return _is(terms, OutgoingTerms)


def is_remote_interest(terms: bytes) -> bool:
    """Return whether the terms of a cursor are those of one for durable subscriptions."""
    return _is(terms, RemoteInterestTerms)


def _is(terms: bytes, kind: type[OutgoingTerms | RemoteInterestTerms]) -> bool:
    try:
        msgspec.msgpack.decode(terms, type=kind)
    except msgspec.DecodeError:
        return False
    return True
