"""How many queues a broker has, and its clients may make."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from postroad.broker.errors import BrokerError

if TYPE_CHECKING:
    from postroad.broker.named_queues import QueueTerms

__all__ = ["MAX_QUEUES", "MAX_QUEUES_PER_PRINCIPAL", "QueueQuota"]

# A queue outlives the client that made it: without a bound, clients with ever new names would fill memory.
MAX_QUEUES = 10_000
# So that one login does not take all of them.
MAX_QUEUES_PER_PRINCIPAL = 1_000


class QueueQuota:
    """Counts the queues that have a name: one read can make a thousand, so nothing is counted anew for each.

    The broker's own are its dead-letter queues. Clients can neither use them up, nor lose theirs to them.
    """

    def __init__(self) -> None:
        self._own = self._others = 0
        self._of_clients: Counter[str] = Counter()

    def add(self, terms: QueueTerms) -> None:
        """Count a new queue."""
        if terms.own:
            self._own += 1
            return
        self._others += 1
        self._of_clients[terms.principal] += 1

    def remove(self, terms: QueueTerms) -> None:
        """Stop counting a queue."""
        if terms.own:
            self._own -= 1
            return
        self._others -= 1
        self._of_clients[terms.principal] -= 1
        if not self._of_clients[terms.principal]:
            del self._of_clients[terms.principal]

    def check(self, principal: str, own: bool) -> None:
        """Refuse one more queue, of the broker itself if `own`.

        Raises:
            BrokerError: there are as many as there may be.
        """
        if (self._own if own else self._others) >= MAX_QUEUES:
            raise BrokerError(
                f"this broker has {MAX_QUEUES:,} queues, the limit (MAX_QUEUES); delete some that nobody needs "
                "(postroad queues list)"
            )
        mine = self._of_clients[principal]
        if not own and mine >= MAX_QUEUES_PER_PRINCIPAL:
            raise BrokerError(
                f"{principal or 'clients without a login'} has {mine:,} queues here, the limit "
                "(MAX_QUEUES_PER_PRINCIPAL); delete some that nobody needs (postroad queues list)"
            )
