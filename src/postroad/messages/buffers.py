"""Turns the bytes and lengths that callers pass into the arrays that kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.limits import MAX_BATCH_BYTES

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from postroad.messages.columns import Bytes, Lengths

Buffer: TypeAlias = "bytes | bytearray | memoryview | Bytes"


def byte_array(data: Buffer) -> Bytes:
    """Return the bytes as an array, without a copy. A bytearray cannot be resized while the array lives."""
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise MessageError(f"a buffer is a contiguous uint8 array, not {data.dtype} of shape {data.shape}")
        array = data
    else:
        try:
            array = np.frombuffer(data, dtype=np.uint8)
        except (TypeError, ValueError, BufferError) as error:
            raise MessageError(f"cannot read {type(data).__name__} as bytes: {error}") from None
    if len(array) > MAX_BATCH_BYTES:
        raise DecodeError(f"the buffer has {len(array):,} bytes; one batch has at most {MAX_BATCH_BYTES:,}")
    return array


def length_array(lengths: ArrayLike) -> Lengths:
    """Return lengths as int32[:]; the error names the row of a length that does not fit."""
    if isinstance(lengths, np.ndarray) and lengths.dtype == np.int32 and lengths.ndim == 1:
        return np.ascontiguousarray(lengths)
    try:
        wide = np.asarray(lengths)
        if wide.size == 0:
            return np.empty(0, dtype=np.int32)
        if wide.ndim != 1 or wide.dtype.kind not in "iu":
            raise MessageError(f"lengths are one row of integers, not {wide.dtype} of shape {wide.shape}")
    except (TypeError, ValueError) as error:
        raise MessageError(f"lengths are one row of integers: {error}") from None
    bad = np.flatnonzero((wide < 0) | (wide > MAX_BATCH_BYTES))
    if len(bad):
        raise DecodeError(f"a length of {int(wide[bad[0]]):,} is not possible", int(bad[0]))
    return wide.astype(np.int32)
