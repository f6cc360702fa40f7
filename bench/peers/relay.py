"""A yardstick: a relay of STOMP-shaped frames that does next to nothing, and that little with Python's bytes.

No content-length, escapes, selectors, ids, limits or errors: what is left is the price of moving frames one by one. A
yardstick that others have measured by may lie beside the repository; it is taken instead.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from bench.peers.loops import run
from bench.processes import Contender, Launch

__all__ = ["RELAY", "Relay", "main"]

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "examples" / "bare_relay.py"


def launch(port: int, directory: Path) -> Launch:
    if BESIDE.is_file():
        return Launch([sys.executable, BESIDE, str(port)])
    return Launch([sys.executable, "-c", "from bench.peers.relay import main; main()", str(port)])


RELAY = Contender("relay", "bare stomp", launch)


class Relay(asyncio.Protocol):
    """One connection; all of them share who reads which destination."""

    routes: dict[bytes, list[tuple[Relay, bytes]]] = {}  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.unfinished = b""
        self.pending: list[bytes] = []

    def connection_lost(self, exc: Exception | None) -> None:
        for readers in self.routes.values():
            readers[:] = [each for each in readers if each[0] is not self]

    def data_received(self, data: bytes) -> None:
        frames = (self.unfinished + data).split(b"\0\n")
        self.unfinished = frames.pop()
        reached: set[Relay] = set()
        for frame in frames:
            command, _, rest = frame.partition(b"\n")
            if command == b"SEND":
                self.relay(rest, reached)
            elif command == b"SUBSCRIBE":
                self.routes.setdefault(header(rest, b"destination:"), []).append((self, header(rest, b"id:")))
            elif command == b"CONNECT":
                self.transport.write(b"CONNECTED\nversion:1.2\n\n\0\n")
        for relay in reached:
            relay.transport.writelines(relay.pending)
            relay.pending = []

    def relay(self, rest: bytes, reached: set[Relay]) -> None:
        for relay, key in self.routes.get(header(rest, b"destination:"), ()):
            relay.pending.append(b"MESSAGE\nsubscription:" + key + b"\nmessage-id:1\n" + rest + b"\0\n")
            reached.add(relay)


def header(lines: bytes, name: bytes) -> bytes:
    """The value of a header that is known to be there."""
    start = lines.index(name) + len(name)
    return lines[start : lines.index(b"\n", start)]


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Relay, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """The process: the port to listen on is its first argument."""
    run(serve(int(sys.argv[1])))
