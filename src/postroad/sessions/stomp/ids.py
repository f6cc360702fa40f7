"""Headers for clients that give their own ids (`protocols.stomp.id_headers`)."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from postroad.broker import BrokerError, Outbox
from postroad.protocols.stomp.id_headers import (
    BROKER_HEADER,
    IDS_BY_BROKER,
    IDS_BY_CLIENT,
    IDS_HEADER,
    LAST_HEADER,
    PUBLISHER_HEADER,
    SERVER_TIME_HEADER,
    TOKEN_HEADER,
    TOLERANCE_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.broker import AssigningPublisher, Session
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["CORRECTION_MS", "assigned_ids", "no_id"]

# 128 random bits cannot be guessed.
TOKEN_BYTES = 16
# A wrong clock is wrong for every message: one correction a second is enough.
CORRECTION_MS = 1_000

_NUMBER = re.compile(r"[0-9]{1,10}")


def asks_for_ids(headers: Mapping[str, str]) -> bool:
    """Return whether a CONNECT says that the client gives its own ids.

    Raises:
        BrokerError: the header has an unknown value.
    """
    asked = headers.get(IDS_HEADER, IDS_BY_BROKER)
    if asked not in (IDS_BY_CLIENT, IDS_BY_BROKER):
        raise BrokerError(f"the header {IDS_HEADER} is {asked!r:.80}; it can be {IDS_BY_CLIENT} or {IDS_BY_BROKER}")
    return asked == IDS_BY_CLIENT


def claimed_publisher(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the number and the token of the publisher that the client was, as its CONNECT says."""
    number, token = headers.get(PUBLISHER_HEADER, ""), headers.get(TOKEN_HEADER)
    if token is None or _NUMBER.fullmatch(number) is None:
        return None
    return int(number), token


def assigned_ids(headers: Mapping[str, str], dispatcher: Dispatcher, session: Session) -> tuple[dict[str, str], Outbox]:
    """Let a client give its own ids if its CONNECT asks to; return the headers that tell it how, and an outbox.

    Raises:
        BrokerError: the CONNECT is wrong.
    """
    if not asks_for_ids(headers):
        return {}, Outbox()
    core, now = dispatcher.core, dispatcher.clock()
    publisher, outbox = core.assigns_ids(session, secrets.token_hex(TOKEN_BYTES), now, claimed_publisher(headers))
    return id_terms(publisher, core.number, core.skew_tolerance_ms, now), outbox


def id_terms(publisher: AssigningPublisher, broker: int, tolerance_ms: int, now: int) -> dict[str, str]:
    """Return the headers of CONNECTED for a client that gives its own ids."""
    terms = {
        PUBLISHER_HEADER: str(publisher.number),
        BROKER_HEADER: str(broker),
        TOKEN_HEADER: publisher.token,
        TOLERANCE_HEADER: str(tolerance_ms),
        SERVER_TIME_HEADER: str(now),
    }
    if publisher.last_id is not None:
        terms[LAST_HEADER] = str(publisher.last_id)
    return terms


def no_id(given: str | None) -> str:
    """Return why a message without an id is refused, from what it had instead."""
    if given is None:
        return f"this connection gives its own ids ({IDS_HEADER}:{IDS_BY_CLIENT}), so each message needs a message-id"
    return (
        f"message-id {given!r} is not a message id; write publisher-broker-time-counter in lower-case hexadecimal, "
        "8-8-12-4 digits"
    )
