"""Replays: subscriptions that begin in the past, and continue with live messages without a gap or a repetition.

When a replay begins, the log is cut at a *boundary*. What was stored before it is history: it is read from the log
record by record, matched as it would have been then, and adopted by the cursor of the subscription. Messages after the
boundary match the subscription as usual, and wait in the same cursor. The cursor returns rows in order, and only up to
where history has been read, so the two parts join without a seam.

Rule 1: one turn reads one record of each of a few replays, or as much of it as the budget of a turn can match. A replay
    does not read ahead of its client, and few of them wait for the disk at a time. Those that wait, for the disk or for
    their clients, are not examined before something happens to them.
Rule 2: a durable subscription stores the progress of its replay, after the rows it has adopted and before any of them
    can be settled: a crash repeats no row and loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.broker.errors import BrokerError
from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.matching.table_hash import FIXED_SECRET
from postroad.messages.id_columns import TIME_SHIFT
from postroad.store import NO_CEILING, next_rows, runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.retentions import Retentions
    from postroad.broker.sessions import Session, Subscription
    from postroad.broker.stored_queues import StoredQueues
    from postroad.messages import Batch, MessageId
    from postroad.selectors import Selector
    from postroad.store import Cursor, HistoryRows, Log
    from postroad.tracking import Recorder

__all__ = ["MAX_AHEAD", "ReplayStart", "ReplayTerms", "Replays"]

# How many rows of history may wait for a client before more is read: some windows of acknowledgements.
MAX_AHEAD = 10_000
# Replays that read a record in one turn; others have their turn next. A record is a megabyte.
REPLAYS_PER_TURN = 4
# Replays that wait for a record from the disk at a time; each requests a megabyte.
MAX_READING = 4
# A replay whose selector picks single rows has 16 bytes for each waiting row: 160 KB, as long as its client does not
# follow. So one session has 16 MB of them, or one principal whose durable subscriptions have no client at the moment.
MAX_REPLAYS_PER_SESSION = 100
# The same for all sessions together: 160 MB.
MAX_REPLAYS = 1_000
# Indexes that are kept from one turn to the next, for replays that want the same or continue: some 300 KB each.
MAX_INDEXES = 16
# About how many nanoseconds it takes to make an index, and how many more for each character of a selector.
_INDEX_NANOSECONDS = 300_000
_CHARACTER_NANOSECONDS = 1_000


class ReplayStart(msgspec.Struct, frozen=True):
    """Where a replay begins: at the first message that is kept, if nothing is set.

    Attributes:
        since: messages whose id has this time (ms) or a later one; 0 for all.
        id: the message to begin with. If it is not kept any more, messages with its time or a later one.
        after: begin after that message instead.
    """

    since: int = 0
    id: MessageId | None = None
    after: bool = False


class ReplayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a replay is done.

    Attributes:
        retained: the pattern whose retention it reads.
        topic: what the subscription wanted when it began; later changes only concern live messages.
        selector: the same, as the policy let it pass; empty for none.
        position: history is still to be read from this place on.
        end: the boundary.
        since: only messages whose id has this time (ms) or a later one.
        id: the message to look for, in its two words; both are 0 for none.
        after: begin after it.
    """

    retained: str
    topic: str
    selector: str
    position: int
    end: int
    since: int = 0
    id: tuple[int, int] = (0, 0)
    after: bool = False

    @property
    def time(self) -> int:
        """The time (ms) of the ids that it is about: records with earlier ones alone are not read."""
        return self.since if self.id == (0, 0) else self.id[1] >> int(TIME_SHIFT)


class RunningReplay:
    """A replay under way."""

    __slots__ = ("_log", "cursor", "source", "subscription", "terms", "wants")

    def __init__(self, log: Log, subscription: Subscription, source: Cursor, terms: ReplayTerms) -> None:
        assert subscription.cursor is not None
        self._log = log
        self.subscription = subscription
        self.cursor = subscription.cursor
        self.source = source
        self.terms = terms
        self.wants = (terms.topic, terms.selector)

    def following(self) -> HistoryRows | None:
        """Return the next rows to examine; None if there are no more."""
        start, time = self.terms.position, self.terms.time
        while (rows := next_rows(self.source, start, self.terms.end)) is not None and time:
            start = self._log.first_since(first := int(rows.places[0]), time)
            if start == first:
                break
        return rows

    @property
    def ahead(self) -> int:
        """Return how many rows of history wait for the client."""
        starts, ends = self.cursor.waiting.runs
        below = int(np.searchsorted(starts, self.cursor.ceiling))
        return int((ends - starts)[:below].sum())


