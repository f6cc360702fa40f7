"""Queues as an operator sees them: list, look at, purge, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from postroad.broker import Outbox
from postroad.server.durable_admin import MESSAGES, given_up_by
from postroad.server.http import json_response, text_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, NamedQueue
    from postroad.server.http import HttpResponse, Request

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


class QueueAdmin:
    """Answers requests about queues.

    Args:
        core: the broker.
        carry_out: carries out what the core says.
        clock: the time in ms.
    """

    def __init__(self, core: Broker, carry_out: Callable[[Outbox], None], clock: Callable[[], int]) -> None:
        self._core = core
        self._carry_out = carry_out
        self._clock = clock

    def page(self, request: Request) -> HttpResponse:
        """GET lists or shows; DELETE deletes one, or its messages."""
        queues = self._core.queues
        if queues is None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the store is not open yet; ask again")
        parts = [unquote(part) for part in request.path.removeprefix(QUEUES).split("/")[1:]]
        if not parts:
            if request.method != "GET":
                return text_response(HTTPStatus.METHOD_NOT_ALLOWED, f"name a queue: {QUEUES}/NAME")
            return json_response({"queues": [self._status(each) for each in queues.listed()]})
        found = queues.find(parts[0])
        if found is None or parts[1:] not in ([], [MESSAGES]):
            text = f"there is no queue {'/'.join(parts)}; {QUEUES} lists them"
            return text_response(HTTPStatus.NOT_FOUND, text)
        if request.method == "GET":
            return json_response(self._status(found))
        purges, outbox = len(parts) > 1, Outbox()
        reason = given_up_by(request, purges)
        count = queues.purge(found, reason) if purges else queues.delete(found, reason, outbox, self._clock())
        self._carry_out(outbox)
        return json_response({"messages": count, "reason": reason})

    def _status(self, queue: NamedQueue) -> QueueStatus:
        core, cursor = self._core, queue.cursor
        assert core.store is not None
        assert core.redeliveries is not None
        log = core.store.log
        oldest, delayed = log.oldest(cursor), core.redeliveries.waiting(cursor)
        return QueueStatus(
            number=cursor.number,
            name=queue.name,
            principal=queue.terms.principal,
            created=queue.terms.created,
            consumers_now=len(queue.consumers),
            waiting_messages_now=log.unread(cursor),
            in_flight_messages_now=sum(len(each.subscription.unacknowledged) for each in queue.consumers.listed()),
            delayed_messages_now=delayed,
            stored_bytes_now=cursor.bytes,
            oldest_ms_now=0 if oldest is None else max(0, self._clock() - oldest),
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
