"""Links that a test can cut: every connection between two brokers runs through a relay that counts bytes and can
break."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from postroad.protocols.link.frames import HEADER, HEADER_BYTES, KINDS
from postroad.testing.network_contract import LinkTraffic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FrameMeter", "Wiring"]

READ_BYTES = 256 * 1024


class FrameMeter:
    """Counts the frames of one direction by their kind; it reads their heads and skips the rest.

    Attributes:
        bytes: kind of frame -> bytes.
        messages: rows of DATA frames.
    """

    # In DATA the number of rows comes after the head, the frame's own number and an epoch (docs/formats.md, "DATA").
    COUNT_AT = HEADER_BYTES + 16

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.messages = 0

    def stream(self) -> Callable[[bytes], None]:
        """What takes the bytes of one connection."""
        head = bytearray()
        left = 0

        def take(data: bytes) -> None:
            nonlocal left
            at = 0
            while at < len(data):
                if left:
                    step = min(left, len(data) - at)
                    left -= step
                    at += step
                    continue
                step = min(self.COUNT_AT + 4 - len(head), len(data) - at)
                head.extend(data[at : at + step])
                at += step
                left = self._head(head)
                if left < 0:
                    # The frame ends before the bytes that were taken for its head: they begin the next one.
                    at += left
                    left = 0

        return take

    def _head(self, head: bytearray) -> int:
        """How many bytes of the frame follow; below 0 when the head holds some of the next frame."""
        if len(head) < HEADER_BYTES:
            return 0
        length, kind, _ = HEADER.unpack_from(head)
        if len(head) < min(self.COUNT_AT + 4, length):
            return 0
        name = KINDS.get(kind, "?")
        self.bytes[name] += length
        if name == "DATA":
            self.messages += int.from_bytes(head[self.COUNT_AT : self.COUNT_AT + 4], "little")
        following = int(length) - len(head)
        head.clear()
        return following

    def traffic(self) -> LinkTraffic:
        data, control = self.bytes["DATA"], self.bytes["CONTROL"]
        return LinkTraffic(self.messages, data, control, self.bytes.total() - data - control)


class Wiring:
    """Relays between brokers, one for each ordered pair: `port(one, other)` is where one dials the other."""

    def __init__(self) -> None:
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._targets: dict[int, int] = {}
        self._cut: set[frozenset[int]] = set()
        self._open: dict[frozenset[int], set[asyncio.StreamWriter]] = {}
        self._meters: dict[tuple[int, int], FrameMeter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def lay(self, one: int, other: int) -> None:
        """Make a way by which one can dial the other."""

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._relay(one, other, reader, writer)
            finally:
                self._tasks.discard(task)

        self._servers[one, other] = await asyncio.start_server(relay, "127.0.0.1", 0)
        for way in ((one, other), (other, one)):
            self._meters.setdefault(way, FrameMeter())

    def port(self, one: int, other: int) -> int:
        """Where one dials the other."""
        return int(self._servers[one, other].sockets[0].getsockname()[1])

    def plug(self, broker: int, port: int) -> None:
        """A broker listens for links here."""
        self._targets[broker] = port

    def unplug(self, broker: int) -> None:
        """A broker is gone: all its connections break."""
        self._targets.pop(broker, None)
        for ends in self._open:
            if broker in ends:
                self._break(ends)

    def cut(self, one: int, other: int) -> None:
        """Break what connects two brokers, and let no other connection through."""
        ends = frozenset((one, other))
        self._cut.add(ends)
        self._break(ends)

    def join(self, one: int, other: int) -> None:
        """Let connections through again."""
        self._cut.discard(frozenset((one, other)))

    def is_cut(self, one: int, other: int) -> bool:
        """Whether nothing comes through."""
        return frozenset((one, other)) in self._cut

    def traffic(self) -> dict[tuple[int, int], LinkTraffic]:
        """(from, to) -> what was sent."""
        return {ends: meter.traffic() for ends, meter in self._meters.items()}

    async def close(self) -> None:
        """Break everything."""
        for server in self._servers.values():
            server.close()
        for ends in self._open:
            self._break(ends)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _break(self, ends: frozenset[int]) -> None:
        for writer in self._open.get(ends, ()):
            writer.transport.abort()

    async def _relay(self, one: int, other: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = frozenset((one, other))
        target = self._targets.get(other)
        if ends in self._cut or target is None or one not in self._targets:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._open.setdefault(ends, set()).update(pair)
        try:
            await asyncio.gather(
                _pump(reader, far_writer, self._meters[one, other].stream()),
                _pump(far_reader, writer, self._meters[other, one].stream()),
            )
        finally:
            self._open[ends] -= pair
            for each in pair:
                each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[bytes], None]) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            count(data)
            writer.write(data)
            await writer.drain()
    # Either end closes both ways: links have no half-open connections.
    writer.close()
