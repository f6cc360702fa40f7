"""Queues: `/queue/NAME`. Each message goes to one of the consumers, and is there until one has acknowledged it.

Rule 1: a queue begins with the first SEND or SUBSCRIBE that names it, and ends when somebody deletes it. What comes is
    stored, whether there are consumers or not, and handed out from the store.
Rule 2: a message is in flight at one consumer at most. It is done with when that one acknowledges it; with `ack:auto`,
    when it is handed to the socket.
Rule 3: what is refused, or in flight at a consumer that is gone, comes back, and is counted (`redeliveries`). After so
    many tries it goes to a dead-letter queue with the reason, by one record of the store: it is in one of the two.
Rule 4: rows go out in the order in which they came, as far as selectors, room, groups and their coming back let them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.budgets import estimated_bytes
from postroad.broker.consumers import MAX_PROFILES, Consumer, ConsumerProfile, Consumers, Share
from postroad.broker.errors import BrokerError
from postroad.broker.message_groups import MessageGroups
from postroad.broker.queue_names import rows_by_name
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.stored import Discard
from postroad.errors import PostroadError
from postroad.matching import SubscriptionIndex, WorkError
from postroad.messages import Batch
from postroad.messages.columns import ENVELOPE_COLUMNS, FLAGS, QUEUED, SPAN_COLUMNS
from postroad.messages.headers import escape
from postroad.messages.id_columns import WORD_BITS
from postroad.selectors import Selector, TopicPattern, check_topic
from postroad.store import first_places, intersect
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.outbox import Outbox
    from postroad.broker.redeliveries import QueueSettings, Redeliveries
    from postroad.store import Cursor, Taken

    Rows = NDArray[np.int64]

__all__ = ["MAX_QUEUES", "QUEUE_PREFIX", "ConsumerTerms", "NamedQueue", "NamedQueues", "QueueTerms"]

QUEUE_PREFIX = "/queue/"
# Names are kept in the store, in every checkpoint of it.
MAX_NAME_BYTES = 255
# A queue outlives whoever made it: without a bound, clients that send under ever new names would fill memory.
MAX_QUEUES = 10_000
# So that one login does not take them all.
MAX_QUEUES_PER_PRINCIPAL = 1_000
# Rows that are looked at, at once, for consumers with selectors; and how often in one turn. A queue whose consumers
# want few of its rows is searched a piece per turn.
ROWS_PER_LOOK = 1_000
# Beyond all places.
NO_PLACE = 2**62
LOOKS_PER_TURN = 16


class QueueTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a queue.

    Attributes:
        queue: its name.
        principal: who made it.
        created: when, in ms.
        deleted: why it is over; what waits in it is being given up.
        own: the broker made it, for what it gave up.
    """

    queue: str
    principal: str
    created: int = 0
    deleted: str = ""
    own: bool = False


class ConsumerTerms(NamedTuple):
    """What a consumer asks for.

    Attributes:
        selector: what it wants; empty for all messages.
        ack_mode: when a message is done with.
        prefetch: how many messages it may have that it has not acknowledged; None for the broker's default.
        exclusive: while it is there, nobody else gets anything.
    """

    selector: str = ""
    ack_mode: AckMode = AckMode.AUTO
    prefetch: int | None = None
    exclusive: bool = False


class NamedQueue:
    """One queue.

    Attributes:
        holder: stands for the queue where subscriptions are named: its number is the cursor's, and the record's.
        cursor: its rows in the store.
        consumers: who takes them.
        idle: nobody can be given anything until something happens.
        counts: of messages: those that were dead-lettered.
    """

    def __init__(self, terms: QueueTerms, holder: Subscription, cursor: Cursor) -> None:
        self.terms = terms
        self.holder = holder
        self.cursor = cursor
        self.consumers = Consumers()
        self.groups: MessageGroups | None = None
        self.idle = True
        self.dead_lettered = 0

    @property
    def name(self) -> str:
        """Its name, without `/queue/`."""
        return self.terms.queue


