"""What one other broker has put here: which messages are known, and which wait to be matched."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.stored_queues import id_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store import Cursor

    Rows = NDArray[np.int64]

__all__ = ["KnownPut", "Reception", "ReceptionTerms", "UnmatchedPut", "contains", "is_reception", "take_over"]


class ReceptionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a reception: the number of the broker."""

    reception: int


class KnownPut:
    """Messages of one put.

    Attributes:
        ids: of them.
        places: where they are in the store.
        size: their bytes, about.
        is_taken: the reception has passed them on, so that they can be settled: they are safe.
        is_over: their broker will not put them again.
    """

    __slots__ = ("ids", "is_over", "is_taken", "places", "size")

    def __init__(self, ids: NDArray[np.uint64], size: int) -> None:
        self.ids = ids
        self.size = size
        self.places = np.empty(0, np.int64)
        self.is_taken = self.is_over = False

    def add(self, ids: NDArray[np.uint64], size: int, places: Rows) -> None:
        """Add messages that were stored after the others."""
        self.ids = np.concatenate([self.ids, ids])
        self.places = np.concatenate([self.places, places])
        self.size += size


class UnmatchedPut(NamedTuple):
    """Messages of a put for durable subscriptions that have to be matched yet.

    Attributes:
        number: of the put.
        attempt: of the put.
        batch: the messages.
        known: those that were stored before.
        states: the oldest and the newest state of the standing interest under which they were accepted.
        is_begun: some of the put was stored in an earlier turn.
        waited: the record says that they wait here, or that of an earlier session may.
    """

    number: int
    attempt: int
    batch: Batch
    known: KnownPut
    states: tuple[int, int]
    is_begun: bool
    waited: bool


class Reception:
    """What one broker has put.

    Attributes:
        cursor: its rows in the store.
        puts: of this session of the channel, by number.
        rows: how many messages these are.
        bytes: how many bytes.
        earlier: of earlier sessions, oldest first.
        refusing: the last refused attempt, by the name of the queue, with the reason.
        holder: stands for the cursor where subscriptions are named.
        unmatched: puts for durable subscriptions that are not stored as a whole: matching takes several turns.
        unmatched_bytes: what of them is not stored.
        loading: ids of earlier processes are being read.
        session: counts sessions of the channel.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.holder = Subscription(cursor.number, Session(0, ""), "", "", AckMode.AUTO, OverflowPolicy.SPOOL)
        self.holder.cursor, self.holder.retains = cursor, True
        self.unmatched: deque[UnmatchedPut] = deque()
        self.unmatched_bytes = 0
        self.puts: dict[int, KnownPut] = {}
        self.rows = self.bytes = 0
        self.earlier: list[KnownPut] = []
        self.refusing: dict[str, tuple[int, str]] = {}
        self.loading = False
        self.session = 0

    def add(self, number: int, known: KnownPut) -> None:
        """Add a put of this session."""
        self.puts[number] = known
        self.rows += len(known.ids)
        self.bytes += known.size

    def wait(self, put: UnmatchedPut, size: int) -> None:
        """Let a put of this session wait until it is matched."""
        self.unmatched.append(put)
        self.unmatched_bytes += size

    def matched(self, known: KnownPut, ids: NDArray[np.uint64], size: int, places: Rows) -> None:
        """Note that the first messages of the first put that waits are stored."""
        known.add(ids, size, places)
        self.rows += len(ids)
        self.bytes += size
        self.unmatched_bytes -= size

    def take_unmatched(self) -> deque[UnmatchedPut]:
        """Return the puts that wait to be matched, which wait no longer."""
        taken, self.unmatched, self.unmatched_bytes = self.unmatched, deque(), 0
        return taken

    def end_session(self) -> None:
        """Begin another session of the channel: what was put in this one may be put again."""
        self.session += 1
        self.earlier += [each for each in self.puts.values() if len(each.ids)]
        self.puts, self.refusing, self.rows, self.bytes = {}, {}, 0, 0

    def take_oldest(self, rows: int, size: int) -> list[KnownPut]:
        """Return the oldest puts of earlier sessions that are more than so much and one put; they are forgotten."""
        # A put that is larger than all bounds is taken, too, if there is no other.
        have, took = sum(len(each.ids) for each in self.earlier), sum(each.size for each in self.earlier)
        rows += max((len(each.ids) for each in self.earlier), default=0)
        size += max((each.size for each in self.earlier), default=0)
        count = 0
        while have > rows or took > size:
            have, took = have - len(self.earlier[count].ids), took - self.earlier[count].size
            count += 1
        gone, self.earlier = self.earlier[:count], self.earlier[count:]
        return gone

    def remove(self, number: int) -> KnownPut:
        """Remove a put of this session."""
        known = self.puts.pop(number)
        self.rows -= len(known.ids)
        self.bytes -= known.size
        return known


def contains(known: list[KnownPut], ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which ids are among those that are known."""
    return np.isin(id_texts(ids), id_texts(np.concatenate([each.ids for each in known])))


def take_over(earlier: list[KnownPut], put: KnownPut, ids: NDArray[np.uint64]) -> None:
    """Move messages of earlier sessions that are put again to the present put, which is forgotten as a whole.

    Those whose record is not safe yet stay: they are the latest, and not in question for long.
    """
    texts, places, found = id_texts(ids), [put.places], [put.ids]
    for known in earlier:
        again = np.isin(id_texts(known.ids), texts) if known.is_taken else np.zeros(len(known.ids), np.bool_)
        if again.any():
            places.append(known.places[again])
            found.append(known.ids[again])
            moved = known.size * int(again.sum()) // len(again)
            known.ids, known.places, known.size = known.ids[~again], known.places[~again], known.size - moved
            put.size += moved
    earlier[:] = [known for known in earlier if len(known.ids)]
    # The cursor of a reception names its rows in the order of their places.
    every = np.concatenate(places)
    order = np.argsort(every)
    put.places, put.ids = every[order], np.concatenate(found)[order]


def is_reception(terms: bytes) -> bool:
    """Return whether the terms of a cursor are those of a reception."""
    try:
        msgspec.msgpack.decode(terms, type=ReceptionTerms)
    except msgspec.DecodeError:
        return False
    return True
