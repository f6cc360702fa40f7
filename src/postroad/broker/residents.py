"""The local subscriptions in the index of a broker, and what matches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.budgets import estimated_bytes
from postroad.broker.row_groups import Grouping, any_expires
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.outbox import Outbox
    from postroad.broker.sessions import Session, Subscription
    from postroad.messages import Batch
    from postroad.selectors import Selector, TopicPattern

__all__ = ["Residents"]


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
        self._place(subscription)
        if self._core.relay is not None:
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
            self._place(subscription)

    def _place(self, subscription: Subscription) -> None:
        if subscription.slot >= len(self._by_slot):
            self._by_slot.extend([None] * (subscription.slot + 1 - len(self._by_slot)))
        self._by_slot[subscription.slot] = subscription

    def leave(self, subscription: Subscription, now: int) -> None:
        """Let no message match a subscription from now on."""
        self._core.index.remove(subscription.number)
        self._core.budgets.remove(subscription)
        self._by_slot[subscription.slot] = None
        if self._core.relay is not None:
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
    ) -> None:
        """Deliver to each local subscription the rows that matched it; `source` is None for rows from a link.

        The consignment of the rows, if any, learns when rows that have to wait leave their queues.
        """
        expires, deliveries = any_expires(batch.envelopes), self._deliveries
        stored = deliveries.stored
        repeated = stored.repeats(batch) if source is None and stored is not None and len(stored.recent) else None
        retained: list[NDArray[np.int64]] = []
        for slot, rows in self._grouping.by_slot(offsets, slots, len(self._by_slot)):
            subscription = self._by_slot[slot]
            assert subscription is not None
            if repeated is not None and (subscription.durable is not None or subscription.retains):
                assert stored is not None
                stored.repeated += int(repeated[rows].sum())
                rows = rows[~repeated[rows]]
            if expires:
                rows = deliveries.unexpired(subscription, batch, rows, now)
            if subscription.retains:
                retained.append(rows)
            deliveries.deliver(subscription, batch, rows, source, outbox, now, consignment)
        if stored is not None and stored.is_storing:
            if retained:
                self._note_retained(batch, np.unique(np.concatenate(retained)), offsets, slots, now)
            deliveries.flush_stored(batch, source, outbox, now, consignment)
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
