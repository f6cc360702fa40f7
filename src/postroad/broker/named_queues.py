"""Queues: `/queue/NAME`. Each message goes to one of the consumers, and stays until one has acknowledged it.

Rule 1: a queue begins with the first SEND or SUBSCRIBE that names it, and ends when it is deleted. Messages are stored,
    whether there are consumers or not, and delivered from the store.
Rule 2: a message is in flight at one consumer at most. It is settled when that consumer acknowledges it; with
    `ack:auto`, when it is written to the socket.
Rule 3: a message that is refused, or in flight at a consumer that is gone, returns and is counted (`redeliveries`).
    After so many tries one record of the store moves it to a dead-letter queue, with the reason.
Rule 4: rows are delivered in the order in which they came, as far as selectors, room, groups and redeliveries allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.broker.budgets import estimated_bytes
from postroad.broker.consumers import MAX_PROFILES, Consumer, ConsumerProfile, Consumers, ConsumerTerms
from postroad.broker.errors import BrokerError
from postroad.broker.expiries import SWEPT_ROWS, Expiries
from postroad.broker.queue_dispatch import QueueDispatch
from postroad.broker.queue_names import check_name, rows_by_name
from postroad.broker.queue_quota import QueueQuota
from postroad.broker.queue_returns import QueueReturns
from postroad.broker.row_groups import any_expires
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.stored_queues import Discard
from postroad.matching import SubscriptionIndex, WorkError
from postroad.messages.columns import EXPIRY, FLAGS, QUEUED
from postroad.selectors import Selector, TopicPattern, check_topic
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.message_groups import MessageGroups
    from postroad.broker.outbox import Outbox
    from postroad.broker.outgoing_queue import OutgoingQueue
    from postroad.broker.redeliveries import QueueSettings, Redeliveries
    from postroad.messages import Batch
    from postroad.store import Cursor

    Rows = NDArray[np.int64]

__all__ = ["QUEUE_PREFIX", "NamedQueue", "NamedQueues", "QueueTerms"]

QUEUE_PREFIX = "/queue/"


class QueueTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a queue.

    Attributes:
        queue: its name.
        principal: who made it.
        created: when, in ms.
        deleted: why it is over; its messages are being given up.
        own: the broker made it, for messages that it gave up.
    """

    queue: str
    principal: str
    created: int = 0
    deleted: str = ""
    own: bool = False


class NamedQueue:
    """One queue.

    Attributes:
        holder: stands for the queue where subscriptions are named; its number is that of the cursor and of the record.
        cursor: its rows in the store.
        consumers: who takes them.
        expiries: when its messages expire; None for dead letters, which do not.
        idle: no consumer can get anything until something happens.
        counts: of messages that were dead-lettered.
    """

    def __init__(self, terms: QueueTerms, holder: Subscription, cursor: Cursor) -> None:
        self.terms = terms
        self.holder = holder
        self.cursor = cursor
        self.consumers = Consumers()
        self.groups: MessageGroups | None = None
        self.expiries: Expiries | None = None
        self.idle = True
        self.dead_lettered = 0

    @property
    def name(self) -> str:
        """Return its name, without `/queue/`."""
        return self.terms.queue


