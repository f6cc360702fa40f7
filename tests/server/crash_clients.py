"""Clients of brokers that are killed: what they saw is the truth."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from postroad.protocols.stomp import FrameReader, encode_frame
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    import threading

    from postroad.protocols.stomp import Frame

WINDOW = 40


class Link:
    """A connection that may break at any time."""

    def __init__(self, port: int, client: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        try:
            self.say("CONNECT", {"accept-version": "1.2", "host": "here", "client-id": client})
            assert self.frame().command == "CONNECTED"
        except BaseException:
            self._socket.close()
            raise

    def say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._socket.sendall(encode_frame(command, headers, body))

    def frame(self) -> Frame:
        while not self._frames:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker is gone")
            self._frames += self._reader.receive(data)
        return self._frames.pop(0)

    def hang_up(self) -> None:
        """End the conversation from another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class Publisher:
    """Sends numbered messages with receipts, some at a time; knows which were confirmed."""

    def __init__(self, name: str, destination: str = "/topic/a", pause: float = 0) -> None:
        self.name = name
        self._destination = destination
        # Between two answers, in seconds: consumers that answer one by one follow more slowly than publishers.
        self._pause = pause
        self.confirmed: list[int] = []
        self._next = 0
        self._link: Link | None = None

    def leave(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.hang_up()

    def live(self, port: int, until: threading.Event) -> None:
        """Publish until the broker dies."""
        with suppress(OSError), closing(Link(port, self.name)) as link:
            self._link = link
            under_way: set[int] = set()
            while True:
                while len(under_way) < WINDOW and not until.is_set():
                    headers = {"destination": self._destination, "receipt": str(self._next), "by": self.name}
                    link.say("SEND", headers, b"%d" % self._next)
                    under_way.add(self._next)
                    self._next += 1
                frame = link.frame()
                assert frame.command == "RECEIPT", frame
                under_way.discard(int(frame.headers["receipt-id"]))
                self.confirmed.append(int(frame.headers["receipt-id"]))
                if self._pause and not until.is_set():
                    until.wait(self._pause)
