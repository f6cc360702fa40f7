"""Queues for operators: list, show, purge, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from postroad.broker import NamedQueue
from postroad.server.stored_admin import StoredAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker import Outbox

__all__ = ["QUEUES", "QueueAdmin", "QueueStatus"]

QUEUES = "/queues"


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of a queue."""

    session: int
    subscription: str
    principal: str
    selector: str
    ack: str
    prefetch: int
    exclusive: bool
    unacknowledged_now: int
    delivered: int


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. Counts since the broker began, except where a field says "now"."""

    number: int
    name: str
    principal: str
    created: int
    consumers_now: int
    waiting_messages_now: int
    in_flight_messages_now: int
    delayed_messages_now: int
    stored_bytes_now: int
    oldest_ms_now: int
    dead_lettered: int
    expired: int
    shed: int
    consumers: list[ConsumerStatus]


class QueueAdmin(StoredAdmin[NamedQueue]):
    """Answers requests about queues."""

    path: ClassVar[str] = QUEUES
    field: ClassVar[str] = "queues"
    noun: ClassVar[str] = "queue"
    names: ClassVar[tuple[str, ...]] = ("NAME",)

    def _items(self) -> Iterable[NamedQueue] | None:
        return None if self._core.queues is None else self._core.queues.listed()

    def _find(self, *name: str) -> NamedQueue | None:
        assert self._core.queues is not None
        return self._core.queues.find(*name)

    def _purge(self, item: NamedQueue, reason: str) -> int:
        assert self._core.queues is not None
        return self._core.queues.purge(item, reason)

    def _delete(self, item: NamedQueue, reason: str, outbox: Outbox) -> int:
        assert self._core.queues is not None
        return self._core.queues.delete(item, reason, outbox, self._clock())

    def _status(self, item: NamedQueue) -> QueueStatus:
        core, queue, cursor = self._core, item, item.cursor
        assert core.store is not None
        assert core.redeliveries is not None
        log = core.store.log
        return QueueStatus(
            number=cursor.number,
            name=queue.name,
            principal=queue.terms.principal,
            created=queue.terms.created,
            consumers_now=len(queue.consumers),
            waiting_messages_now=log.unread(cursor),
            in_flight_messages_now=sum(len(each.subscription.unacknowledged) for each in queue.consumers.listed()),
            delayed_messages_now=core.redeliveries.waiting(cursor),
            stored_bytes_now=cursor.bytes,
            oldest_ms_now=self._age(log.oldest(cursor)),
            dead_lettered=queue.dead_lettered,
            expired=queue.holder.expired,
            shed=queue.holder.shed,
            consumers=[
                ConsumerStatus(
                    session=each.subscription.session.number,
                    subscription=each.subscription.key,
                    principal=each.subscription.session.principal,
                    selector=each.subscription.selector,
                    ack=each.subscription.ack_mode.value,
                    prefetch=each.prefetch,
                    exclusive=each.exclusive,
                    unacknowledged_now=len(each.subscription.unacknowledged),
                    delivered=each.subscription.delivered,
                )
                for each in queue.consumers.listed()
            ],
        )
