"""A recorder that remembers what became of messages on their way to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroad.broker.no_recorder import NoRecorder

if TYPE_CHECKING:
    from postroad.messages import Batch


class WayRecorder(NoRecorder):
    """Remembers (what happened, link, messages): `relayed`, or the reason of a drop or detour."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def dropped(self, batch: Batch, rows: Any, link: int, reason: str, now: int) -> None:
        self.seen.append((str(reason), link, len(rows)))

    def relayed(self, batch: Batch, rows: Any, link: int, now: int) -> None:
        self.seen.append(("relayed", link, len(rows)))