class Replays:
    """The replays of a broker.

    Args:
        stored: its store.
        retentions: what it retains.
        recorder: keeps the record.
        budget: about how many nanoseconds one turn may take (`SubscriptionIndex.match`).
        index_secret: of its indexes.

    Attributes:
        runnable: those that may have something to read, by the number of their subscription; the next turn is first.
        failures: subscriptions whose replay has failed in the last turn, each with its error.
    """

    def __init__(
        self,
        stored: StoredQueues,
        retentions: Retentions,
        recorder: Recorder,
        budget: int = NO_BUDGET,
        index_secret: int = FIXED_SECRET,
    ) -> None:
        self._stored = stored
        self._retentions = retentions
        self._recorder = recorder
        self.budget = budget
        self._secret = index_secret
        self._replays: dict[int, RunningReplay] = {}
        # Each of them is runnable, or waits for a record, or for its client.
        self.runnable: dict[int, RunningReplay] = {}
        self._reading: dict[int, RunningReplay] = {}
        self._stalled: dict[int, RunningReplay] = {}
        self.failures: list[tuple[Subscription, Exception]] = []
        # The most recently used ones are last.
        self._indexes: dict[tuple[str, str], SubscriptionIndex] = {}
        stored.on_follow = self._followed

    def __len__(self) -> int:
        return len(self._replays)

    def terms(self, session: Session, topic: str, selector: Selector | None, start: ReplayStart) -> ReplayTerms:
        """Return what a replay of a pattern reads, cut off from live messages.

        Raises:
            BrokerError: not all of it is retained, or a limit is reached.
        """
        self._check_room(session)
        retained = self._retentions.covering(topic)
        words = (0, 0) if start.id is None else (start.id.head, start.id.tail)
        return ReplayTerms(
            retained=retained,
            topic=topic,
            selector="" if selector is None else str(selector),
            position=0,
            end=self._stored.log.boundary(),
            since=start.since,
            id=words,
            after=start.after,
        )

    def _check_room(self, session: Session) -> None:
        if len(self._replays) >= MAX_REPLAYS:
            raise BrokerError(
                f"{MAX_REPLAYS:,} subscriptions of this broker read their history, the limit (MAX_REPLAYS); try again "
                "when some have come to its end, or subscribe without from and after"
            )
        owners = [each.subscription.session for each in self._replays.values()]
        # Subscriptions without a session count for their principal, who could otherwise make any number of them.
        mine = sum(each is session or (not each.number and each.principal == session.principal) for each in owners)
        if mine >= MAX_REPLAYS_PER_SESSION:
            raise BrokerError(
                f"{mine:,} subscriptions of this client read their history, the limit (MAX_REPLAYS_PER_SESSION); take "
                "messages until some have come to its end, or subscribe without from and after"
            )

    def begin(self, subscription: Subscription, terms: ReplayTerms) -> None:
        """Deliver history first to a subscription; what matches from now on waits after the boundary."""
        log = self._stored.log
        source = self._retentions.cursor_of(terms.retained)
        if source is None:
            # Nothing is retained any more; rows that were adopted stay.
            return
        if subscription.cursor is None:
            subscription.cursor = log.open_cursor(subscription.number, durable=False)
        subscription.stores = subscription.replays = True
        subscription.cursor.ceiling = min(terms.position, terms.end)
        replay = self._replays[subscription.number] = RunningReplay(log, subscription, source, terms)
        self.runnable[subscription.number] = replay

    def ended(self, subscription: Subscription) -> None:
        """End the replay of a subscription that is over, or wants no more of its history."""
        replay = self._replays.pop(subscription.number, None)
        if replay is not None:
            for each in (self.runnable, self._reading, self._stalled):
                each.pop(subscription.number, None)
            self._end(replay)

    @property
    def is_ready(self) -> bool:
        """Return whether `proceed` has something to do."""
        return bool(self.runnable) and len(self._reading) < MAX_READING

    def read(self) -> None:
        """Check the replays that wait for a record: the store has read or written something."""
        for number, replay in list(self._reading.items()):
            following = replay.following()
            if following is None or self._stored.log.record(following.number) is not None:
                # To the front: when the others have had their turns, the record may have left memory.
                self.runnable = {number: self._reading.pop(number), **self.runnable}

    def _followed(self, subscription: Subscription) -> None:
        """Continue a subscription whose waiting rows have been delivered."""
        replay = self._stalled.get(subscription.number)
        if replay is not None and replay.ahead <= MAX_AHEAD:
            self.runnable[subscription.number] = self._stalled.pop(subscription.number)

    def resume(self, subscription: Subscription) -> None:
        """A durable subscription has a client again, who learns why its replay has failed if it fails again."""
        if (replay := self._stalled.pop(subscription.number, None)) is not None:
            self.runnable[subscription.number] = replay

    def proceed(self, now: int) -> list[Subscription]:
        """Read on, a record for each of a few; return the subscriptions that have more to deliver now.

        One that fails ends, and the others continue: see `failures`.
        """
        self.failures = []
        moved: list[Subscription] = []
        budget = self.budget
        for _ in range(REPLAYS_PER_TURN):
            if budget <= 0 or not self.is_ready:
                break
            number = next(iter(self.runnable))
            replay = self.runnable.pop(number)
            if self._has_to_wait(replay):
                continue
            try:
                budget -= self._read(replay, now, budget)
            except Exception as error:  # A defect of ours, which must not cost others what they have in this turn.
                self._stalled[number] = replay
                self.failures.append((replay.subscription, error))
                continue
            if replay.following() is None and not self._begins_again(replay):
                del self._replays[number]
                self._end(replay, now)
            else:
                self._advance(replay, now)
                self.runnable[number] = replay
            moved.append(replay.subscription)
        return moved

    def _has_to_wait(self, replay: RunningReplay) -> bool:
        """Return whether a replay cannot read now; then it waits for its client, or for a record."""
        number = replay.subscription.number
        if replay.ahead > MAX_AHEAD:
            self._stalled[number] = replay
            return True
        following = replay.following()
        if following is not None and self._stored.log.record(following.number) is None:
            self._reading[number] = replay
            return True
        return False

    def _read(self, replay: RunningReplay, now: int, budget: int) -> int:
        """Examine the next record, or its first rows; return what it took of the budget."""
        log, terms, following = self._stored.log, replay.terms, replay.following()
        stored = None if following is None else log.record(following.number)
        if following is None or stored is None:
            return 0
        places, rows = following.places, stored.rows_at(following.rows)
        if terms.id != (0, 0):
            replay.terms = _looked_for(terms, stored.batch, places, rows)
            return 0
        index, cost = self._index_of(replay)
        batch = stored.batch if len(rows) == len(stored.batch) else stored.batch.take(rows)
        # The first row at least.
        offsets, _, charged = index.match_charged(batch, max(1, budget - cost))
        found = np.flatnonzero(np.diff(offsets))
        if terms.since:
            found = found[(batch.ids[found, 1] >> TIME_SHIFT) >= np.uint64(terms.since)]
        if len(found):
            log.adopt(replay.cursor, runs_of(places[found]))
            self._recorder.queued(stored.batch, rows[found], replay.subscription.number, now)
        replay.terms = msgspec.structs.replace(terms, position=int(places[len(offsets) - 2]) + 1)
        return cost + charged

    def _index_of(self, replay: RunningReplay) -> tuple[SubscriptionIndex, int]:
        """Return an index with only what a replay wants, and about how long it took to make it."""
        index, cost = self._indexes.pop(replay.wants, None), 0
        if index is None:
            topic, selector = replay.wants
            index = SubscriptionIndex(secret=self._secret)
            index.add(1, selector or None, topic)
            cost = _INDEX_NANOSECONDS + _CHARACTER_NANOSECONDS * len(selector)
            if len(self._indexes) >= MAX_INDEXES:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[replay.wants] = index
        return index, cost

    def _begins_again(self, replay: RunningReplay) -> bool:
        """Handle the end of the log; return whether the replay begins again, without the message it looked for."""
        terms = replay.terms
        if terms.id == (0, 0):
            return False
        # The message is not kept (any more): rather some messages twice than one not at all.
        replay.terms = msgspec.structs.replace(terms, position=0, since=terms.time, id=(0, 0))
        return replay.following() is not None

    def _end(self, replay: RunningReplay, now: int = 0) -> None:
        replay.subscription.replays = False
        if not self._replays:
            self._indexes.clear()
        # It keeps storing until nothing waits there: live messages must not overtake the last of its history.
        replay.cursor.ceiling = NO_CEILING
        self._keep(replay, None, now)

    def _advance(self, replay: RunningReplay, now: int) -> None:
        # Nothing is adopted while a message is looked for, and rows found then may lie before it.
        replay.cursor.ceiling = 0 if replay.terms.id != (0, 0) else replay.terms.position
        self._keep(replay, replay.terms, now)

    def _keep(self, replay: RunningReplay, terms: ReplayTerms | None, now: int) -> None:
        durable = replay.subscription.durable
        if durable is not None:
            kept = msgspec.structs.replace(durable, replay=terms, replayed=now or durable.replayed)
            replay.subscription.durable = kept
            self._stored.log.change_cursor(replay.cursor, msgspec.msgpack.encode(kept))


def _looked_for(terms: ReplayTerms, batch: Batch, places: NDArray[np.int64], rows: NDArray[np.int64]) -> ReplayTerms:
    """Look for the message in some rows: the replay begins there, or after it; or the search continues."""
    head, tail = (np.uint64(word) for word in terms.id)
    found = np.flatnonzero((batch.ids[rows, 0] == head) & (batch.ids[rows, 1] == tail))
    if len(found):
        return msgspec.structs.replace(terms, position=int(places[found[0]]) + terms.after, id=(0, 0))
    return msgspec.structs.replace(terms, position=int(places[-1]) + 1)
