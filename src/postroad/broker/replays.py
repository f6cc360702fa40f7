"""Replays: subscriptions that begin in the past, and go on with what comes without a gap and without repeats.

When a replay begins, the log is cut at a *boundary*. What was stored before it is history: read from the log record by
record, matched as it would have been then, and adopted by the cursor of the subscription. What comes after it matches
the subscription as usual, and waits in the same cursor behind the boundary. The cursor hands out rows in order, and
only up to where history has been read, so that the two parts meet without a seam.

Rule 1: one turn reads one record of each of a few replays. A replay reads no further than its client follows.
Rule 2: a durable subscription keeps how far its replay has come, after what it has adopted and before anything of it
    can be settled: a crash repeats no row and loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.messages.id_columns import TIME_SHIFT
from postroad.selectors import Selector, TopicPattern
from postroad.store import NO_CEILING, next_rows, runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.retentions import Retentions
    from postroad.broker.sessions import Subscription
    from postroad.broker.stored import StoredQueues
    from postroad.messages import Batch, MessageId
    from postroad.store import Cursor
    from postroad.tracking import Recorder

__all__ = ["MAX_AHEAD", "ReplayStart", "ReplayTerms", "Replays"]

# How many rows of history may wait for a client before more is read: some windows of acknowledgements.
MAX_AHEAD = 10_000
# Replays that read a record in one turn; others have theirs in the next ones. A record is a megabyte.
REPLAYS_PER_TURN = 4


class ReplayStart(msgspec.Struct, frozen=True):
    """Where a replay begins: at the first message that is kept if nothing is set.

    Attributes:
        since: messages whose id bears this time (ms) or a later one; 0 for all.
        id: the message it begins with. Where that is not kept any more, what bears its time or a later one.
        after: begin behind that message instead.
    """

    since: int = 0
    id: MessageId | None = None
    after: bool = False


class ReplayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay has come.

    Attributes:
        retained: the pattern whose retention it reads.
        position: the place from which on history is still to be read.
        end: the boundary.
        since: only messages whose id bears this time (ms) or a later one.
        id: the message that is looked for, in its two words; none is when they are 0.
        restart: where reading begins again if that message is not found.
        after: begin behind it.
    """

    retained: str
    position: int
    end: int
    since: int = 0
    id: tuple[int, int] = (0, 0)
    restart: int = 0
    after: bool = False


