"""What clients of a load test write: STOMP frames of one size, each with a marker that is easy to count.

Every field has a fixed width, so all frames of a run are equally long, and the bytes sent give the number of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

__all__ = ["HEADER_BLOCKS", "MARKER", "Stomp", "body", "header_lines", "wait_for"]

# One byte that occurs once in every message and nowhere else in what a broker sends: counting it counts messages,
# wherever reads end. The record separator occurs in no header and no length that the protocols here write.
MARKER = b"\x1e"

# A broker that caches header blocks would look fast with only a few of them; real traffic repeats none.
HEADER_BLOCKS = 2_048


def header_lines(number: int) -> bytes:
    """Return the header block of a message; blocks repeat after HEADER_BLOCKS."""
    place = number % HEADER_BLOCKS
    price, volume = 100 + place * 37 % 900, 10_000 + place * 7_919 % 90_000
    return b"market:XLON\nstock:S%d\nprice:%d\nvolume:%d\norder:o-%08d\n" % (1_000 + place, price, volume, place)


def body(number: int, size: int) -> bytes:
    """Return the marker, the message's number in eight digits, and padding."""
    return (MARKER + b"%08d" % number).ljust(size, b"x")


def wait_for(line: socket.socket, end: bytes, trouble: bytes) -> bytes:
    """Read up to an expected end; line ends may follow it.

    Raises:
        ConnectionError: the broker closed the connection, or answered with this protocol's sign of trouble.
    """
    answer = b""
    while not answer.rstrip(b" \r\n").endswith(end):
        data = line.recv(65_536)
        answer += data
        if not data or trouble in answer:
            raise ConnectionError(f"the broker refused: {answer[:500]!r}")
    return answer


class Stomp:
    """STOMP 1.2. Frames end in NUL and a line end, which some relays require."""

    def greet(self, line: socket.socket) -> None:
        line.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0\n")
        self._answer(line)

    def subscribe(self, line: socket.socket, topic: str, selectors: Sequence[str]) -> None:
        frames = [self._subscription(topic, place, selector) for place, selector in enumerate(selectors)]
        # The broker handles one client's frames in order: the last receipt stands for all.
        frames[-1] = frames[-1].replace(b"\n\n\0", b"\nreceipt:ready\n\n\0")
        line.sendall(b"".join(frames))
        self._answer(line)

    def publication(self, topic: str, headers: bytes, body: bytes) -> bytes:
        head = b"SEND\ndestination:/topic/%b\ncontent-length:%d\n" % (topic.encode(), len(body))
        return head + headers + b"\n" + body + b"\0\n"

    def _subscription(self, topic: str, place: int, selector: str) -> bytes:
        wanted = f"\nselector:{selector}" if selector else ""
        return f"SUBSCRIBE\nid:{place}\ndestination:/topic/{topic}{wanted}\n\n\0\n".encode()

    def _answer(self, line: socket.socket) -> None:
        wait_for(line, b"\0", b"ERROR\n")
