"""Packed lists: ascending unsigned 32-bit numbers in one binary value, 4 bytes each, big-endian; null when empty.

A file has few distinct lists, so Parquet's dictionary needs a few bits per row. Whole columns are packed and unpacked
at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.trail.errors import TrailDamageError, TrailError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.tracking import Lists

__all__ = ["LARGEST_BINARY", "NUMBER_BYTES", "pack_lists", "pack_words", "unpack", "unpack_lists", "unpack_words"]

NUMBER_BYTES = 4
WORD_BYTES = 8
LARGEST_BINARY = 2**31 - 1  # the offsets of an Arrow binary column are 32 bits wide


def pack_lists(lists: Lists) -> Any:
    """A binary column with one packed list for each row."""
    return _binary(lists.offsets * NUMBER_BYTES, lists.numbers.astype(">u4").view(np.uint8))


def pack_words(words: Iterable[NDArray[np.int64] | NDArray[np.uint64] | None]) -> Any:
    """A binary column with the little-endian 64-bit words of each row; null where there are none."""
    wide = [None if row is None or not len(row) else row.astype("<u8").tobytes() for row in words]
    return pa.array(wide, pa.binary())


def unpack_words(packed: bytes | None) -> NDArray[np.int64]:
    """The signed 64-bit words of one row of a column that `pack_words` made.

    Raises:
        TrailDamageError: its bytes are not whole words.
    """
    if packed is not None and len(packed) % WORD_BYTES:
        raise TrailDamageError("a row of words", f"has {len(packed)} bytes, and words have {WORD_BYTES} each")
    return np.frombuffer(packed or b"", "<i8").astype(np.int64)


def _binary(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Any:
    rows = len(offsets) - 1
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > LARGEST_BINARY:
        raise TrailError(f"the lists of {rows:,} rows have {last - first:,} bytes; write fewer rows at once")
    filled = offsets[1:] > offsets[:-1]
    validity = None if filled.all() else pa.py_buffer(np.packbits(filled, bitorder="little").tobytes())
    starts = (offsets - first).astype(np.int32)
    body = np.ascontiguousarray(data[first:last])
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(starts), pa.py_buffer(body)])


def _odd(size: int) -> TrailDamageError:
    return TrailDamageError("a packed list", f"has {size} bytes, and numbers have {NUMBER_BYTES} each")


def unpack(packed: bytes | None) -> tuple[int, ...]:
    """The numbers of one packed list.

    Raises:
        TrailDamageError: its bytes are not whole numbers.
    """
    if not packed:
        return ()
    if len(packed) % NUMBER_BYTES:
        raise _odd(len(packed))
    return struct.unpack(f">{len(packed) // NUMBER_BYTES}I", packed)


def unpack_lists(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The offsets and the numbers of a binary column of packed lists.

    Raises:
        TrailDamageError: the bytes of a list are not whole numbers.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # a chunked column without rows stays one
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.binary())
    _, starts, body = array.buffers()
    if not len(array) or starts is None:
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(starts, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    odd = np.flatnonzero(np.diff(offsets) % NUMBER_BYTES)
    if len(odd):
        raise _odd(int(offsets[odd[0] + 1] - offsets[odd[0]]))
    data = np.empty(0, np.uint8) if body is None else np.frombuffer(body, np.uint8)
    numbers = data[offsets[0] : offsets[-1]].view(">u4").astype(np.int64)
    return (offsets - offsets[0]) // NUMBER_BYTES, numbers
