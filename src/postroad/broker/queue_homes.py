"""Which broker of a network has a queue."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from postroad.broker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["QueueHomes", "queue_home"]


class QueueHomes:
    """Which broker has a queue, as one broker sees it.

    Args:
        number: this broker.

    Attributes:
        home: returns the number of the broker that has a queue; None if this is the only broker.
        brokers: the numbers of all brokers of the network; empty if they are not known.
        dead_letter: the prefix of the names of dead-letter queues.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.home: Callable[[str], int] | None = None
        self.brokers: frozenset[int] = frozenset()
        self.dead_letter = ""

    def is_listed(self, broker: int) -> bool:
        """Return whether a broker may belong to the network."""
        return not self.brokers or broker in self.brokers

    def of(self, queue: str) -> int:
        """Return the number of the broker that has a queue; dead letters are where their queue is.

        Raises:
            BrokerError: the brokers of the network are not known.
        """
        return self._number if self.home is None else self.home(queue.removeprefix(self.dead_letter))

    def elsewhere(self, queue: str) -> int:
        """Return the number of the other broker that has a queue; 0 if this one has it.

        Raises:
            BrokerError: the brokers of the network are not known.
        """
        home = self.of(queue)
        return home if home != self._number else 0

    def check(self, queue: str) -> None:
        """Refuse a queue that is at another broker.

        Raises:
            BrokerError: it is; the error names that broker.
        """
        home = self.of(queue)
        if home != self._number:
            raise BrokerError(
                f"the queue {queue!r} is at broker {home} of this network, and cannot be reached from here; connect to "
                "that broker"
            )


def queue_home(queue: str, brokers: Sequence[int], homes: Mapping[str, int] | None = None) -> int:
    """Return the broker that has a queue: the one that is named for it, or the one whose number gives the largest hash.

    All brokers agree on it without asking each other. One broker more or less moves only its own share of queues.

    Raises:
        BrokerError: the brokers of the network are not known.
    """
    if homes and (home := homes.get(queue)) is not None:
        return home
    if not brokers:
        raise BrokerError(
            f"this broker does not know all brokers of its network, so it cannot tell which of them has the queue "
            f"{queue!r}; set network.brokers to all their numbers"
        )
    return max(brokers, key=lambda number: (_rank(queue, number), number))


def _rank(queue: str, number: int) -> bytes:
    return blake2b(queue.encode() + b"\0" + number.to_bytes(8, "big"), digest_size=8).digest()
