"""The contract between the broker and whoever keeps the record of where messages went.

The broker tells the truth as it happens: accepted when a batch has its ids, arrived and relayed at links, delivered
when rows are handed to a socket, shed or dropped when they go no further. A recorder decides what to keep. `none` keeps
nothing and costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking.contract import Recorder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch

    Rows = NDArray[np.int32] | NDArray[np.int64]

__all__ = ["NoRecorder", "Recorder"]


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
