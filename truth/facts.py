"""What is known of a message without the record: from its publisher, from its subscribers, or because we made it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.lab.trails import read_truth
from postroad.messages import MessageId

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Fact", "Reader", "facts_of_generated", "unsent"]

# (broker, subscriber): the number that the record gives it where that is known, else its login.
Reader = tuple[int, int | str]
# Far above every counter that a publisher of a test gets to: an id with it was never given.
_UNSENT_COUNTER = 40_000
_LOW = 0xFFFF_FFFF


class Fact(NamedTuple):
    """The truth about one id, as far as it is known from outside.

    Attributes:
        entered: True if a receipt or a delivery proves that the message entered the network, False if nobody ever sent
            it, None if nobody knows: it was sent, and its receipt never came.
        received: who got it.
        missed: who did not, though its connection was whole from before the message to the end. A record that says
            otherwise lies.
        acknowledged: who acknowledged it and was heard; None where that is not known.
        passed: the brokers that had it; None where only its readers are known.
        lost: the broker it was handed to and never came to; 0 for none.
        shed: (broker, subscriber) whose queue did not take it.
        owed: readers that were promised the message and did not get it. A complete answer cannot leave that out.
    """

    entered: bool | None
    received: frozenset[Reader] = frozenset()
    missed: frozenset[Reader] = frozenset()
    acknowledged: frozenset[Reader] | None = None
    passed: frozenset[int] | None = None
    lost: int = 0
    shed: frozenset[Reader] = frozenset()
    owed: frozenset[Reader] = frozenset()

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers that surely had the message, the origin aside."""
        return self.passed or frozenset(broker for broker, _ in self.received)


def facts_of_generated(root: Path) -> dict[MessageId, Fact]:
    """The truth of a generated trail, which is known to the last hop."""
    return {
        MessageId(row["publisher"], row["origin"], row["time"], row["counter"]): _fact(row)
        for row in read_truth(root).to_pylist()
    }


def _fact(row: dict[str, Any]) -> Fact:
    shed = frozenset({(row["shed_at"], row["shed_from"])} if row["shed_at"] else ())
    return Fact(
        entered=True,
        received=frozenset((pair >> 32, pair & _LOW) for pair in row["deliveries"]),
        passed=frozenset({row["origin"], *(hop & _LOW for hop in row["path"])}),
        lost=row["lost"],
        shed=shed,
    )


def unsent(like: MessageId) -> MessageId:
    """An id of the same publisher and time that nobody ever gave."""
    return MessageId(like.publisher, like.broker, like.time, _UNSENT_COUNTER + like.counter % 10_000)
