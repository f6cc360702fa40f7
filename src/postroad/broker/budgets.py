"""What subscriptions cost, and whether a session and the broker may have one more.

Two things are counted: memory, by an estimate that a client can follow, and the most work that matching one message can
cause (`SubscriptionIndex.work`). Constraints that several subscriptions share are tested once per message, so their
work counts for the session that added them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker.errors import BrokerError
from postroad.matching import WorkError
from postroad.selectors.constraints import Operator

if TYPE_CHECKING:
    from postroad.broker.limits import Limits
    from postroad.broker.sessions import Session, Subscription
    from postroad.matching import SubscriptionIndex
    from postroad.selectors import Selector, TopicPattern
    from postroad.selectors.constraints import Constraint

__all__ = ["NANOSECONDS", "Budgets", "estimated_bytes"]

# Nanoseconds per millisecond: limits are in milliseconds, work in nanoseconds.
NANOSECONDS = 1_000_000

# An ordinary subscription: its queue, its sets, its rows in the index, its entry in the connection's tables.
_SUBSCRIPTION_BYTES = 1_500
# In addition: the text of a selector is kept as text, in its tree, and in the index, where blocks are powers of two.
_COPIES_OF_TEXT = 4
# An alternative, and a constraint in an alternative or a text of an IN: rows of the index, and what is advertised to
# other brokers.
_CONJUNCTION_BYTES = 200
_CONSTRAINT_BYTES = 200
_LISTS = (Operator.IN_TEXT, Operator.NOT_IN_TEXT)


def estimated_bytes(key: str, topic: str, selector: Selector | None) -> int:
    """Estimate what a subscription takes in memory."""
    size = _SUBSCRIPTION_BYTES + len(key.encode()) + _COPIES_OF_TEXT * len(topic.encode())
    if selector is not None:
        alternatives = selector.disjunction
        size += _COPIES_OF_TEXT * len(str(selector).encode())
        size += _CONJUNCTION_BYTES * len(alternatives)
        size += _CONSTRAINT_BYTES * sum(_rows(constraint) for alternative in alternatives for constraint in alternative)
    return size


def _rows(constraint: Constraint) -> int:
    """Return how many rows of the index a constraint takes."""
    return 1 + len(constraint.operand) if constraint.operator in _LISTS else 1


class Budgets:
    """What the subscriptions of one broker use up of its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.bytes = 0
        self.work = 0

    def take_limits(self, limits: Limits) -> None:
        """Apply new limits to subscriptions from now on."""
        self._limits = limits

    def check_bytes(self, session: Session, size: int) -> None:
        """Refuse a subscription that takes too much memory, before anything is done for it.

        Raises:
            BrokerError: the session's share or the broker's would be exceeded; it names the limit.
        """
        limits = self._limits
        if session.subscription_bytes + size > limits.session_subscription_bytes:
            raise BrokerError(
                f"the subscriptions of this session would take {session.subscription_bytes + size:,} bytes; the "
                f"limit is {limits.session_subscription_bytes:,} (limits.session_subscription_bytes); use shorter "
                "selectors, or fewer"
            )
        if self.bytes + size > limits.subscription_bytes:
            raise BrokerError(
                f"the subscriptions of this broker would take {self.bytes + size:,} bytes; the limit is "
                f"{limits.subscription_bytes:,} (limits.subscription_bytes); try another broker"
            )

    def allowance(self, session: Session) -> int:
        """Return how much work the next subscription of a session may add."""
        limits = self._limits
        own = limits.session_matching_ms * NANOSECONDS - session.matching_work
        return max(0, min(own, limits.matching_ms * NANOSECONDS - self.work))

    def check_work(self, session: Session, work: int) -> None:
        """Refuse a subscription that is in the index if a message would cost too much; the caller removes it again.

        Raises:
            BrokerError: the session's share or the broker's is exceeded; it names the limit.
        """
        limits = self._limits
        if session.matching_work + work > limits.session_matching_ms * NANOSECONDS:
            raise BrokerError(
                "with this subscription, those of this session could make a single message take "
                f"{(session.matching_work + work) / NANOSECONDS:,.1f} ms or more to match; the limit is "
                f"{limits.session_matching_ms:,} (limits.session_matching_ms); use fewer different LIKE patterns and "
                "conditions"
            )
        if self.work + work > limits.matching_ms * NANOSECONDS:
            raise BrokerError(
                "with this subscription, those of this broker could make a single message take "
                f"{(self.work + work) / NANOSECONDS:,.1f} ms or more to match; the limit is "
                f"{limits.matching_ms:,} (limits.matching_ms); use fewer different LIKE patterns and conditions, or "
                "try another broker"
            )

    def enter(
        self,
        index: SubscriptionIndex,
        subscription: Subscription,
        selector: Selector | None,
        pattern: TopicPattern,
        size: int,
    ) -> None:
        """Add a subscription to an index, with what it costs; it gets its slot there.

        Raises:
            BrokerError: a message would cost too much to match.
            LimitError: the index is full.
        """
        before = index.work
        try:
            subscription.slot = index.add(subscription.number, selector, pattern, self.allowance(subscription.session))
        except WorkError as error:
            self.check_work(subscription.session, error.work - before)
            raise
        work = index.work - before
        try:
            self.check_work(subscription.session, work)
        except BrokerError:
            index.remove(subscription.number)
            raise
        self.add(subscription, size, work)

    def add(self, subscription: Subscription, size: int, work: int) -> None:
        """Count a new subscription."""
        subscription.bytes, subscription.work = size, work
        self._count(subscription.session, size, work)

    def remove(self, subscription: Subscription) -> None:
        """Stop counting a subscription."""
        self._count(subscription.session, -subscription.bytes, -subscription.work)

    def _count(self, session: Session, size: int, work: int) -> None:
        self.bytes += size
        self.work += work
        session.subscription_bytes += size
        session.matching_work += work