class NamedQueues:
    """The queues of a broker.

    Args:
        core: the broker.
        deliveries: hands rows to subscribers.
        redeliveries: what came back.

    Attributes:
        settings: how they treat what comes back.
        dead_lettered: how many messages went to a dead-letter queue, or nowhere for want of one.
        undeliverable: why the last dead-letter queue that was needed could not be made; empty if all could.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, redeliveries: Redeliveries) -> None:
        assert deliveries.stored is not None
        self._core = core
        self._deliveries = deliveries
        self._stored = deliveries.stored
        self._log = self._stored.log
        # The selectors of consumers.
        self._index = SubscriptionIndex(secret=core.index_secret)
        self.redeliveries = redeliveries
        self._named: dict[str, NamedQueue] = {}
        self._by_cursor: dict[int, NamedQueue] = {}
        self.dead_lettered = 0
        self.undeliverable = ""

    @property
    def settings(self) -> QueueSettings:
        """How they treat what comes back."""
        return self.redeliveries.settings

    def __len__(self) -> int:
        return len(self._named)

    def listed(self) -> list[NamedQueue]:
        """All of them, by name."""
        return sorted(self._named.values(), key=lambda each: each.name)

    def find(self, name: str) -> NamedQueue | None:
        """The one of this name."""
        return self._named.get(name)

    # --- queues ------------------------------------------------------------------------------------------------------

    def restore(self, now: int) -> None:
        """Take up what an earlier process has left."""
        for cursor in list(self._log.cursors.values()):
            if not is_queue(cursor.terms):
                continue
            terms = msgspec.msgpack.decode(cursor.terms, type=QueueTerms)
            queue = self._enter(terms, cursor, now)
            if terms.deleted:
                self._discard_all(queue, terms.deleted)

    def _enter(self, terms: QueueTerms, cursor: Cursor, now: int) -> NamedQueue:
        session = Session(0, terms.principal)
        session.congested = True
        destination = QUEUE_PREFIX + terms.queue
        holder = Subscription(cursor.number, session, destination, destination, AckMode.AUTO, OverflowPolicy.SPOOL)
        holder.cursor = cursor
        holder.waiting.stored = self._log.unread(cursor)
        queue = NamedQueue(terms, holder, cursor)
        holder.queue = queue
        self._by_cursor[cursor.number] = queue
        if not terms.deleted:
            self._named[terms.queue] = queue
        self._core.recorder.subscribed(cursor.number, terms.principal, destination, "", now)
        return queue

    def named(self, name: str, principal: str, now: int, at_home: bool = False) -> NamedQueue:
        """The queue of this name, which begins now if there is none; at this broker in any case if it is `at_home`.

        Raises:
            BrokerError: the name is none for a queue, it lives at another broker, a limit is reached, or the store
                takes nothing.
        """
        queue = self._named.get(name)
        if queue is not None:
            return queue
        if not at_home:
            # Dead letters stay where their queue is.
            prefix = self.settings.dead_letter
            self._core.check_home(name.removeprefix(prefix) if self._is_dead_letter(name) else name)
        if not at_home and len(name.encode()) > MAX_NAME_BYTES:
            raise BrokerError(f"the name of a queue has at most {MAX_NAME_BYTES} bytes")
        # Clients can neither use up the dead-letter queues that the broker needs, nor be kept from theirs by them.
        if sum(each.terms.own == at_home for each in self._named.values()) >= MAX_QUEUES:
            raise BrokerError(
                f"this broker has {MAX_QUEUES:,} queues, the limit; delete some that nobody needs "
                "(postroad queues list)"
            )
        mine = sum(each.terms.principal == principal and not each.terms.own for each in self._named.values())
        if not at_home and mine >= MAX_QUEUES_PER_PRINCIPAL:
            raise BrokerError(
                f"{principal or 'clients without a login'} has {mine:,} queues here, the limit; delete some that "
                "nobody needs (postroad queues list)"
            )
        if refusal := self._stored.refusal:
            raise BrokerError(f"no queue can be made now: {refusal}")
        terms = QueueTerms(queue=name, principal=principal, created=now, own=at_home)
        number = self._core.take_subscription_number()
        return self._enter(terms, self._log.open_cursor(number, msgspec.msgpack.encode(terms)), now)

    def purge(self, queue: NamedQueue, reason: str) -> int:
        """Give up all that waits in a queue; what is in flight stays with its consumers. How many messages that is."""
        self._recall(queue)
        left = self._log.unread(queue.cursor)
        queue.holder.waiting.stored = left
        self._stored.discard(Discard(queue.cursor, queue.cursor.number, left, reason, ends=False, owner=queue.holder))
        if queue.groups is not None:
            queue.groups.forget()
        queue.consumers.search_anew()
        return left

    def delete(self, queue: NamedQueue, reason: str, outbox: Outbox, now: int) -> int:
        """End a queue, with all that is in it; its consumers are closed. How many messages it had."""
        consumers = [each.subscription for each in queue.consumers.listed()]
        self._remove(consumers, now)
        for number in dict.fromkeys(each.session.number for each in consumers):
            outbox.closes.append((number, f"the queue {queue.name!r} was deleted"))
        self._recall(queue)
        del self._named[queue.name]
        self._core.release_publishers(queue.holder, outbox)
        return self._discard_all(queue, reason)

    def _discard_all(self, queue: NamedQueue, reason: str) -> int:
        # First on disk: a crash before all is given up must not bring it back.
        terms = msgspec.structs.replace(queue.terms, deleted=reason)
        self._log.change_cursor(queue.cursor, msgspec.msgpack.encode(terms))
        left = self._log.unread(queue.cursor)
        del self._by_cursor[queue.cursor.number]
        self._stored.discard(Discard(queue.cursor, queue.cursor.number, left, reason, ends=True))
        return left

    def expire(self, now: int) -> None:
        """Give up what has waited longer than it may."""
        age = self._log.settings.max_age_seconds
        for queue in self._named.values() if age else ():
            # Dead letters are kept for people to look at, and their records are as old as the messages, not as their
            # time in this queue.
            letters = self._is_dead_letter(queue.name)
            late = 0 if letters else self._log.older_than(queue.cursor, now - 1_000 * age)
            if late and not self._stored.is_discarding(queue.cursor):
                self._stored.discard(
                    Discard(queue.cursor, queue.cursor.number, late, "too old", ends=False, owner=queue.holder)
                )

    def _recall(self, queue: NamedQueue) -> None:
        due = self.redeliveries.recall(queue.cursor)
        queue.consumers.came_back(due)
        if queue.groups is not None:
            queue.groups.due(due)

    # --- messages ----------------------------------------------------------------------------------------------------

    def admit(self, batch: Batch, source: Session, outbox: Outbox, now: int) -> list[tuple[NamedQueue, Rows]]:
        """Make the queues that a batch is for, before anything of it is accepted; answers the rows of each.

        The outbox says why the batch has to be refused, if nothing can be stored, or a queue is full and its publisher
        cannot be paused.

        Raises:
            BrokerError: a queue cannot be made.
        """
        rows = np.flatnonzero(batch.envelopes[:, FLAGS] & QUEUED)
        if not len(rows):
            return []
        if refusal := self._stored.refusal:
            outbox.unstorable = f"what is sent to a queue cannot be stored: {refusal}"
            return []
        admitted = [(self.named(name, source.principal, now), mine) for name, mine in rows_by_name(batch, rows)]
        refusals = (self._refusal(queue, source) for queue, _ in admitted)
        outbox.unstorable = next(filter(None, refusals), "")
        return admitted

    def _refusal(self, queue: NamedQueue, source: Session) -> str:
        """Why a queue takes nothing of a publisher; empty if it does, and whoever can be paused is paused instead."""
        stored, settings = self._stored, self._log.settings
        if not stored.is_full(queue.holder) or self._deliveries.can_pause(source, queue.holder):
            return ""
        why = "the store is nearly full (limit store.max_bytes)"
        if stored.is_over(queue.holder):
            limit = settings.subscription_bytes
            why = f"it has {queue.cursor.bytes:,} bytes (limit store.subscription_bytes, {limit:,})"
        return (
            f"the queue {queue.name!r} is full: {why}, and this session cannot be paused because it acknowledges "
            "messages over the same connection; send again later, or over another connection"
        )

    def enqueue(
        self,
        batch: Batch,
        admitted: Sequence[tuple[NamedQueue, Rows]],
        source: Session | None,
        outbox: Outbox,
        now: int,
    ) -> Batch:
        """Store the rows of a batch that are for queues, as `admit` has answered them; answers the others."""
        is_queued = (batch.envelopes[:, FLAGS] & QUEUED) != 0
        for queue, rows in admitted:
            self._deliveries.enqueue(queue.holder, batch, rows, now)
        if self._stored.is_storing:
            self._deliveries.flush_stored(batch, source, outbox, now, None)
        return batch.take(np.flatnonzero(~is_queued))

    # --- consumers ---------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, key: str, name: str, asked: ConsumerTerms, now: int) -> Subscription:
        """A session consumes a queue from now on; `offer` hands out what waits.

        Raises:
            BrokerError: the name is none for a queue, or its queue lives elsewhere; a limit is reached; the policy
                refuses.
            LimitError: the index is full.
            SelectorError, TopicError: a text does not parse.
        """
        self._core.check_key(session, key)
        check_topic(name)
        destination = QUEUE_PREFIX + name
        selector = self._core.allowed(session, destination, asked.selector)
        queue = self.named(name, session.principal, now)
        most = self._core.limits.unacknowledged
        prefetch = min(most, self.settings.prefetch) if asked.prefetch is None else min(most, asked.prefetch or most)
        number = self._core.take_subscription_number()
        subscription = Subscription(number, session, key, destination, asked.ack_mode, OverflowPolicy.SPOOL)
        subscription.selector = "" if selector is None else str(selector)
        profile = self._profile(queue, subscription, selector)
        subscription.cursor, subscription.queue, subscription.recorded = queue.cursor, queue, queue.cursor.number
        session.subscriptions[key] = subscription
        queue.consumers.add(Consumer(subscription, profile, prefetch, asked.exclusive))
        if len(queue.consumers) == 1:
            self._log.attach(queue.cursor)
        queue.idle = False
        return subscription

    def _profile(self, queue: NamedQueue, subscription: Subscription, selector: Selector | None) -> ConsumerProfile:
        text = subscription.selector
        profile = queue.consumers.profiles.get(text)
        if profile is None and len(queue.consumers.profiles) >= MAX_PROFILES:
            raise BrokerError(
                f"the consumers of the queue {queue.name!r} have {MAX_PROFILES} different selectors, the limit; use "
                "one of theirs, or several queues"
            )
        # What was dead-lettered has the destination that it was sent to.
        pattern = None if self._is_dead_letter(queue.name) else TopicPattern.parse(queue.name)
        budgets, session = self._core.budgets, subscription.session
        size = estimated_bytes(subscription.key, subscription.topic, selector)
        budgets.check_bytes(session, size)
        work, slot, before = 0, -1, self._index.work
        if selector is not None and profile is None:
            try:
                slot = self._index.add((queue.cursor.number, text), selector, pattern, budgets.allowance(session))
            except WorkError as error:
                budgets.check_work(session, error.work - before)
                raise
            work = self._index.work - before
        budgets.add(subscription, size, work)
        return ConsumerProfile(text, slot) if profile is None else profile

    def left(self, consumers: Sequence[Subscription], outbox: Outbox, now: int) -> None:
        """Consumers are gone, all at once: what they have not acknowledged comes back, and goes to others."""
        queues = self._remove(consumers, now)
        for queue in queues:
            self._offer(queue, outbox, now)

    def _remove(self, consumers: Sequence[Subscription], now: int) -> list[NamedQueue]:
        """Take consumers from their queues, and offer nothing yet: what comes back is not for one that goes as well."""
        queues: dict[int, NamedQueue] = {}
        for subscription in consumers:
            queue = subscription.queue
            assert queue is not None
            queues[queue.cursor.number] = queue
            del subscription.session.subscriptions[subscription.key]
            profile = queue.consumers.remove(subscription.number)
            self._core.budgets.remove(subscription)
            if profile is None:
                self._pass_on_work(queue, subscription)
            elif profile.selector:
                self._index.remove((queue.cursor.number, profile.selector))
        for subscription in consumers:
            unacknowledged, subscription.unacknowledged = subscription.unacknowledged, {}
            if unacknowledged:
                assert subscription.queue is not None
                self.came_back(subscription.queue, unacknowledged, now, refused=False)
        for queue in queues.values():
            if not len(queue.consumers):
                self._log.detach(queue.cursor, returns=False)
        return list(queues.values())

    def _pass_on_work(self, queue: NamedQueue, subscription: Subscription) -> None:
        """A consumer is gone, and others have its selector: what that costs counts for one of them from now on."""
        if subscription.work:
            others = (each.subscription for each in queue.consumers.listed())
            heir = next(each for each in others if each.selector == subscription.selector)
            size, work = heir.bytes, heir.work + subscription.work
            self._core.budgets.remove(heir)
            self._core.budgets.add(heir, size, work)

    # --- handing out -------------------------------------------------------------------------------------------------

    def offer(self, subscription: Subscription, outbox: Outbox, now: int) -> int:
        """Something has happened to a consumer: hand out what can be; how many messages that were."""
        queue = subscription.queue
        assert queue is not None
        return self._offer(queue, outbox, now)

    def owe(self, subscription: Subscription) -> None:
        """Something has happened to a consumer: in a later turn, hand out what can be, also to others."""
        queue, session = subscription.queue, subscription.session
        assert queue is not None
        takers = [each.subscription.session for each in queue.consumers.open()] if session.congested else [session]
        for each in takers:
            self._deliveries.owe(each)

    def stored(self, holder: Subscription, outbox: Outbox, now: int) -> None:
        """Rows of a queue were written, or read."""
        assert holder.queue is not None
        self._offer(holder.queue, outbox, now)

    def drainable(self, subscription: Subscription) -> bool:
        """Whether `offer` may have something for a consumer."""
        queue = subscription.queue
        return queue is not None and not queue.idle and bool(queue.consumers.open())

    def _offer(self, queue: NamedQueue, outbox: Outbox, now: int) -> int:
        handed = 0
        queue.idle = waits = False
        most = self._core.limits.drain_messages
        for _ in range(LOOKS_PER_TURN):
            consumers = queue.consumers.open()
            if not consumers or handed >= most or outbox.searched > self._core.turn_budget:
                queue.idle = not consumers
                break
            if self._stored.is_discarding(queue.cursor):
                # What is given up comes first, or rows that came later would be taken for it.
                queue.idle = waits = True
                break
            found = self._look(queue, consumers, outbox, now)
            if found is None:
                queue.idle = waits = True
                break
            if found < 0:
                # What comes to the queue is offered anyway, and nothing else that is written or read.
                queue.idle = True
                break
            handed += found
        unread = queue.holder.waiting.stored = self._log.unread(queue.cursor)
        if unread and waits:
            # More may come from the disk.
            self._stored.block(queue.holder)
        if not queue.idle:
            for consumer in queue.consumers.open():
                self._deliveries.owe(consumer.subscription.session)
        return handed

    def _look(self, queue: NamedQueue, consumers: Sequence[Consumer], outbox: Outbox, now: int) -> int | None:
        """Hand out rows of one look; how many they were.

        None if there was nothing to look at yet, and -1 if nothing that waits is wanted.
        """
        groups = queue.groups
        handed = 0 if groups is None else self._serve_groups(queue, groups, consumers, outbox, now)
        if handed:
            return handed
        among = (
            queue.consumers.wanted(queue.cursor, consumers)
            if groups is None
            else queue.consumers.wanted(queue.cursor, consumers, groups.blocked.runs)
        )
        most = min(ROWS_PER_LOOK, sum(each.room for each in consumers))
        if any(each.selector for each in queue.consumers.profiles.values()):
            most = ROWS_PER_LOOK
        if not len(among.starts) and (groups is None or not groups.waiting()):
            # Rows that came since the last record was closed are not among those that wait yet.
            return -1 if self._log.unread(queue.cursor) == queue.cursor.waiting.count else None
        shown = self._log.peek(queue.cursor, among, most)
        if not shown:
            return None
        for taken in shown:
            if outbox.searched > self._core.turn_budget:
                break
            handed += self._divide(queue, taken, [each for each in consumers if each.room], outbox, now)
        return handed

    def _divide(self, queue: NamedQueue, taken: Taken, consumers: Sequence[Consumer], outbox: Outbox, now: int) -> int:
        """Hand rows of one record to those who want them, as far as this turn goes; how many they were."""
        if not consumers:
            return 0
        taken, matched = self._matched(queue, taken, outbox)
        queue.consumers.note_passed(taken, matched, queue.cursor)
        buckets = MessageGroups.buckets(taken.batch, taken.rows)
        free = np.ones(len(taken.places), np.bool_) if buckets is None else buckets < 0
        handed = 0
        for share in queue.consumers.assign(taken, matched, consumers, free):
            handed += len(self._give(queue, share, taken, outbox, now))
        if buckets is not None:
            if queue.groups is None:
                queue.groups = MessageGroups()
            grouped = np.flatnonzero(~free)
            grouped = grouped[np.argsort(buckets[grouped], kind="stable")]
            parts = np.split(grouped, np.flatnonzero(np.diff(buckets[grouped])) + 1)
            of_buckets = [(int(buckets[part[0]]), part) for part in parts if len(part)]
            handed += self._give_groups(queue, of_buckets, taken, matched, consumers, outbox, now)
        return handed

    def _matched(self, queue: NamedQueue, taken: Taken, outbox: Outbox) -> tuple[Taken, dict[str, NDArray[np.bool_]]]:
        """The rows that this turn has time for, at least one, and which of them each profile with a selector wants."""
        selective = [each for each in queue.consumers.profiles.values() if each.selector]
        if not selective:
            return taken, {}
        budget = max(0, self._core.turn_budget - outbox.searched)
        offsets, slots = self._index.match(taken.batch.take(taken.rows), budget)
        outbox.searched += self._index.charged
        if len(offsets) - 1 < len(taken.rows):
            # All that follows has to wait for another turn.
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
        """Hand a consumer its share; answers the places of the messages that it got, without expired ones."""
        part = _part(taken, share.at)
        self._log.take(queue.cursor, part.places)
        return self._deliveries.hand_queued(share.consumer.subscription, part, outbox, now)

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
        """Hand rows of each bucket to one consumer, up to the first that it does not want; the rest is set apart.

        How many rows were handed out. With `blocked` they were set apart before.
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
        handed = 0
        for number, parts in shares.items():
            share = Share(by_number[number], np.sort(np.concatenate(parts)))
            got = self._give(queue, share, taken, outbox, now)
            handed += len(got)
            places = taken.places[share.at]
            if share.consumer.subscription.ack_mode is AckMode.AUTO:
                groups.settled(places.tolist())
            elif len(got) < len(places):
                groups.settled(places[~np.isin(places, got)].tolist())
        return handed

    def _serve_groups(
        self, queue: NamedQueue, groups: MessageGroups, consumers: Sequence[Consumer], outbox: Outbox, now: int
    ) -> int:
        """Hand out rows that were set apart because of their group; how many they were."""
        handed = 0
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
                # Nothing is read for nobody.
                continue
            for taken in self._log.peek(queue.cursor, rows, max(each.room for each in able)):
                taken, matched = self._matched(queue, taken, outbox)
                queue.consumers.note_passed(taken, matched, queue.cursor)
                every = np.arange(len(taken.places))
                given = self._give_groups(queue, [(bucket, every)], taken, matched, able, outbox, now, blocked=True)
                handed += given
                able = [each for each in able if each.room]
                if given < len(every) or not able or outbox.searched > self._core.turn_budget:
                    break
        return handed

    # --- coming back -------------------------------------------------------------------------------------------------

    def settled(self, queue: NamedQueue, places: Sequence[int]) -> None:
        """Rows were acknowledged."""
        self._log.settle(queue.cursor, np.array(places))
        if queue.groups is not None:
            queue.groups.settled(places)

    def came_back(
        self, queue: NamedQueue, rows: Mapping[int, int], now: int, refused: bool, for_good: bool = False
    ) -> None:
        """Messages were refused, or their consumer is gone.

        Args:
            queue: their queue.
            rows: their ids, as 128-bit integers, with their places.
            now: the time in ms.
            refused: their consumer has refused them, and is there.
            for_good: nobody is to get them again.
        """
        places = np.array(list(rows.values()), np.int64)
        late, exhausted = self.redeliveries.came_back(queue.cursor, places, now, refused, for_good)
        queue.consumers.came_back(places)
        gone = set(exhausted.tolist())
        if queue.groups is not None:
            queue.groups.settled(gone)
            queue.groups.came_back(places[~np.isin(places, exhausted)], late)
        self.note_return({each: place for each, place in rows.items() if place not in gone}, now)
        if gone:
            reason = given_up_because(self.settings.max_deliveries, refused, for_good)
            self._give_up(queue, {each: place for each, place in rows.items() if place in gone}, reason, now)
        queue.idle = False

    def note_return(self, rows: Mapping[int, int], now: int) -> None:
        """Put on record that messages are handed out again: their ids, as 128-bit integers, with their places."""
        if rows:
            self._core.recorder.dropped(_ids_alone(rows), np.arange(len(rows)), 0, Detour.COMES_AGAIN, now)

    def due(self, cursor: int, places: Rows, outbox: Outbox, now: int) -> bool:
        """The time of rows that came back has come; answers whether they are a queue's."""
        queue = self._by_cursor.get(cursor)
        if queue is None:
            return False
        queue.consumers.came_back(places)
        if queue.groups is not None:
            queue.groups.due(places)
        self._offer(queue, outbox, now)
        return True

    def _is_dead_letter(self, name: str) -> bool:
        prefix = self.settings.dead_letter
        return bool(prefix) and name.startswith(prefix)

    def _give_up(self, queue: NamedQueue, rows: Mapping[int, int], reason: str, now: int) -> None:
        """Messages came back too often: they go to the dead-letter queue, or nowhere."""
        places = np.array(list(rows.values()), np.int64)
        if self._is_dead_letter(queue.name):
            # There is no place behind this one: they stay.
            self.redeliveries.again(queue.cursor, places, now)
            return
        note = f"dead-letter-queue:{escape(queue.name)}\ndead-letter-reason:{reason}\n".encode()
        self.give_up(queue.cursor, queue.name, rows, reason, note, now)
        queue.dead_lettered += len(rows)

    def give_up(self, cursor: Cursor, name: str, rows: Mapping[int, int], reason: str, note: bytes, now: int) -> None:
        """Messages of a cursor came back too often: they go to the dead-letter queue of a name, or nowhere.

        Args:
            cursor: whose they are; they are in flight.
            name: of the queue.
            rows: their ids, as 128-bit integers, with their places.
            reason: why, for the record.
            note: header lines that say so to whoever gets them from there.
            now: the time in ms.
        """
        places = np.array(list(rows.values()), np.int64)
        told = _ids_alone(rows)
        every = np.arange(len(places))
        recorder = self._core.recorder
        self.dead_lettered += len(places)
        if not self.settings.dead_letter:
            recorder.shed(told, every, cursor.number, f"given up: {reason}", now)
            self._log.settle(cursor, places)
            return
        try:
            target = self.named(self.settings.dead_letter + name, "", now, at_home=True)
        except PostroadError as error:
            self.undeliverable = str(error)
            self.dead_lettered -= len(places)
            self.redeliveries.again(cursor, places, now)
            return
        self.undeliverable = ""
        recorder.shed(told, every, cursor.number, f"dead-lettered to {target.name}: {reason}", now)
        recorder.queued(told, every, target.cursor.number, now)
        self._log.transfer(cursor, places, target.cursor, note)
        target.holder.waiting.stored = self._log.unread(target.cursor)
        target.consumers.came_back(places)
        target.idle = False
        self._stored.block(target.holder)
        if self._stored.is_over(target.holder):
            # Nobody can be pushed back for dead letters: the latest are kept.
            self._deliveries.overflowed.add(target.holder)
            self._stored.shed_oldest(target.holder)


