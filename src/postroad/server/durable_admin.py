"""Durable subscriptions as an operator sees them: list, look at, purge, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from postroad.broker import Outbox
from postroad.server.http import json_response, text_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Subscription
    from postroad.server.http import HttpResponse, Request

__all__ = ["DURABLE", "DurableAdmin", "DurableStatus"]

DURABLE = "/subscriptions"
MESSAGES = "messages"
# Of whoever asks, in the record.
MAX_BY_CHARACTERS = 64


class DurableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One durable subscription. Counts since the broker began, except where a field says "now"."""

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


def given_up_by(request: Request, purges: bool) -> str:
    """Why messages are given up, for the record: who asked for it, and for what."""
    by = "".join(each for each in request.query.get("by", "") if each.isprintable())[:MAX_BY_CHARACTERS]
    return f"{'purged' if purges else 'deleted'} by {by or 'the admin endpoint'}"


class DurableAdmin:
    """Answers requests about durable subscriptions.

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
        durables = self._core.durables
        if durables is None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the store is not open yet; ask again")
        parts = [unquote(part) for part in request.path.removeprefix(DURABLE).split("/")[1:]]
        if not parts:
            if request.method != "GET":
                return text_response(HTTPStatus.METHOD_NOT_ALLOWED, "name a subscription: /subscriptions/CLIENT/NAME")
            return json_response({"subscriptions": [self._status(each) for each in durables.listed()]})
        found = durables.find(*parts[:2]) if len(parts) >= 2 else None
        if found is None or parts[2:] not in ([], [MESSAGES]):
            text = f"there is no durable subscription {'/'.join(parts)}; {DURABLE} lists them as CLIENT/NAME"
            return text_response(HTTPStatus.NOT_FOUND, text)
        if request.method == "GET":
            return json_response(self._status(found))
        return self._given_up(found, request, purges=len(parts) > 2)

    def _given_up(self, subscription: Subscription, request: Request, purges: bool) -> HttpResponse:
        durables, outbox = self._core.durables, Outbox()
        assert durables is not None
        reason = given_up_by(request, purges)
        if purges:
            count = durables.purge(subscription, reason)
        else:
            count = durables.delete(subscription, reason, outbox, self._clock())
        self._carry_out(outbox)
        return json_response({"messages": count, "reason": reason})

    def _status(self, subscription: Subscription) -> DurableStatus:
        terms, cursor, session = subscription.durable, subscription.cursor, subscription.session
        assert terms is not None
        assert cursor is not None
        assert self._core.store is not None
        oldest = self._core.store.log.oldest(cursor)
        return DurableStatus(
            number=subscription.number,
            client=terms.client,
            name=terms.name,
            principal=terms.principal,
            topic=terms.topic,
            selector=terms.selector,
            created=terms.created,
            stopped=terms.stopped,
            session_now=session.number or None,
            ack=subscription.ack_mode.value if session.number else None,
            waiting_messages_now=subscription.waiting.stored,
            unacknowledged_now=len(subscription.unacknowledged),
            stored_bytes_now=cursor.bytes,
            oldest_ms_now=0 if oldest is None else max(0, self._clock() - oldest),
            delivered=subscription.delivered,
            acknowledged=subscription.acknowledged,
            refused=subscription.refused,
            shed=subscription.shed,
            expired=subscription.expired,
        )
