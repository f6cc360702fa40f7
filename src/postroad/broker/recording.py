"""The contract between the broker and whoever keeps the record of where messages went.

The broker tells the truth as it happens: accepted when a batch has its ids, arrived and relayed at links, delivered
when rows are handed to a socket, shed or dropped when they go no further. A recorder decides what to keep. `none` keeps
nothing and costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch

    Rows = NDArray[np.int32] | NDArray[np.int64]

__all__ = ["NoRecorder", "Recorder"]


class Recorder(Protocol):
    """What the broker reports. Calls come in the order things happened, each with the broker's own time in ms.

    A batch belongs to the broker: a recorder copies what it keeps of it before the call returns.
    """

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here, and have their ids."""

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour; after a fault perhaps not for the first time."""

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were handed to the link to a neighbour."""

    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows matched a subscription that cannot take them yet: they wait in its queue."""

    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows were handed to the socket of a subscription."""

    def acknowledged(self, head: int, tail: int, subscription: int, positive: bool, now: int) -> None:
        """A subscriber acknowledged one message (or refused it)."""

    def shed(self, batch: Batch, rows: Rows, subscription: int, reason: str, now: int) -> None:
        """The rows were dropped before they reached a subscription."""

    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        """The rows were dropped on their way to other brokers; `link` is 0 where no link was the cause."""

    def publishes(self, publisher: int, principal: str, now: int) -> None:
        """A session publishes under a new publisher number."""

    def subscribed(self, subscription: int, principal: str, topic: str, selector: str, now: int) -> None:
        """A subscription begins; its number is never used for another."""

    def unsubscribed(self, subscription: int, now: int) -> None:
        """A subscription ends."""

    def linked(self, link: int, cost: int, now: int) -> None:
        """A link to a neighbour works."""

    def unlinked(self, link: int, now: int) -> None:
        """A link to a neighbour is gone."""


class NoRecorder:
    """Keeps no record."""

    def accepted(self, batch: Batch, now: int) -> None:
        pass

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        pass

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        pass

    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        pass

    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        pass

    def acknowledged(self, head: int, tail: int, subscription: int, positive: bool, now: int) -> None:
        pass

    def shed(self, batch: Batch, rows: Rows, subscription: int, reason: str, now: int) -> None:
        pass

    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        pass

    def publishes(self, publisher: int, principal: str, now: int) -> None:
        pass

    def subscribed(self, subscription: int, principal: str, topic: str, selector: str, now: int) -> None:
        pass

    def unsubscribed(self, subscription: int, now: int) -> None:
        pass

    def linked(self, link: int, cost: int, now: int) -> None:
        pass

    def unlinked(self, link: int, now: int) -> None:
        pass
