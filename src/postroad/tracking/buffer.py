"""One append-only buffer for the keys of all open histories.

Keys are in chunks in the order in which they came; a *run* says how far the keys of one history reach. Memory follows
the traffic: a history that gets a key a minute costs that key and its run. Chunks are shared with jobs on other
threads: what is written once is never changed.

A run is one word, `slot of the history << 24 | end in the chunk`; it begins where the run before it ends. Ends are at
most the size of a chunk, which fits 24 bits; a slot below the base is negative here, and is compared with 0 before it
is used. Nothing from outside is an index: keys are compared and copied.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import Int, kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]

__all__ = ["CHUNK_KEYS", "Extract", "KeyBuffer"]

CHUNK_KEYS = 1 << 15  # 256 KiB: what a broker that idles holds
_END_BITS = 24  # a run: the number of the history, and where in the chunk it ends
_END_MASK = (1 << _END_BITS) - 1


class _Chunk:
    __slots__ = ("keys", "runs", "used")

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.runs = array("Q")
        self.used = 0


@kernel(
    "void(uint64[::1], Array(uint64, 1, 'C', readonly=True), int64, int64[::1], int64[::1], uint64[::1])",
    allocates=False,
)
def _extract(
    keys: Keys,
    runs: NDArray[np.uint64],
    base: Int,
    places: NDArray[np.int64],
    cursors: NDArray[np.int64],
    out: Keys,
) -> None:
    """Copy the runs of wanted histories: `places[slot - base]` is the index of a wanted one, or -1.

    `cursors` begins with where the keys of each history start in `out`, which has room for as many keys as each has.
    """
    begin = np.int64(0)
    for run in runs:
        end = np.int64(run & np.uint64(_END_MASK))
        slot = np.int64(run >> np.uint64(_END_BITS)) - base
        if 0 <= slot < len(places) and places[slot] >= 0:
            place = places[slot]
            for at in range(begin, end):
                out[cursors[place]] = keys[at]
                cursors[place] += 1
        begin = end


@kernel(
    "int64(uint64[::1], Array(uint64, 1, 'C', readonly=True), uint64[::1], uint64[::1], int64, uint64[:, ::1])",
    allocates=False,
)
def _search(
    keys: Keys, runs: NDArray[np.uint64], table: Keys, known: Keys, found: Int, hits: NDArray[np.uint64]
) -> Int:
    """Find keys of an open-addressing table in a chunk; returns how many rows of `hits` are filled.

    `known` says which places of the table are filled, since a key may be 0. A quarter of them at most are, so every
    search ends.
    """
    mask = np.uint64(len(table) - 1)
    begin = np.int64(0)
    for run in runs:
        end = np.int64(run & np.uint64(_END_MASK))
        for at in range(begin, end):
            place = keys[at] & mask
            while known[place] != 0:
                if table[place] == keys[at]:
                    if found < len(hits):
                        hits[found, 0] = run >> np.uint64(_END_BITS)
                        hits[found, 1] = keys[at]
                        found += 1
                    break
                place = (place + np.uint64(1)) & mask
        begin = end
    return found


class Extract(NamedTuple):
    """What a job takes along: chunks as they are now."""

    chunks: tuple[tuple[Keys, array[int]], ...]

    def grouped(self, sizes: dict[int, int]) -> dict[int, Keys]:
        """The keys of each wanted history, by its slot; `sizes` says how many it has."""
        if not sizes:
            return {}
        slots = sorted(sizes)
        base = slots[0]
        places = np.full(slots[-1] - base + 1, -1, np.int64)
        places[np.array(slots) - base] = np.arange(len(slots))
        starts = np.concatenate([[0], np.cumsum([sizes[slot] for slot in slots])]).astype(np.int64)
        out = np.empty(int(starts[-1]), np.uint64)
        cursors = starts[:-1].copy()
        for keys, runs in self.chunks:
            if runs:
                _extract(keys, np.frombuffer(runs, np.uint64), base, places, cursors, out)
        return {slot: out[starts[index] : starts[index + 1]] for index, slot in enumerate(slots)}

    def search(self, wanted: Keys, most: int) -> list[tuple[int, int]]:
        """(slot, key) of wanted keys that are in it, up to a number."""
        size = 4 << max(4, len(wanted)).bit_length()
        table, known = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        for key in wanted.tolist():
            place = key & (size - 1)
            while known[place] and table[place] != key:
                place = (place + 1) & (size - 1)
            table[place], known[place] = key, 1
        hits, found = np.empty((most, 2), np.uint64), 0
        for keys, runs in self.chunks:
            if runs:
                found = _search(keys, np.frombuffer(runs, np.uint64), table, known, found, hits)
        return [(slot, key) for slot, key in hits[:found].tolist()]

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return sum(keys.nbytes + 8 * len(runs) for keys, runs in self.chunks)


class KeyBuffer:
    """The open end of it all."""

    def __init__(self, chunk_keys: int = CHUNK_KEYS) -> None:
        self._size = chunk_keys
        # Memory of chunks that are not read any more: it costs less than fresh memory, which the system hands out page
        # by page.
        self._spare: list[Keys] = []
        self._chunks = [self._chunk()]
        self.entries = 0

    def _chunk(self) -> _Chunk:
        return _Chunk(self._spare.pop() if self._spare else np.empty(self._size, np.uint64))

    def recycle(self, done: Extract, others: Iterable[Extract]) -> None:
        """A job is done with what it took: reuse the memory unless another job reads it."""
        used = {id(keys) for extract in [self.extract(), *others] for keys, _ in extract.chunks}
        self._spare += [keys for keys, _ in done.chunks if id(keys) not in used]

    def room(self, most: int) -> Keys:
        """Where the next keys go: between one place and a number of them."""
        last = self._chunks[-1]
        if last.used == self._size:
            last = self._chunk()
            self._chunks.append(last)
        return last.keys[last.used : min(self._size, last.used + most)]

    def filled(self, slot: int, count: int) -> None:
        """So many keys of a history were put into the room given last."""
        last = self._chunks[-1]
        last.used += count
        self.entries += count
        run = slot << _END_BITS | last.used
        if last.runs and last.runs[-1] >> _END_BITS == slot:
            last.runs[-1] = run
        else:
            last.runs.append(run)

    def append(self, slot: int, keys: Keys) -> None:
        """Keys of a history that are there already."""
        while len(keys):
            room = self.room(len(keys))
            room[:] = keys[: len(room)]
            self.filled(slot, len(room))
            keys = keys[len(room) :]

    def extract(self) -> Extract:
        """All there is, for a job."""
        return Extract(tuple((chunk.keys, chunk.runs[:]) for chunk in self._chunks if chunk.used))

    def keep_only(self, sizes: dict[int, int]) -> None:
        """Forget all but the keys of some histories, given with their sizes."""
        kept = self.extract().grouped(sizes) if sizes else {}
        # As much is kept in reserve as was in use: little, once traffic is low.
        del self._spare[len(self._chunks) :]
        self._chunks = [self._chunk()]
        self.entries = 0
        for slot, keys in kept.items():
            self.append(slot, keys)

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return sum(chunk.keys.nbytes + 8 * len(chunk.runs) for chunk in self._chunks)


def total(extracts: Iterable[Extract]) -> int:
    """Memory that extracts hold together; chunks they share count once."""
    chunks = {id(keys): keys.nbytes for extract in extracts for keys, _ in extract.chunks}
    return sum(chunks.values())
