"""Runs work that blocks on a disk on a separate thread, and notices a disk that does not respond."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DiskThread", "hanging", "is_done"]

Result = TypeVar("Result")


def hanging(seconds: float) -> str:
    """What is said about a disk that does not answer."""
    return f"the disk has not answered for {seconds:g} seconds"


async def is_done(work: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for work, up to a limit. The work itself continues, even if the caller is cancelled."""
    done, _ = await asyncio.wait({work}, timeout=seconds)
    return bool(done)


class DiskThread:
    """Does one thing after the other. A disk that hangs does not keep the process from ending: the thread is a daemon.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def do(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Do this after all that came before it; returns on the loop that asks."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def task() -> None:
            try:
                result = work()
            except Exception as caught:
                settle, outcome = answer.set_exception, caught
            else:
                settle, outcome = answer.set_result, result  # type: ignore[assignment]
            # If the disk took too long, the loop may have been closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if answer.done() else settle(outcome))

        if self._thread.ident is None:
            self._thread.start()
        self._tasks.put(task)
        return answer

    def end(self) -> None:
        """Take nothing more. Does not wait for what is under way."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
