"""Delivers rows of a queue to its consumers: in order, as far as selectors, room, groups and the turn allow.

A queue is a cursor over the log: places of rows that wait, as runs. One *look* is these steps:

1. Rows of message groups that were set apart earlier, because they are older than what is still to be examined.
2. The waiting rows that some profile of the consumers has not passed over. Each row is matched once with each selector
   (`note_passed`), so a queue full of rows that nobody wants is not searched again at every occasion.
3. Read as many of them as there is room for; with selectors, a fixed number, because most may not be wanted.
4. Rows without a group are divided among consumers. Rows of a group go to the consumer that has the group, up to the
   first row that it does not want or has no room for; the others are set apart, so that they stay in order.

A turn ends after LOOKS_PER_TURN looks, at the budget for matching, or after `drain_messages` messages. What remains is
owed: the sessions of the consumers get it in later turns. `queue.idle` says that nothing is owed, and that something
must happen first: new rows, a read from the disk, an acknowledgement, a consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.consumers import Share
from postroad.broker.message_groups import MessageGroups
from postroad.broker.sessions import AckMode
from postroad.store import first_places, intersect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.broker.consumers import Consumer
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.named_queues import NamedQueue
    from postroad.broker.outbox import Outbox
    from postroad.broker.sessions import Subscription
    from postroad.matching import SubscriptionIndex
    from postroad.store import Taken

    Rows = NDArray[np.int64]

__all__ = ["QueueDispatch"]

# Rows to examine at once for consumers with selectors, and how often in one turn. A queue whose consumers want few of
# its rows is searched a piece per turn.
ROWS_PER_LOOK = 1_000
# Beyond all places.
NO_PLACE = 2**62
LOOKS_PER_TURN = 16


class QueueDispatch:
    """Delivers what is in the queues of a broker.

    Args:
        core: the broker.
        deliveries: delivers rows to subscriptions.
        index: the selectors of consumers.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, index: SubscriptionIndex) -> None:
        assert deliveries.stored is not None
        self._core = core
        self._deliveries = deliveries
        self._stored = deliveries.stored
        self._log = self._stored.log
        self._index = index

    def owe(self, subscription: Subscription) -> None:
        """Note that something has happened to a consumer: a later turn delivers what it can, also to others."""
        queue, session = subscription.queue, subscription.session
        assert queue is not None
        takers = [each.subscription.session for each in queue.consumers.open()] if session.congested else [session]
        for each in takers:
            self._deliveries.owe(each)

    def offer(self, queue: NamedQueue, outbox: Outbox, now: int) -> int:
        """Deliver what can be delivered, as far as this turn goes; return how many messages."""
        delivered = 0
        queue.idle = waits = False
        most = self._core.limits.drain_messages
        for _ in range(LOOKS_PER_TURN):
            consumers = queue.consumers.open()
            if not consumers or delivered >= most or outbox.searched > self._core.turn_budget:
                queue.idle = not consumers
                break
            if self._stored.is_discarding(queue.cursor):
                # Rows being given up come first, or later rows would be given up in their place.
                queue.idle = waits = True
                break
            found = self._look(queue, consumers, outbox, now)
            if found is None:
                queue.idle = waits = True
                break
            if found < 0:
                # New rows of the queue are offered anyway; nothing else that is written or read matters.
                queue.idle = True
                break
            delivered += found
        unread = queue.holder.waiting.stored = self._log.unread(queue.cursor)
        if unread and waits:
            # More may come from the disk.
            self._stored.block(queue.holder)
        if not queue.idle:
            for consumer in queue.consumers.open():
                self._deliveries.owe(consumer.subscription.session)
        return delivered

    def _look(self, queue: NamedQueue, consumers: Sequence[Consumer], outbox: Outbox, now: int) -> int | None:
        """Deliver rows of one look; return how many.

        None if there was nothing to look at yet, and -1 if no consumer wants anything that waits.
        """
        groups = queue.groups
        delivered = 0 if groups is None else self._serve_groups(queue, groups, consumers, outbox, now)
        if delivered:
            return delivered
        among = (
            queue.consumers.wanted(queue.cursor, consumers)
            if groups is None
            else queue.consumers.wanted(queue.cursor, consumers, groups.blocked.runs)
        )
        most = min(ROWS_PER_LOOK, sum(each.room for each in consumers))
        if any(each.selector for each in queue.consumers.profiles.values()):
            most = ROWS_PER_LOOK
        if not len(among.starts) and (groups is None or not groups.waiting()):
            # Rows that came after the last record was closed do not count as waiting yet.
            return -1 if self._log.unread(queue.cursor) == queue.cursor.waiting.count else None
        shown = self._log.peek(queue.cursor, among, most)
        if not shown:
            return None
        for taken in shown:
            if outbox.searched > self._core.turn_budget:
                break
            delivered += self._divide(queue, taken, [each for each in consumers if each.room], outbox, now)
        return delivered

    def _divide(self, queue: NamedQueue, taken: Taken, consumers: Sequence[Consumer], outbox: Outbox, now: int) -> int:
        """Deliver rows of one record to those who want them, as far as this turn goes; return how many."""
        if not consumers:
            return 0
        taken, matched = self._matched(queue, taken, outbox)
        queue.consumers.note_passed(taken, matched, queue.cursor)
        buckets = MessageGroups.buckets(taken.batch, taken.rows)
        free = np.ones(len(taken.places), np.bool_) if buckets is None else buckets < 0
        delivered = 0
        for share in queue.consumers.assign(taken, matched, consumers, free):
            delivered += len(self._give(queue, share, taken, outbox, now))
        if buckets is not None:
            if queue.groups is None:
                queue.groups = MessageGroups()
            grouped = np.flatnonzero(~free)
            grouped = grouped[np.argsort(buckets[grouped], kind="stable")]
            parts = np.split(grouped, np.flatnonzero(np.diff(buckets[grouped])) + 1)
            of_buckets = [(int(buckets[part[0]]), part) for part in parts if len(part)]
            delivered += self._give_groups(queue, of_buckets, taken, matched, consumers, outbox, now)
        return delivered

    def _matched(self, queue: NamedQueue, taken: Taken, outbox: Outbox) -> tuple[Taken, dict[str, NDArray[np.bool_]]]:
        """Return the rows that this turn has time for, at least one, and which of them each selector wants."""
        selective = [each for each in queue.consumers.profiles.values() if each.selector]
        if not selective:
            return taken, {}
        budget = max(0, self._core.turn_budget - outbox.searched)
        offsets, slots, charged = self._index.match_charged(taken.batch.take(taken.rows), budget)
        outbox.searched += charged
        if len(offsets) - 1 < len(taken.rows):
            # All that follows waits for another turn.
            outbox.searched = max(outbox.searched, self._core.turn_budget + 1)
            taken = _part(taken, np.arange(len(offsets) - 1))
        rows = np.repeat(np.arange(len(taken.rows)), np.diff(offsets))
        found = {}
        for profile in selective:
            wants = np.zeros(len(taken.rows), np.bool_)
            wants[rows[slots == profile.slot]] = True
            found[profile.selector] = wants
        return taken, found

    def _give(self, queue: NamedQueue, share: Share, taken: Taken, outbox: Outbox, now: int) -> Rows:
        """Deliver a consumer's share; return the places of the messages that it got, without expired ones."""
        part = _part(taken, share.at)
        self._log.take(queue.cursor, part.places)
        return self._deliveries.deliver_queued(share.consumer.subscription, part, outbox, now)

    def _give_groups(
        self,
        queue: NamedQueue,
        of_buckets: Sequence[tuple[int, Rows]],
        taken: Taken,
        matched: Mapping[str, NDArray[np.bool_]],
        consumers: Sequence[Consumer],
        outbox: Outbox,
        now: int,
        blocked: bool = False,
    ) -> int:
        """Deliver rows of each bucket to one consumer, up to the first that it does not want; set the rest apart.

        Returns how many rows were delivered. With `blocked` they were set apart before.
        """
        groups = queue.groups
        assert groups is not None
        everything = np.ones(len(taken.places), np.bool_)
        rooms = {each.number: each.room for each in consumers}
        wants = {each.number: matched.get(each.profile.selector, everything) for each in consumers}
        by_number = {each.number: each for each in consumers}
        shares: dict[int, list[Rows]] = {}
        for bucket, at in of_buckets:
            size, number = 0, 0
            if blocked or groups.is_free(bucket):
                number = groups.consumer_for(bucket, int(at[0]), wants, rooms)
            if number:
                wanted = wants[number][at]
                size = min(rooms[number], len(at) if wanted.all() else int(wanted.argmin()))
                groups.took(bucket, number, taken.places[at[:size]])
                shares.setdefault(number, []).append(at[:size])
                rooms[number] -= size
            if size < len(at) and not blocked:
                groups.block(bucket, taken.places[at[size:]])
        delivered = 0
        for number, parts in shares.items():
            share = Share(by_number[number], np.sort(np.concatenate(parts)))
            got = self._give(queue, share, taken, outbox, now)
            delivered += len(got)
            places = taken.places[share.at]
            if share.consumer.subscription.ack_mode is AckMode.AUTO:
                groups.settled(places.tolist())
            elif len(got) < len(places):
                groups.settled(places[~np.isin(places, got)].tolist())
        return delivered

    def _serve_groups(
        self, queue: NamedQueue, groups: MessageGroups, consumers: Sequence[Consumer], outbox: Outbox, now: int
    ) -> int:
        """Deliver rows that were set apart because of their group; return how many."""
        delivered = 0
        for bucket in groups.waiting():
            consumers = [each for each in consumers if each.room]
            if not consumers or outbox.searched > self._core.turn_budget:
                break
            if not groups.may_go(bucket, consumers):
                continue
            most = max(each.room for each in consumers)
            rows = first_places(groups.rows_of(bucket), most, NO_PLACE)
            places = rows.places()
            there = queue.cursor.waiting.runs.contains(places)
            if not there.all():
                rows = intersect(groups.rows_of(bucket), queue.cursor.waiting.runs)
                groups.given_up(bucket, places[~there])
            able = groups.able(bucket, rows, consumers)
            if not able:
                # Read nothing that nobody takes.
                continue
            for taken in self._log.peek(queue.cursor, rows, max(each.room for each in able)):
                taken, matched = self._matched(queue, taken, outbox)
                queue.consumers.note_passed(taken, matched, queue.cursor)
                every = np.arange(len(taken.places))
                given = self._give_groups(queue, [(bucket, every)], taken, matched, able, outbox, now, blocked=True)
                delivered += given
                able = [each for each in able if each.room]
                if given < len(every) or not able or outbox.searched > self._core.turn_budget:
                    break
        return delivered


def _part(taken: Taken, at: Rows) -> Taken:
    """Return some of the rows that were taken, by their indices."""
    part = taken._replace(places=taken.places[at], rows=taken.rows[at])
    if taken.tried is not None:
        part = part._replace(tried=taken.tried[at])
    if taken.tries is not None:
        part = part._replace(tries=taken.tries[at])
    if taken.notes is not None:
        part = part._replace(notes=[(text, np.flatnonzero(np.isin(at, where))) for text, where in taken.notes])
    return part
