"""What several acknowledgements of a client cover, checked before any of them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.broker.errors import BrokerError
from postroad.broker.sessions import AckMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker.sessions import Session, Subscription

__all__ = ["Acknowledgement", "Settlement", "settlements", "waiting_subscription"]


class Acknowledgement(NamedTuple):
    """A client acknowledges or refuses a message.

    Attributes:
        key: the client's name for the subscription.
        message: the id, as a 128-bit integer.
        positive: it has consumed the message.
        requeues: if it has not, whether another consumer may get the message.
    """

    key: str
    message: int
    positive: bool
    requeues: bool


class Settlement(NamedTuple):
    """Messages of one subscription that are settled alike, in the order in which they were sent."""

    subscription: Subscription
    messages: list[int]
    positive: bool
    requeues: bool


def waiting_subscription(session: Session, key: str, message: int) -> Subscription:
    """Return the subscription for which a message waits for its acknowledgement.

    Raises:
        BrokerError: the subscription does not exist, or the message does not wait for an acknowledgement.
    """
    subscription = session.subscriptions.get(key)
    if subscription is None:
        raise BrokerError(f"acknowledgement for subscription {key!r}, which this session does not have")
    if message not in subscription.unacknowledged:
        raise BrokerError("acknowledgement of a message that does not wait for one; each counts once")
    return subscription


def settlements(session: Session, acknowledgements: Iterable[Acknowledgement]) -> list[Settlement]:
    """Return what acknowledgements cover, one after the other; nothing is changed.

    Raises:
        BrokerError: a subscription does not exist, or a message does not wait for an acknowledgement (any more).
    """
    found: dict[tuple[str, bool, bool], Settlement] = {}
    # What is covered so far: messages, or in mode `client` how many of the oldest. Then their order in that mode.
    done: dict[str, set[int]] = {}
    reached: dict[str, int] = {}
    orders: dict[str, tuple[list[int], dict[int, int]]] = {}
    for key, message, positive, requeues in acknowledgements:
        subscription = waiting_subscription(session, key, message)
        if subscription.ack_mode is AckMode.INDIVIDUAL:
            covered = [message]
            seen = done.setdefault(key, set())
            is_twice = message in seen
            seen.add(message)
        else:
            if key not in orders:
                every = list(subscription.unacknowledged)
                orders[key] = every, {each: at for at, each in enumerate(every)}
            every, places = orders[key]
            start, end = reached.get(key, 0), places[message] + 1
            covered, is_twice, reached[key] = every[start:end], end <= start, end
        if is_twice:
            raise BrokerError("acknowledgement of a message that does not wait for one; each counts once")
        settlement = found.setdefault((key, positive, requeues), Settlement(subscription, [], positive, requeues))
        settlement.messages.extend(covered)
    return list(found.values())
