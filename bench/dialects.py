"""The protocols that the load generator speaks, as far as it needs them: greet, subscribe, publish.

Each step of the setting up waits for the broker's answer, so that a measurement starts with everybody in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from postroad.lab.load_frames import Stomp, wait_for

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

__all__ = ["DIALECTS", "Dialect"]


class Dialect(Protocol):
    """One protocol, over blocking sockets."""

    def greet(self, line: socket.socket) -> None:
        """Open the session of a new connection."""

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        """Subscribe once per selector; an empty one wants everything."""

    def publication(self, topic: str, headers: bytes, body: bytes) -> bytes:
        """A message, ready to send."""


class BareStomp(Stomp):
    """STOMP for a relay that knows CONNECT, SUBSCRIBE and SEND, and no receipts."""

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        # Such a relay answers each CONNECT, and only after what came before it.
        frames = [self._subscription(topic, place, selector) for place, selector in enumerate(selectors)]
        line.sendall(b"".join(frames))
        self.greet(line)


class Nats:
    """The text protocol of NATS. The header block goes in front of the body: NATS' own headers would cost it more."""

    def greet(self, line: socket.socket) -> None:
        wait_for(line, b"}", b"-ERR")
        line.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        self._answer(line)

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        line.sendall(b"".join(b"SUB %b %d\r\n" % (topic.encode(), place) for place in range(len(selectors))))
        self._answer(line)

    def publication(self, topic: str, headers: bytes, body: bytes) -> bytes:
        return b"PUB %b %d\r\n%b%b\r\n" % (topic.encode(), len(headers) + len(body), headers, body)

    def _answer(self, line: socket.socket) -> None:
        line.sendall(b"PING\r\n")
        wait_for(line, b"PONG", b"-ERR")


class Mqtt:
    """MQTT 3.1.1 at quality of service 0, without keep-alive. The header block goes in front of the body."""

    def greet(self, line: socket.socket) -> None:
        line.sendall(self._packet(0x10, self._text("MQTT") + b"\x04\x02\x00\x00" + self._text("")))
        wait_for(line, b"\x20\x02\x00\x00", b"\x20\x02\x00\x05")

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        for place in range(len(selectors)):
            number = (place + 1).to_bytes(2, "big")
            line.sendall(self._packet(0x82, number + self._text(topic) + b"\x00"))
            wait_for(line, b"\x90\x03" + number + b"\x00", b"\x90\x03" + number + b"\x80")

    def publication(self, topic: str, headers: bytes, body: bytes) -> bytes:
        return self._packet(0x30, self._text(topic) + headers + body)

    def _packet(self, kind: int, content: bytes) -> bytes:
        length, rest = b"", len(content)
        while rest > 0x7F:
            length += bytes([rest & 0x7F | 0x80])
            rest >>= 7
        return bytes([kind]) + length + bytes([rest]) + content

    def _text(self, text: str) -> bytes:
        return len(text).to_bytes(2, "big") + text.encode()


class Raw(Stomp):
    """STOMP's SEND frames to `bench.peers.echo`, which returns bytes and understands only who reads them."""

    def greet(self, line: socket.socket) -> None:
        pass

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        line.sendall(b"+")
        wait_for(line, b"+", b"-")


DIALECTS: dict[str, Dialect] = {
    "stomp": Stomp(),
    "bare stomp": BareStomp(),
    "nats": Nats(),
    "mqtt": Mqtt(),
    "raw": Raw(),
}