def _part(taken: Taken, at: Rows) -> Taken:
    """Some of the rows that were taken, by their indices."""
    part = taken._replace(places=taken.places[at], rows=taken.rows[at])
    if taken.tried is not None:
        part = part._replace(tried=taken.tried[at])
    if taken.tries is not None:
        part = part._replace(tries=taken.tries[at])
    if taken.notes is not None:
        part = part._replace(notes=[(text, np.flatnonzero(np.isin(at, where))) for text, where in taken.notes])
    return part


def is_queue(terms: bytes) -> bool:
    """Whether the terms of a cursor are those of a queue."""
    try:
        msgspec.msgpack.decode(terms, type=QueueTerms)
    except msgspec.DecodeError:
        return False
    return True


def given_up_because(deliveries: int, refused: bool, for_good: bool) -> str:
    """Why a message is not handed out again, in words."""
    if for_good:
        return "refused for good (requeue:false)"
    return f"{'refused' if refused else 'not acknowledged by a consumer that is gone'}, delivery {deliveries}"


def _ids_alone(rows: Mapping[int, int]) -> Batch:
    """A batch that has the ids of messages and nothing else, for the record."""
    ids = np.array([divmod(each, 1 << WORD_BITS) for each in rows], np.uint64).reshape(-1, 2)
    count = len(rows)
    spans, envelopes = np.zeros((count, SPAN_COLUMNS), np.int32), np.zeros((count, ENVELOPE_COLUMNS), np.int64)
    return Batch(np.empty(0, np.uint8), spans, ids, envelopes)
