"""Numbers of a few bits each, end to end, low bit first; unused bits of the last byte are zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pack", "packed_size", "unpack"]


def packed_size(count: int, width: int) -> int:
    """Bytes that `count` numbers of `width` bits take."""
    return (count * width + 7) // 8


def pack(numbers: NDArray[np.int64], width: int) -> bytes:
    """Pack numbers below 2^width."""
    bits = (numbers[:, None] >> np.arange(width)) & 1
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()


def unpack(data: bytes, count: int, width: int) -> NDArray[np.int64]:
    """The numbers of `pack(numbers, width)`; the data must be `packed_size` long."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width, bitorder="little")
    return bits.reshape(count, width).astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))
