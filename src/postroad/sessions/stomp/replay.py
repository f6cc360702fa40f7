"""Where a replay begins: the headers `from` and `after` of SUBSCRIBE."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from postroad.broker import BrokerError, ReplayStart
from postroad.errors import PostroadError
from postroad.messages import MessageId

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["replay_start"]

FROM_HEADER, AFTER_HEADER = "from", "after"
FIRST = "first"
# Milliseconds since 1970, as ids have them: 48 bits have 15 digits.
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{12}-[0-9a-f]{4}")
_LARGEST_TIME = 2**48 - 1


def replay_start(headers: Mapping[str, str]) -> ReplayStart | None:
    """Return where a subscription begins; None if it begins with new messages.

    Raises:
        BrokerError: a header does not name a valid start.
    """
    if FROM_HEADER in headers and AFTER_HEADER in headers:
        raise BrokerError("from and after contradict each other: leave one of them out")
    if AFTER_HEADER in headers:
        return ReplayStart(id=_message(headers[AFTER_HEADER]), after=True)
    text = headers.get(FROM_HEADER)
    if text is None:
        return None
    if text == FIRST:
        return ReplayStart()
    if _MILLISECONDS.fullmatch(text):
        return ReplayStart(since=_checked(int(text), text))
    if _ID.fullmatch(text):
        return ReplayStart(id=_message(text))
    return ReplayStart(since=_moment(text))


def _message(text: str) -> MessageId:
    try:
        return MessageId.parse(text)
    except PostroadError as error:
        raise BrokerError(f"after: {text!r} is not a message id: {error}") from error


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BrokerError(
            f"from: {text!r} is not {FIRST}, a time (2026-11-16T08:00:00Z, or milliseconds since 1970) or a message id"
        ) from None
    # Without a zone it is UTC, like all times of brokers.
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return _checked(int(moment.timestamp() * 1_000), text)


def _checked(time: int, text: str) -> int:
    if not 0 <= time <= _LARGEST_TIME:
        raise BrokerError(f"from: {text!r} is outside the range of times in message ids")
    return time
