"""The local subscriptions in the index of a broker, and what matches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.budgets import estimated_bytes
from postroad.broker.row_groups import Grouping, any_expires
from postroad.broker.turns import MAX_TURN_BYTES, Deferred
from postroad.tracking.reasons import Detour, Loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.former_versions import PutMatch
    from postroad.broker.outbox import Outbox
    from postroad.broker.sessions import Session, Subscription
    from postroad.broker.standing_interest import StandingInterest
    from postroad.messages import Batch
    from postroad.selectors import Selector, TopicPattern

__all__ = ["Residents"]

# A turn counts bytes. A delivery takes as long as writing so many, and letting rows wait as long as writing more: they
# are copied into a queue, or a subscription gets its place in the store.
DELIVERED_BYTES = 8 * 1024
WAITING_BYTES = 64 * 1024
# Larger rows are spooled at once: with a later turn, the store would keep them once more.
SPOOLED_BYTES = 256 * 1024


class Residents:
    """Subscriptions by their slots in the index.

    Args:
        core: the broker.
        deliveries: delivers rows to them.
    """

    def __init__(self, core: Broker, deliveries: Deliveries) -> None:
        self._core = core
        self._deliveries = deliveries
        self._grouping = Grouping()
        self._by_slot: list[Subscription | None] = []

    def enter(self, subscription: Subscription, selector: Selector | None, pattern: TopicPattern, now: int) -> None:
        """Let messages match a subscription from now on.

        Raises:
            BrokerError, LimitError: that would be too much for its session, or for the broker.
        """
        topic = subscription.topic
        size = estimated_bytes(subscription.key, topic, selector)
        self._core.budgets.check_bytes(subscription.session, size)
        self._core.budgets.enter(self._core.index, subscription, selector, pattern, size)
        self.place_at(subscription.slot, subscription)
        if (standing := self._standing(subscription)) is not None:
            standing.add(subscription.number, topic, selector)
        elif self._core.relay is not None:
            self._core.relay.subscribed(subscription.number, topic, selector)
        subscription.selector = "" if selector is None else str(selector)
        if not subscription.retains:
            principal, text = subscription.session.principal, subscription.selector
            self._core.recorder.subscribed(subscription.number, principal, topic, text, now)

    def enter_again(self, wanted: Mapping[int, tuple[str, Selector | None]]) -> None:
        """The index was filled again without local subscriptions: enter all of them, each under a new slot.

        Args:
            wanted: topic and selector of each, by its number.
        """
        local, self._by_slot = [one for one in self._by_slot if one is not None], []
        for subscription in local:
            topic, selector = wanted[subscription.number]
            subscription.slot = self._core.index.add(subscription.number, selector, topic)
            self.place_at(subscription.slot, subscription)

    def _standing(self, subscription: Subscription) -> StandingInterest | None:
        """Return where other brokers learn what it wants, if they put it here; None if it comes over links."""
        if not _comes_by_put(subscription):
            return None
        return None if self._core.peers is None else self._core.peers.standing

    def since(self, slot: int) -> int:
        """Return the first state of the standing interest in which the subscription at a slot counts."""
        subscription = self._by_slot[slot]
        return 0 if subscription is None or subscription.durable is None else subscription.durable.since

    def place_at(self, slot: int, subscription: Subscription) -> None:
        """Let rows that match a slot of the index be a subscription's."""
        if slot >= len(self._by_slot):
            self._by_slot.extend([None] * (slot + 1 - len(self._by_slot)))
        self._by_slot[slot] = subscription

    def clear_at(self, slot: int) -> None:
        """Let a slot of the index be nobody's."""
        self._by_slot[slot] = None

    def leave(self, subscription: Subscription, now: int) -> None:
        """Let no message match a subscription from now on."""
        self._core.index.remove(subscription.number)
        self._core.budgets.remove(subscription)
        self.clear_at(subscription.slot)
        if (standing := self._standing(subscription)) is not None:
            standing.remove(subscription.number)
        elif self._core.relay is not None:
            self._core.relay.unsubscribed(subscription.number)
        self._core.recorder.unsubscribed(subscription.number, now)

    def move(self, subscription: Subscription, session: Session) -> None:
        """Move a subscription to another session; its cost counts for the new one."""
        size, work = subscription.bytes, subscription.work
        self._core.budgets.remove(subscription)
        subscription.session = session
        self._core.budgets.add(subscription, size, work)

    def deliver(
        self,
        batch: Batch,
        offsets: NDArray[np.int64],
        slots: NDArray[np.int32],
        source: Session | None,
        outbox: Outbox,
        now: int,
        consignment: Consignment | None = None,
    ) -> Deferred | None:
        """Deliver to each local subscription the rows that matched it; `source` is None for rows from a link.

        The consignment of the rows, if any, learns when rows that have to wait leave their queues. Returns who gets
        what in a later turn, because this one has given enough; None for nobody.
        """
        expires, deliveries = any_expires(batch.envelopes), self._deliveries
        stored, peers = deliveries.stored, self._core.peers
        # What durable subscriptions want of this comes, or came, from the broker where it entered.
        is_put = source is None and peers is not None and peers.standing is not None
        elsewhere: dict[Subscription, list[NDArray[np.int64]]] = {}
        repeated = stored.repeats(batch) if source is None and stored is not None and len(stored.recent) else None
        retained: list[NDArray[np.int64]] = []
        later: list[tuple[Subscription, NDArray[np.int64]]] = []
        groups = self._grouping.by_slot(offsets, slots, len(self._by_slot))
        # A product of two known numbers: if it is small enough, nothing has to be measured.
        most = len(groups) * (batch.buffer.nbytes + WAITING_BYTES)
        is_much = deliveries.in_turns and outbox.given + most > MAX_TURN_BYTES
        for slot, rows in groups:
            subscription = self._by_slot[slot]
            if subscription is None:
                # Its session is gone, and it leaves the index in a later turn.
                continue
            if subscription.outgoing is not None:
                if source is not None:
                    elsewhere.setdefault(subscription, []).append(rows)
                continue
            if is_put and _comes_by_put(subscription):
                continue
            if repeated is not None and (subscription.durable is not None or subscription.retains):
                assert stored is not None
                stored.repeated += int(repeated[rows].sum())
                rows = rows[~repeated[rows]]
            if expires:
                rows = deliveries.unexpired(subscription, batch, rows, now)
            if subscription.retains:
                retained.append(rows)
            if is_much and self._is_later(subscription, batch, rows, outbox):
                later.append((subscription, rows))
            else:
                deliveries.deliver(subscription, batch, rows, source, outbox, now, consignment)
        kept: list[tuple[Subscription, NDArray[np.int64]]] = []
        if elsewhere:
            # One broker may want a row for several reasons.
            kept = [(each, np.unique(np.concatenate(rows))) for each, rows in elsewhere.items()]
            for holder, rows in kept:
                deliveries.deliver(holder, batch, rows, source, outbox, now, None)
        if stored is not None and stored.storing:
            if retained:
                self._note_retained(batch, np.unique(np.concatenate(retained)), offsets, slots, now)
            deliveries.flush_stored(batch, source, outbox, now, consignment)
            self._stop(outbox, now)
            for holder, rows in () if stored.lack else kept:
                assert peers is not None
                assert holder.outgoing is not None
                peers.outgoing.accepted(holder.outgoing, batch, rows, None, now)
        return Deferred(batch, later) if later else None

    def deliver_deferred(
        self, deferred: Deferred, source: Session | None, outbox: Outbox, now: int, consignment: Consignment | None
    ) -> Deferred | None:
        """Deliver what earlier turns left, as far as this one goes; return the rest."""
        (batch, groups), deliveries, left = deferred, self._deliveries, None
        expires, stored = any_expires(batch.envelopes), deliveries.stored
        for at, (subscription, rows) in enumerate(groups):
            session = subscription.session
            is_there = self._core.session(session.number) is session
            if not is_there or session.subscriptions.get(subscription.key) is not subscription:
                deliveries.shed_closed += len(rows)
                self._core.recorder.shed(batch, rows, subscription.number, Loss.SUBSCRIPTION_ENDED, now)
                continue
            if expires:
                rows = deliveries.unexpired(subscription, batch, rows, now)
            if self._is_later(subscription, batch, rows, outbox):
                left = Deferred(batch, groups[at:])
                break
            deliveries.deliver(subscription, batch, rows, source, outbox, now, consignment)
        if stored is not None and stored.storing:
            deliveries.flush_stored(batch, source, outbox, now, consignment)
            self._stop(outbox, now)
        return left

    def _is_later(self, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], outbox: Outbox) -> bool:
        """Return whether a subscription gets rows in a later turn, because this one has given enough to all together.

        Large rows that are spooled are written once for all who get them now, so they wait for nothing.
        """
        deliveries = self._deliveries
        if subscription.stores or not len(rows):
            return False
        size = outbox.size_of(subscription, batch, len(rows))
        if not deliveries.waits(subscription):
            size = max(size, DELIVERED_BYTES)
        elif size <= SPOOLED_BYTES or not deliveries.must_spool(subscription):
            size = max(size, WAITING_BYTES)
        else:
            return False
        if outbox.given and outbox.given + size > MAX_TURN_BYTES:
            return True
        outbox.given += size
        return False

    def full_durable(self, matched: PutMatch) -> Subscription | None:
        """Return one of the durable subscriptions that want rows of a put and have as much in the store as they may."""
        stored = self._deliveries.stored
        assert stored is not None
        slots: list[int] = np.unique(matched.slots).tolist()
        for subscription in [*(self._by_slot[slot] for slot in slots), *(each for each, _ in matched.formers)]:
            if subscription is not None and subscription.durable is not None and stored.is_over(subscription):
                return subscription
        return None

    def store_put(
        self,
        batch: Batch,
        matched: PutMatch,
        reception: Subscription,
        outbox: Outbox,
        now: int,
    ) -> NDArray[np.int64]:
        """Store rows that another broker puts here, for the durable subscriptions and retained topics that want them.

        All rows are also stored for the reception of that broker, in the same record: the two are safe together.
        Returns their places there.
        """
        expires, deliveries = any_expires(batch.envelopes), self._deliveries
        stored = deliveries.stored
        assert stored is not None
        assert reception.cursor is not None
        retained: list[NDArray[np.int64]] = []
        for subscription, rows in self._wanted_of_put(matched):
            if expires:
                rows = deliveries.unexpired(subscription, batch, rows, now)
            if subscription.retains:
                retained.append(rows)
            deliveries.deliver(subscription, batch, rows, None, outbox, now, None)
        if retained:
            only = np.unique(np.concatenate(retained))
            for _, rows in matched.formers:
                only = np.setdiff1d(only, rows, assume_unique=True)
            self._note_retained(batch, only, matched.offsets, matched.slots, now)
        stored.store(reception, np.arange(len(batch)))
        deliveries.flush_stored(batch, None, outbox, now, None, can_refuse=True)
        # Before something else is noted in the store, which would close the record.
        places = stored.log.last_places(reception.cursor)
        self._stop(outbox, now)
        return places

    def _wanted_of_put(self, matched: PutMatch) -> list[tuple[Subscription, NDArray[np.int64]]]:
        """Return who gets which rows of a put, each once, whichever of its versions want a row."""
        groups = self._grouping.by_slot(matched.offsets, matched.slots, len(self._by_slot))
        found = [(each, rows) for slot, rows in groups if (each := self._by_slot[slot]) and _comes_by_put(each)]
        if not matched.formers:
            return found
        wanted = dict(found)
        for subscription, rows in matched.formers:
            wanted[subscription] = np.union1d(wanted[subscription], rows) if subscription in wanted else rows
        return list(wanted.items())

    def _stop(self, outbox: Outbox, now: int) -> None:
        """Stop the durable subscriptions that are over their limit."""
        if outbox.stops:
            assert self._core.durables is not None
            self._core.durables.stop(outbox.stops, now)
            outbox.stops = []

    def _note_retained(
        self, batch: Batch, rows: NDArray[np.int64], offsets: NDArray[np.int64], slots: NDArray[np.int32], now: int
    ) -> None:
        """Record retained rows that matched nobody: subscribers may still get them later."""
        wanted = self._core.wanted(offsets, slots)
        self._core.recorder.dropped(batch, rows[wanted[rows] == wanted[rows + 1]], 0, Detour.RETAINED, now)


def _comes_by_put(subscription: Subscription) -> bool:
    """Return whether other brokers put what a subscription wants here, if they know what is wanted.

    One that began in the past continues with what the retained topic gets: over links, some would come twice, and some
    that entered elsewhere before its interest was known there would be in neither part.
    """
    return subscription.durable is not None or subscription.retains or subscription.has_history
