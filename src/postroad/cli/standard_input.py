"""Lines of standard input as they arrive, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING

from postroad.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["input_lines"]

READ_BYTES = 64 * 1024
# Reads that wait until their lines are sent; a faster writer waits.
READS_AHEAD = 4


async def input_lines(longest: int, descriptor: int = 0) -> AsyncIterator[list[bytes]]:
    """Yield the lines of each read, without their line ends; also the last one if it has none.

    Raises:
        LimitError: a line has more bytes than `longest`.
    """
    rest = b""
    async for data in _reads(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > longest:
            raise LimitError(
                "a line of the input", len(rest), longest, "bytes, as for the body of a message; divide it"
            )
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _reads(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what a file descriptor gives, read in a thread.

    Not with a pipe transport, which takes no files, nor with asyncio's own threads: the loop waits for them at its end,
    and a terminal sends nothing after Ctrl-C. This thread ends with the process, and holds no lock while it reads.
    """
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue()
    ahead = threading.Semaphore(READS_AHEAD)
    wanted = True

    def read() -> None:
        data = b"-"
        # The loop is gone if the program ended first.
        with contextlib.suppress(RuntimeError):
            while data and wanted:
                try:
                    data = os.read(descriptor, READ_BYTES)
                except OSError:
                    data = b""
                loop.call_soon_threadsafe(waiting.put_nowait, data)
                ahead.acquire()

    threading.Thread(target=read, daemon=True).start()
    try:
        while data := await waiting.get():
            ahead.release()
            yield data
    finally:
        wanted = False
        ahead.release()
