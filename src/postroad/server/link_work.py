"""The work of long advertisements, one step per turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LinkWork"]


class LinkWork:
    """Takes a step as long as there is work.

    Args:
        is_wanted: whether there is work, and the broker is not stopping.
        step: does some of it.
        failed: called within the handling of an exception, when a step met a defect of ours; other work continues.
    """

    def __init__(self, is_wanted: Callable[[], bool], step: Callable[[], None], failed: Callable[[], None]) -> None:
        self._is_wanted = is_wanted
        self._step = step
        self._failed = failed
        self._next: asyncio.Handle | None = None

    def go_on(self) -> None:
        """Take the next step in the next turn, unless it is planned already."""
        if self._next is None and self._is_wanted():
            self._next = asyncio.get_running_loop().call_soon(self._once)

    def _once(self) -> None:
        self._next = None
        try:
            self._step()
        except Exception:
            self._failed()
        self.go_on()
