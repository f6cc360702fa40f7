"""The recorder that keeps nothing. The contract is that of tracking: what happens to messages is told as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking.contract import Recorder

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.tracking.contract import Rows

__all__ = ["NoRecorder", "Recorder"]


class NoRecorder:
    """Keeps no record, and costs nothing."""

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

    def aliased(self, alias: str, head: int, tail: int, now: int) -> None:
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
