"""Which broker of a network has a queue."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from postroad.broker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["queue_home"]


def queue_home(queue: str, brokers: Sequence[int]) -> int:
    """The broker that has a queue: the one whose number has the largest hash together with the queue's name.

    All brokers agree on it without asking each other. A broker more, or one less, moves only its own share of queues.

    Raises:
        BrokerError: nobody has said which brokers there are.
    """
    if not brokers:
        raise BrokerError(
            f"this broker does not know all brokers of its network, so it cannot tell which of them has the queue "
            f"{queue!r}; set network.brokers to all their numbers"
        )
    return max(brokers, key=lambda number: (_rank(queue, number), number))


def _rank(queue: str, number: int) -> bytes:
    return blake2b(queue.encode() + b"\0" + number.to_bytes(8, "big"), digest_size=8).digest()
