"""What the load test of brokers sends: messages of one size, with header blocks that differ, and selectors on them.

Every field has a fixed width, so all frames of a run are equally long, and bytes sent tell how many messages were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HEADER_BLOCKS", "MARKER", "MATCHING", "body", "cycle", "header_lines", "idle_selectors"]

# One byte, once in every message and nowhere else in what a broker sends: counting it counts messages, wherever the
# reads happen to end. The record separator stands in no header and in no length that the protocols here write.
MARKER = b"\x1e"

# A broker that remembers header blocks it has seen would look fast on a few; real traffic repeats none.
HEADER_BLOCKS = 2_048

# Every message is one of these; no message is wanted by an idle subscription.
MATCHING = "market = 'XLON'"

# Prices are below this, always.
PRICE_LIMIT = 1_000


def header_lines(number: int) -> bytes:
    """The header block of a message; they repeat after HEADER_BLOCKS."""
    place = number % HEADER_BLOCKS
    price, volume = 100 + place * 37 % 900, 10_000 + place * 7_919 % 90_000
    return b"market:XLON\nstock:S%d\nprice:%d\nvolume:%d\norder:o-%08d\n" % (1_000 + place, price, volume, place)


def body(number: int, size: int) -> bytes:
    """The marker, the message's number in eight digits, and filling."""
    return (MARKER + b"%08d" % number).ljust(size, b"x")


def cycle(publication: Callable[[bytes, bytes], bytes], size: int, count: int = HEADER_BLOCKS) -> tuple[bytes, int]:
    """Frames end to end, and the length of each.

    Args:
        publication: header block and body to a frame of a protocol.
        size: bytes of each body.
        count: how many frames.
    """
    frames = [publication(header_lines(number), body(number, size)) for number in range(count)]
    length = len(frames[0])
    if any(len(frame) != length or frame.count(MARKER) != 1 for frame in frames):
        raise ValueError("the frames of a run must be equally long, with one marker each")
    return b"".join(frames), length


def idle_selectors(count: int) -> list[str]:
    """Selectors that no message matches: half of them on stocks that nobody trades, half on prices nobody pays."""
    return [
        f"stock = 'S{1_000 + place % HEADER_BLOCKS}' AND price > {PRICE_LIMIT + place}"
        if place % 2
        else f"stock = 'N{place}' AND price > {place % PRICE_LIMIT}"
        for place in range(count)
    ]
