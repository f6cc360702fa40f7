"""Messages that wait here for queues of other brokers, as an operator sees them: list, look at, purge."""

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
    """Messages for one queue of another broker.

    Attributes:
        name: of the queue.
        home: the broker that has it.
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
        outgoing = [] if self._core.peers is None else self._core.peers.outgoing.listed()
        return [each for each in outgoing if each.messages]

    def _find(self, *name: str) -> OutgoingQueue | None:
        return None if self._core.peers is None else self._core.peers.outgoing.find(*name)

    def _purge(self, item: OutgoingQueue, reason: str) -> int:
        assert self._core.peers is not None
        return self._core.peers.outgoing.purge(item, reason)

    def _delete(self, item: OutgoingQueue, reason: str, outbox: Outbox) -> int | HttpResponse:
        text = (
            f"the queue {item.name!r} is at broker {item.home}: delete it there; DELETE {OUTGOING}/NAME/messages "
            "gives up what waits here for it"
        )
        return text_response(HTTPStatus.METHOD_NOT_ALLOWED, text)

    def _status(self, item: OutgoingQueue) -> OutgoingStatus:
        assert self._core.store is not None
        assert self._core.peers is not None
        log = self._core.store.log
        return OutgoingStatus(
            name=item.name,
            home=item.home,
            principal=item.principal,
            home_reached_now=self._core.peers.is_open(item.home),
            waiting_messages_now=log.unread(item.cursor),
            unconfirmed_messages_now=item.unconfirmed,
            stored_bytes_now=item.cursor.bytes,
            oldest_ms_now=self._age(log.oldest(item.cursor)),
            trouble=item.trouble,
            purged=item.holder.shed,
        )
