"""The arrays of an index in three bundles, as kernels hand them on: what is resident, its ranges, and the current row.

A bundle is a tuple with names; inside a kernel it costs nothing. From Python, each array of it costs a little on every
call, so the hot call (`batch_match.scan`) takes the arrays one by one and bundles them itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.kernels import bundle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CHUNKS", "STORE", "Chunks", "Reading", "Store"]


class Store(NamedTuple):
    """What is resident. `columns.py` names the columns.

    Attributes:
        constraints: int32[n, 16]; each constraint once.
        bounds: float64[n, 2]; the closed bounds of a range.
        bits: int64[n, 2]; a number in canonical form, or the bounds of a range as they were written.
        keys: uint64[n]; the key of each constraint in `table`.
        table: uint64[2**k]; constraints by key, open addressing.
        lists: uint64[2**k]; lists of constraints by their members.
        words: int32[:]; buckets, lists, programs and directories, in blocks.
        text: uint8[:]; texts of constraints and names of attributes, in blocks.
        attributes: int32[n, 12]; what is asked of each attribute.
        counters: int64[81]; how much of everything is used, and the heads of free lists.
        conjunctions: int32[n, 5].
        masks: uint64[n, 3]; which lengths of prefix, suffix and gram are resident, per attribute.
        sieve: uint64[4096]; which pieces of text may be resident.
        names: uint64[2**k]; attributes by name.
        shapes: int64[n, 4]; shapes of topic patterns.
    """

    constraints: NDArray[np.int32]
    bounds: NDArray[np.float64]
    bits: NDArray[np.int64]
    keys: NDArray[np.uint64]
    table: NDArray[np.uint64]
    lists: NDArray[np.uint64]
    words: NDArray[np.int32]
    text: NDArray[np.uint8]
    attributes: NDArray[np.int32]
    counters: NDArray[np.int64]
    conjunctions: NDArray[np.int32]
    masks: NDArray[np.uint64]
    sieve: NDArray[np.uint64]
    names: NDArray[np.uint64]
    shapes: NDArray[np.int64]


class Chunks(NamedTuple):
    """The ranges that conjunctions are reached through, in chunks (`ranges.py`).

    Attributes:
        lows: float64[n, 128]; low bounds.
        highs: float64[n, 128]; high bounds.
        entries: int32[n, 3 * 128]; the entries of each range.
        summaries: float64[n, 5]; the least and most bounds of each chunk.
        sizes: int32[n]; how many ranges each chunk holds.
    """

    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    entries: NDArray[np.int32]
    summaries: NDArray[np.float64]
    sizes: NDArray[np.int32]


class Reading(NamedTuple):
    """What is known about the row that is matched now.

    Attributes:
        values: int64[n, 8]; the value of each attribute, stamped with the row it belongs to.
        numbers: float64[n]; the same as a number.
        memory: int64[n]; the last result of each costly constraint: stamp << 1 | result.
        seen: int64[n]; slots reported, stamped likewise.
        stack, floats: the stack of programs.
        hashes: uint64[:]; the levels of the topic, hashed, and room for searches in texts (`search.py`).
        present: int32[n]; the attributes the row has.
        pending: int32[n]; the constraints it reaches.
        known, known_values: numbers that Python rounded, by their place in the buffer.
        hard: int64[n, 2]; how many numbers Python has yet to round, the work done so far, and where the numbers are.
    """

    values: NDArray[np.int64]
    numbers: NDArray[np.float64]
    memory: NDArray[np.int64]
    seen: NDArray[np.int64]
    stack: NDArray[np.int64]
    floats: NDArray[np.float64]
    hashes: NDArray[np.uint64]
    present: NDArray[np.int32]
    pending: NDArray[np.int32]
    known: NDArray[np.int64]
    known_values: NDArray[np.float64]
    hard: NDArray[np.int64]


# What kernel signatures call the bundles.
STORE = bundle(
    Store,
    "int32[:, ::1], float64[:, ::1], int64[:, ::1], uint64[::1], uint64[::1], uint64[::1], int32[::1], uint8[::1],"
    " int32[:, ::1], int64[::1], int32[:, ::1], uint64[:, ::1], uint64[::1], uint64[::1], int64[:, ::1]",
)
CHUNKS = bundle(Chunks, "float64[:, ::1], float64[:, ::1], int32[:, ::1], float64[:, ::1], int32[::1]")
