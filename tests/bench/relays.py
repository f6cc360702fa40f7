"""Relays of known behaviour, for load generators to be tried on."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.peers.relay import Relay
from bench.traffic import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Forgetful", "relaying"]


class Forgetful(Relay):
    """Drops one message."""

    forgotten = False

    def relay(self, rest: bytes, reached: set[Relay]) -> None:
        if not self.forgotten and MARKER + b"00000007" in rest:
            self.forgotten = True
            return
        super().relay(rest, reached)


@contextmanager
def relaying(kind: type[Relay]) -> Iterator[int]:
    """A relay in a thread; its port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(kind, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        # One more turn, for connections to notice that they are closed.
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
