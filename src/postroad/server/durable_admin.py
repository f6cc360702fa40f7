"""Durable subscriptions for operators: list, show, purge, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from postroad.broker import Subscription
from postroad.server.stored_admin import StoredAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker import Outbox

__all__ = ["DURABLE", "DurableAdmin", "DurableStatus"]

DURABLE = "/subscriptions"


class DurableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One durable item. Counts since the broker began, except where a field says "now"."""

    number: int
    client: str
    name: str
    principal: str
    topic: str
    selector: str
    created: int
    stopped: int
    session_now: int | None
    ack: str | None
    waiting_messages_now: int
    unacknowledged_now: int
    stored_bytes_now: int
    oldest_ms_now: int
    delivered: int
    acknowledged: int
    refused: int
    shed: int
    expired: int


class DurableAdmin(StoredAdmin[Subscription]):
    """Answers requests about durable subscriptions."""

    path: ClassVar[str] = DURABLE
    field: ClassVar[str] = "subscriptions"
    noun: ClassVar[str] = "durable subscription"
    names: ClassVar[tuple[str, ...]] = ("CLIENT", "NAME")

    def _items(self) -> Iterable[Subscription] | None:
        return None if self._core.durables is None else self._core.durables.listed()

    def _find(self, *name: str) -> Subscription | None:
        assert self._core.durables is not None
        return self._core.durables.find(*name)

    def _purge(self, item: Subscription, reason: str) -> int:
        assert self._core.durables is not None
        return self._core.durables.purge(item, reason)

    def _delete(self, item: Subscription, reason: str, outbox: Outbox) -> int:
        assert self._core.durables is not None
        return self._core.durables.delete(item, reason, outbox, self._clock())

    def _status(self, item: Subscription) -> DurableStatus:
        terms, cursor, session = item.durable, item.cursor, item.session
        assert terms is not None
        assert cursor is not None
        assert self._core.store is not None
        return DurableStatus(
            number=item.number,
            client=terms.client,
            name=terms.name,
            principal=terms.principal,
            topic=terms.topic,
            selector=terms.selector,
            created=terms.created,
            stopped=terms.stopped,
            session_now=session.number or None,
            ack=item.ack_mode.value if session.number else None,
            waiting_messages_now=item.waiting.stored,
            unacknowledged_now=len(item.unacknowledged),
            stored_bytes_now=cursor.bytes,
            oldest_ms_now=self._age(self._core.store.log.oldest(cursor)),
            delivered=item.delivered,
            acknowledged=item.acknowledged,
            refused=item.refused,
            shed=item.shed,
            expired=item.expired,
        )