class _Replay:
    """A replay under way."""

    __slots__ = ("cursor", "index", "source", "subscription", "terms")

    def __init__(self, subscription: Subscription, source: Cursor, terms: ReplayTerms) -> None:
        assert subscription.cursor is not None
        self.subscription = subscription
        self.cursor = subscription.cursor
        self.source = source
        self.terms = terms
        self.index = SubscriptionIndex()
        selector = Selector.parse(subscription.selector) if subscription.selector else None
        self.index.add(1, selector, TopicPattern.parse(subscription.topic))

    def wanted(self, batch: Batch, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the rows the subscription would have got."""
        offsets, _ = self.index.match(batch, NO_BUDGET)
        mask: NDArray[np.bool_] = np.diff(offsets)[rows] > 0
        if self.terms.since:
            mask &= (batch.ids[rows, 1] >> TIME_SHIFT) >= np.uint64(self.terms.since)
        return mask

    @property
    def ahead(self) -> int:
        """How many rows of history wait for the client."""
        starts, ends = self.cursor.waiting.runs
        below = int(np.searchsorted(starts, self.cursor.ceiling))
        return int((ends - starts)[:below].sum())


class Replays:
    """The replays of a broker.

    Args:
        stored: its store.
        retentions: what it retains.
        recorder: keeps the record.
        skew_ms: how far ids may be ahead of the time at which their messages were stored.
    """

    def __init__(
        self,
        stored: StoredQueues,
        retentions: Retentions,
        recorder: Recorder,
        skew_ms: int,
    ) -> None:
        self._stored = stored
        self._retentions = retentions
        self._recorder = recorder
        self._skew_ms = skew_ms
        self._replays: dict[int, _Replay] = {}

    def __len__(self) -> int:
        return len(self._replays)

    def terms(self, topic: str, start: ReplayStart) -> ReplayTerms:
        """What a replay of a pattern reads, cut off from what comes now.

        Raises:
            BrokerError: not all of it is retained.
        """
        log = self._stored.log
        retained = self._retentions.covering(topic)
        time = start.since if start.id is None else start.id.time
        first = log.first_since(max(0, time - self._skew_ms)) if time else 0
        words = (0, 0) if start.id is None else (start.id.head, start.id.tail)
        return ReplayTerms(
            retained=retained,
            position=first,
            end=log.boundary(),
            since=start.since,
            id=words,
            restart=first,
            after=start.after,
        )

    def begin(self, subscription: Subscription, terms: ReplayTerms) -> None:
        """History comes first for a subscription; what matches it from now on waits behind the boundary."""
        log = self._stored.log
        source = self._retentions.cursor_of(terms.retained)
        if source is None:
            # Nothing is retained any more, and what was adopted stays.
            return
        if subscription.cursor is None:
            subscription.cursor = log.open_cursor(subscription.number, durable=False)
        subscription.stores = subscription.replays = True
        subscription.cursor.ceiling = min(terms.position, terms.end)
        self._replays[subscription.number] = _Replay(subscription, source, terms)

    def ended(self, subscription: Subscription) -> None:
        """A subscription is over, or wants no more of its history."""
        replay = self._replays.pop(subscription.number, None)
        if replay is not None:
            self._end(replay)

    @property
    def is_ready(self) -> bool:
        """Whether `proceed` would read something."""
        return any(self._is_ready(each) for each in self._replays.values())

    def _is_ready(self, replay: _Replay) -> bool:
        if replay.ahead > MAX_AHEAD:
            return False
        following = next_rows(replay.source, replay.terms.position, replay.terms.end)
        return following is None or self._stored.log.record(following.number) is not None

    def proceed(self, now: int) -> list[Subscription]:
        """Read on, a record for each of a few; answers the subscriptions for which there is more now."""
        moved = []
        for replay in [each for each in self._replays.values() if self._is_ready(each)][:REPLAYS_PER_TURN]:
            self._read(replay, now)
            # To the end of the line.
            self._replays[replay.subscription.number] = self._replays.pop(replay.subscription.number)
            if next_rows(replay.source, replay.terms.position, replay.terms.end) is None:
                self._reached_end(replay, now)
            else:
                self._advance(replay, now)
            moved.append(replay.subscription)
        return moved

    def _read(self, replay: _Replay, now: int) -> None:
        """Look at the next record."""
        log, terms = self._stored.log, replay.terms
        following = next_rows(replay.source, terms.position, terms.end)
        stored = None if following is None else log.record(following.number)
        if following is None or stored is None:
            return
        places, rows = following.places, stored.rows_at(following.rows)
        if terms.id != (0, 0):
            replay.terms = _looked_for(terms, stored.batch, places, rows)
            return
        mask = replay.wanted(stored.batch, rows)
        if mask.any():
            log.adopt(replay.cursor, runs_of(places[mask]))
            self._recorder.queued(stored.batch, rows[mask], replay.subscription.number, now)
        replay.terms = msgspec.structs.replace(terms, position=int(places[-1]) + 1)

    def _reached_end(self, replay: _Replay, now: int) -> None:
        terms = replay.terms
        if terms.id != (0, 0):
            # It is not kept (any more): rather some messages twice than one not at all.
            since = terms.id[1] >> int(TIME_SHIFT)
            replay.terms = msgspec.structs.replace(terms, position=terms.restart, since=since, id=(0, 0))
            if next_rows(replay.source, terms.restart, terms.end) is not None:
                self._advance(replay, now)
                return
        del self._replays[replay.subscription.number]
        self._end(replay, now)

    def _end(self, replay: _Replay, now: int = 0) -> None:
        subscription = replay.subscription
        subscription.replays = False
        # It stores on until nothing waits there: what comes now must not overtake the last of its history.
        replay.cursor.ceiling = NO_CEILING
        self._keep(replay, None, now)

    def _advance(self, replay: _Replay, now: int) -> None:
        # Nothing is adopted while a message is looked for, and what is found then may lie before.
        replay.cursor.ceiling = replay.terms.restart if replay.terms.id != (0, 0) else replay.terms.position
        self._keep(replay, replay.terms, now)

    def _keep(self, replay: _Replay, terms: ReplayTerms | None, now: int) -> None:
        durable = replay.subscription.durable
        if durable is not None:
            kept = msgspec.structs.replace(durable, replay=terms, replayed=now or durable.replayed)
            replay.subscription.durable = kept
            self._stored.log.change_cursor(replay.cursor, msgspec.msgpack.encode(kept))


def _looked_for(terms: ReplayTerms, batch: Batch, places: NDArray[np.int64], rows: NDArray[np.int64]) -> ReplayTerms:
    """Look for the message in some rows: the replay begins there, or behind it; or it is looked for further on."""
    head, tail = (np.uint64(word) for word in terms.id)
    found = np.flatnonzero((batch.ids[rows, 0] == head) & (batch.ids[rows, 1] == tail))
    if len(found):
        return msgspec.structs.replace(terms, position=int(places[found[0]]) + terms.after, id=(0, 0))
    return msgspec.structs.replace(terms, position=int(places[-1]) + 1)
