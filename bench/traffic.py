"""What the load test of brokers sends: messages of one size, with header blocks that differ, and selectors on them.

Every field has a fixed width, so all frames of a run are equally long, and bytes sent tell how many messages were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.lab.load_frames import HEADER_BLOCKS, MARKER, body, header_lines

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HEADER_BLOCKS", "MARKER", "MATCHING", "body", "cycle", "header_lines", "idle_selectors"]

# Every message is one of these; no message is wanted by an idle subscription.
MATCHING = "market = 'XLON'"

# Prices are below this, always.
PRICE_LIMIT = 1_000


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