class NamedQueues:
    """The queues of a broker.

    Args:
        core: the broker.
        deliveries: delivers rows to subscriptions.
        redeliveries: what returned.

    Attributes:
        settings: how they treat messages that return.
        dispatch: delivers rows to consumers.
        returns: handles messages that return.
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
        self._quota = QueueQuota()
        self._by_cursor: dict[int, NamedQueue] = {}
        self.dispatch = QueueDispatch(core, deliveries, self._index)
        self.returns = QueueReturns(
            core, deliveries, redeliveries, lambda name, now: self.named(name, "", now, at_home=True)
        )
        self._swept = 0

    @property
    def settings(self) -> QueueSettings:
        """Return how they treat messages that return."""
        return self.redeliveries.settings

    def __len__(self) -> int:
        return len(self._named)

    def listed(self) -> list[NamedQueue]:
        """Return all of them, by name."""
        return sorted(self._named.values(), key=lambda each: each.name)

    def find(self, name: str) -> NamedQueue | None:
        """Return the one of this name."""
        return self._named.get(name)

    # --- queues ------------------------------------------------------------------------------------------------------

    def restore(self, now: int) -> None:
        """Restore what an earlier process left."""
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
        if not self.returns.is_dead_letter(terms.queue):
            queue.expiries = Expiries(self._log, queue)
        holder.queue = queue
        self._by_cursor[cursor.number] = queue
        if not terms.deleted:
            self._named[terms.queue] = queue
            self._quota.add(terms)
        self._core.recorder.subscribed(cursor.number, terms.principal, destination, "", now)
        return queue

    def named(self, name: str, principal: str, now: int, at_home: bool = False) -> NamedQueue:
        """Return the queue of this name; make it if there is none. If `at_home`, it is at this broker in any case.

        Raises:
            BrokerError: the name is not valid for a queue, the queue is at another broker, a limit is reached, or the
                store takes nothing.
        """
        queue = self._named.get(name)
        if queue is not None:
            return queue
        if not at_home:
            self._core.homes.check(name)
        if not at_home:
            check_name(name)
        self._quota.check(principal, at_home)
        if refusal := self._stored.refusal:
            raise BrokerError(f"no queue can be made now: {refusal}")
        terms = QueueTerms(queue=name, principal=principal, created=now, own=at_home)
        number = self._core.take_subscription_number()
        return self._enter(terms, self._log.open_cursor(number, msgspec.msgpack.encode(terms)), now)

    def purge(self, queue: NamedQueue, reason: str) -> int:
        """Give up all that waits in a queue; what is in flight stays with its consumers. Return how many messages."""
        self._recall(queue)
        left = self._stored.purge(queue.holder, reason)
        if queue.groups is not None:
            queue.groups.forget()
        queue.consumers.search_anew()
        return left

    def delete(self, queue: NamedQueue, reason: str, outbox: Outbox, now: int) -> int:
        """End a queue and all its messages, and close its consumers; return how many messages it had."""
        consumers = [each.subscription for each in queue.consumers.listed()]
        self._remove(consumers, now)
        why = f"the queue {queue.name!r} was deleted"
        for guest in [each.guest for each in consumers if each.guest is not None]:
            assert self._core.peers is not None
            self._core.peers.guests.dismiss(guest, why, now)
        for number in dict.fromkeys(each.session.number for each in consumers if each.guest is None):
            outbox.closes.append((number, why))
        self._recall(queue)
        del self._named[queue.name]
        self._quota.remove(queue.terms)
        self._core.release_publishers(queue.holder, outbox)
        return self._discard_all(queue, reason)

    def _discard_all(self, queue: NamedQueue, reason: str) -> int:
        # Store this first: a crash before all is given up must not bring it back.
        terms = msgspec.structs.replace(queue.terms, deleted=reason)
        self._log.change_cursor(queue.cursor, msgspec.msgpack.encode(terms))
        left = self._log.unread(queue.cursor)
        del self._by_cursor[queue.cursor.number]
        self._stored.discard(Discard(queue.cursor, queue.cursor.number, left, reason, ends=True))
        return left

    def expire(self, now: int) -> None:
        """Give up messages that have waited longer than they may, or have expired."""
        self._sweep(now)
        age = self._log.settings.max_age_seconds
        for queue in self._named.values() if age else ():
            # Dead letters are kept for people to look at, and their records are as old as the messages, not as their
            # time in this queue.
            letters = self.returns.is_dead_letter(queue.name)
            late = 0 if letters else self._log.older_than(queue.cursor, now - 1_000 * age)
            if late and not self._stored.is_discarding(queue.cursor):
                number, owner = queue.cursor.number, queue.holder
                self._stored.discard(Discard(queue.cursor, number, late, Loss.TOO_OLD, ends=False, owner=owner))

    def _sweep(self, now: int) -> None:
        """Look for messages that have expired, a part at a time; queues take turns."""
        left, queues = SWEPT_ROWS, list(self._named.values())
        first, self._swept = self._swept % max(1, len(queues)), self._swept + 1
        for queue in queues[first:] + queues[:first]:
            if left <= 0:
                break
            if queue.expiries is not None and not self._stored.is_discarding(queue.cursor):
                left -= queue.expiries.sweep(self._deliveries, left, now)

    def _recall(self, queue: NamedQueue) -> None:
        due = self.redeliveries.recall(queue.cursor)
        queue.consumers.came_back(due)
        if queue.groups is not None:
            queue.groups.due(due)

    # --- messages ----------------------------------------------------------------------------------------------------

    def admit(
        self, batch: Batch, source: Session, outbox: Outbox, now: int
    ) -> list[tuple[NamedQueue | OutgoingQueue, Rows]]:
        """Make the queues that a batch is for, before anything of it is accepted; return the rows of each.

        For a queue of another broker, that is the outgoing queue.

        The outbox says why the batch must be refused, if nothing can be stored, or a queue is full and its publisher
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
        named = list(rows_by_name(batch, rows))
        names = {name for name, _ in named}
        admitted = [(self._target(name, source.principal, now, names), mine) for name, mine in named]
        refusals = (self._refusal(queue, source, now) for queue, _ in admitted)
        outbox.unstorable = next(filter(None, refusals), "")
        # Last, because new queues take room too.
        if not outbox.unstorable and (refusal := self._stored.refusal_of(batch, rows)):
            outbox.unstorable = f"what is sent to a queue cannot be stored: {refusal}"
        return admitted

    def _target(self, name: str, principal: str, now: int, names: set[str]) -> NamedQueue | OutgoingQueue:
        """Return where messages to a queue are stored: in it, or in the outgoing queue if another broker has it.

        `names` are all queues that the batch is for.
        """
        peers = self._core.peers
        if name in self._named or peers is None or not (home := self._core.homes.elsewhere(name)):
            return self.named(name, principal, now)
        check_name(name)
        return peers.outgoing.named(name, home, principal, names)

    def _refusal(self, queue: NamedQueue | OutgoingQueue, source: Session, now: int) -> str:
        """Return why a queue refuses a publisher; empty if it accepts or pauses it."""
        stored, settings = self._stored, self._log.settings
        if queue.holder.outgoing is not None:
            assert self._core.peers is not None
            if refusal := self._core.peers.outgoing.refusal(queue.holder.outgoing, now):
                return refusal
        if not stored.is_full(queue.holder) or self._deliveries.can_pause(source, queue.holder):
            return ""
        why = f"the store is nearly full (store.max_bytes is {settings.max_bytes:,})"
        if stored.is_over(queue.holder):
            limit = settings.subscription_bytes
            why = f"it has {queue.cursor.bytes:,} bytes (store.subscription_bytes is {limit:,})"
        return (
            f"the queue {queue.name!r} is full: {why}, and this session cannot be paused because it acknowledges "
            "messages over the same connection; send again later, or over another connection"
        )

    def enqueue(
        self,
        batch: Batch,
        admitted: Sequence[tuple[NamedQueue | OutgoingQueue, Rows]],
        source: Session | None,
        outbox: Outbox,
        now: int,
    ) -> Batch:
        """Store the rows of a batch that are for queues, as `admit` returned them; return the others."""
        is_queued = (batch.envelopes[:, FLAGS] & QUEUED) != 0
        kept = [(queue.holder, self._deliveries.enqueue(queue.holder, batch, rows, now)) for queue, rows in admitted]
        if self._stored.storing:
            self._deliveries.flush_stored(batch, source, outbox, now, None)
            for holder, rows in () if self._stored.lack else kept:
                if holder.queue is not None:
                    self.note_expiry(holder.queue, batch, rows, self._stored.record)
                if holder.outgoing is not None and len(rows):
                    assert self._core.peers is not None
                    self._core.peers.outgoing.accepted(holder.outgoing, batch, rows, source, now)
        return batch.take(np.flatnonzero(~is_queued))

    def note_expiry(self, queue: NamedQueue, batch: Batch, rows: Rows, record: int) -> None:
        """Remember when rows expire that were stored for a queue in a record."""
        if queue.expiries is not None and any_expires(batch.envelopes):
            queue.expiries.stored(record, batch.envelopes[rows, EXPIRY])

    # --- consumers ---------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, key: str, name: str, asked: ConsumerTerms, now: int) -> Subscription:
        """Let a session consume a queue, here or at another broker; `offer` then delivers what waits here.

        Raises:
            BrokerError: the name is not valid for a queue, or its queue cannot be reached from here; a limit is
                reached; the policy refuses.
            LimitError: the index is full.
            SelectorError, TopicError: a text does not parse.
        """
        peers = self._core.peers
        if name not in self._named and peers is not None and (home := self._core.homes.elsewhere(name)):
            check_name(name)
            return peers.consumers.subscribe(session, key, name, home, asked, now)
        self._core.check_key(session, key)
        check_topic(name)
        destination = QUEUE_PREFIX + name
        selector = self._core.allowed(session, name, asked.selector, queued=True)
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
                f"the consumers of the queue {queue.name!r} have {MAX_PROFILES} different selectors, the limit "
                "(MAX_PROFILES); use one of theirs, or several queues"
            )
        # Dead letters keep the destination that they were sent to.
        pattern = None if self.returns.is_dead_letter(queue.name) else TopicPattern.parse(queue.name)
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
        """Remove consumers, all at once: what they have not acknowledged returns, and goes to others."""
        queues = self._remove(consumers, now)
        for queue in queues:
            self.dispatch.offer(queue, outbox, now)

    def _remove(self, consumers: Sequence[Subscription], now: int) -> list[NamedQueue]:
        """Take consumers from their queues, but offer nothing yet: others of them may leave too."""
        queues: dict[int, NamedQueue] = {}
        for subscription in consumers:
            queue = subscription.queue
            assert queue is not None
            queues[queue.cursor.number] = queue
            del subscription.session.subscriptions[subscription.key]
            profile = queue.consumers.remove(subscription.number)
            self._core.budgets.remove(subscription)
            if profile.members:
                self._pass_on_work(profile, subscription)
            elif profile.selector:
                self._index.remove((queue.cursor.number, profile.selector))
        self._take_back(consumers, now)
        for queue in queues.values():
            if not len(queue.consumers):
                self._log.detach(queue.cursor, returns=False)
        return list(queues.values())

    def _take_back(self, consumers: Sequence[Subscription], now: int) -> None:
        """Take what consumers that are gone have not acknowledged, queue by queue: there may be thousands of them."""
        returned: dict[int, tuple[NamedQueue, dict[int, int]]] = {}
        for subscription in consumers:
            rows, subscription.unacknowledged = subscription.unacknowledged, {}
            if not rows:
                continue
            if subscription.guest is not None:
                self.returns.note_way_back(rows, subscription.guest.broker, now)
            queue = subscription.queue
            assert queue is not None
            together = returned.setdefault(queue.cursor.number, (queue, {}))[1]
            if together.keys().isdisjoint(rows):
                together.update(rows)
            else:
                # The same message at two places, for two of them.
                self.returns.came_back(queue, rows, now, refused=False)
        for queue, together in returned.values():
            self.returns.came_back(queue, together, now, refused=False)

    def _pass_on_work(self, profile: ConsumerProfile, subscription: Subscription) -> None:
        """Move the matching cost of a consumer that is gone to another one with the same selector."""
        if subscription.work:
            heir = next(iter(profile.members.values())).subscription
            size, work = heir.bytes, heir.work + subscription.work
            self._core.budgets.remove(heir)
            self._core.budgets.add(heir, size, work)

    # --- delivery ----------------------------------------------------------------------------------------------------

    def offer(self, subscription: Subscription, outbox: Outbox, now: int) -> int:
        """Deliver what can be delivered after something has happened to a consumer; return how many messages."""
        queue = subscription.queue
        assert queue is not None
        return self.dispatch.offer(queue, outbox, now)

    def stored(self, holder: Subscription, outbox: Outbox, now: int) -> None:
        """Continue with a queue whose rows were written or read."""
        assert holder.queue is not None
        self.dispatch.offer(holder.queue, outbox, now)

    def drainable(self, subscription: Subscription) -> bool:
        """Return whether `offer` may have something for a consumer."""
        queue = subscription.queue
        return queue is not None and not queue.idle and bool(queue.consumers.open())

    # --- coming back -------------------------------------------------------------------------------------------------

    def due(self, cursor: int, places: Rows, outbox: Outbox, now: int) -> bool:
        """Deliver returned rows whose time has come; return whether they belong to a queue."""
        queue = self._by_cursor.get(cursor)
        if queue is None:
            return False
        queue.consumers.came_back(places)
        if queue.groups is not None:
            queue.groups.due(places)
        self.dispatch.offer(queue, outbox, now)
        return True


def is_queue(terms: bytes) -> bool:
    """Return whether the terms of a cursor are those of a queue."""
    try:
        msgspec.msgpack.decode(terms, type=QueueTerms)
    except msgspec.DecodeError:
        return False
    return True
