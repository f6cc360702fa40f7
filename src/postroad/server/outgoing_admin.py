"""Messages that wait here for queues and durable subscriptions of other brokers, for operators: list, show, purge."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

import msgspec

from postroad.broker import OutgoingQueue
from postroad.server.http import text_response
from postroad.server.stored_admin import StoredAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker import Outbox
    from postroad.server.http import HttpResponse

__all__ = ["OUTGOING", "OutgoingAdmin", "OutgoingStatus"]

OUTGOING = "/outgoing"


class OutgoingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Messages for one queue of another broker, or for all its durable subscriptions.

    Attributes:
        name: of the queue; `*` and the number of the broker for durable subscriptions.
        home: the broker that they are for.
        durable: they are for durable subscriptions and retained topics.
        principal: who sent the first of them.
        home_reached_now: the home answers.
        waiting_messages_now: what was not sent there.
        unconfirmed_messages_now: what was, and is not stored there as far as is known here.
        stored_bytes_now: what both take.
        oldest_ms_now: how long the oldest of them has been here.
        trouble: why the home took nothing the last time; empty if it did.
        purged: how many messages an operator has given up, since the broker began.
    """

    name: str
    home: int
    durable: bool
    principal: str
    home_reached_now: bool
    waiting_messages_now: int
    unconfirmed_messages_now: int
    stored_bytes_now: int
    oldest_ms_now: int
    trouble: str
    purged: int


class OutgoingAdmin(StoredAdmin[OutgoingQueue]):
    """Answers requests about messages for queues of other brokers."""

    path: ClassVar[str] = OUTGOING
    field: ClassVar[str] = "outgoing"
    noun: ClassVar[str] = "outgoing queue"
    names: ClassVar[tuple[str, ...]] = ("NAME",)

    def _items(self) -> Iterable[OutgoingQueue] | None:
        if self._core.store is None:
            return None
        if self._core.peers is None:
            return []
        outgoing = self._core.peers.outgoing
        return [each for each in (*outgoing.listed(), *outgoing.for_durables()) if each.messages]

    def _find(self, *name: str) -> OutgoingQueue | None:
        if self._core.peers is None:
            return None
        outgoing = self._core.peers.outgoing
        # No name of a queue has a wildcard.
        found = [each for each in outgoing.for_durables() if name == (_name(each),)]
        return found[0] if found else outgoing.find(*name)

    def _purge(self, item: OutgoingQueue, reason: str) -> int:
        assert self._core.peers is not None
        return self._core.peers.outgoing.purge(item, reason)

    def _delete(self, item: OutgoingQueue, reason: str, outbox: Outbox) -> int | HttpResponse:
        what = "their subscriptions are" if item.is_for_durables else f"the queue {item.name!r} is"
        text = (
            f"{what} at broker {item.home}: delete it there; DELETE {OUTGOING}/NAME/messages gives up what waits here "
            "for it"
        )
        return text_response(HTTPStatus.METHOD_NOT_ALLOWED, text)

    def _status(self, item: OutgoingQueue) -> OutgoingStatus:
        assert self._core.store is not None
        assert self._core.peers is not None
        log = self._core.store.log
        return OutgoingStatus(
            name=_name(item),
            home=item.home,
            durable=item.is_for_durables,
            principal=item.principal,
            home_reached_now=self._core.peers.is_open(item.home),
            waiting_messages_now=log.unread(item.cursor),
            unconfirmed_messages_now=item.unconfirmed,
            stored_bytes_now=item.cursor.bytes,
            oldest_ms_now=self._age(log.oldest(item.cursor)),
            trouble=item.trouble,
            purged=item.holder.shed,
        )


def _name(item: OutgoingQueue) -> str:
    """Return the name in paths."""
    return f"*{item.home}" if item.is_for_durables else item.name
