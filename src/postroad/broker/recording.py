"""The contract between the broker and whoever keeps the record of where messages went.

The broker tells the truth as it happens: accepted when a batch has its ids, delivered when rows are handed to a socket,
shed when a queue's policy drops them. A recorder decides what to keep. `none` keeps nothing and costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch

__all__ = ["NoRecorder", "Recorder"]


class Recorder(Protocol):
    """What the broker reports. Calls come in the order things happened, each with the broker's own time in ms."""

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here, and have their ids."""

    def delivered(self, batch: Batch, rows: NDArray[np.int32], subscription: int, now: int) -> None:
        """The rows were handed to the socket of a subscription."""

    def acknowledged(self, head: int, tail: int, subscription: int, positive: bool, now: int) -> None:
        """A subscriber acknowledged one message (or refused it)."""

    def shed(self, batch: Batch, rows: NDArray[np.int32], subscription: int, reason: str, now: int) -> None:
        """The rows were dropped before they reached a subscription."""


class NoRecorder:
    """Keeps no record."""

    def accepted(self, batch: Batch, now: int) -> None:
        pass

    def delivered(self, batch: Batch, rows: NDArray[np.int32], subscription: int, now: int) -> None:
        pass

    def acknowledged(self, head: int, tail: int, subscription: int, positive: bool, now: int) -> None:
        pass

    def shed(self, batch: Batch, rows: NDArray[np.int32], subscription: int, reason: str, now: int) -> None:
        pass
