"""The open part of the exact record: what was reported, in the order and the portions of the reports.

Nothing here is done per message: ids of a batch are copied as a block, or not at all where one follows the other as
those of a busy publisher do; and what happens to the rows of a batch later is one *entry*, whether it was one row or
all. Rows are put in order and lists are filled in when the book is sealed.
"""

from __future__ import annotations

from array import array
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Truth, kernel
from postroad.tracking.segments import ADDENDUM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.tracking.contract import Rows

    Words = NDArray[np.uint64]

__all__ = [
    "ACKNOWLEDGED",
    "BLOCK_FIELDS",
    "DELIVERED",
    "ENTRY_FIELDS",
    "KINDS",
    "NOTE_FIELDS",
    "QUEUED",
    "REFUSED",
    "RELAYED",
    "WHOLE",
    "Book",
]

# What an entry says, in the order of the lists of `Passages`.
RELAYED, DELIVERED, ACKNOWLEDGED, REFUSED, QUEUED = range(5)
KINDS = 5

# `first`: the entry is about all rows of its block.
WHOLE = -1

BLOCK_FIELDS = 3  # start, count, came from
ENTRY_FIELDS = 5  # kind, number, start of the block, first of the rows (or WHOLE), how many
RUN_FIELDS = 4  # start, count, head of all ids, tail of the first: each tail is one more than the one before
NOTE_FIELDS = 3  # head, tail, kind << 32 | number: about one message whose block is not known

_CHUNK_ROWS = 1 << 16  # 1 MiB of ids: few enough chunks, and a book of one message is small enough
_ROWS_AT_FIRST = 1 << 12
_LEAST_RUN = 8  # below this a copy is as small
# A queue gives the rows of a batch out in portions, while other batches come in. Batches in flight are few: what is
# older than these is still recorded, with the ids copied a second time. Twice as many are kept before the older half
# is let go of, all at once.
_RECENT_BATCHES = 64

# An array takes packed bytes in half the time of numbers one by one.
_pack_block, _pack_entry, _pack_run = Struct("3q").pack, Struct("5q").pack, Struct("4Q").pack


@kernel("boolean(uint64[:, ::1])", allocates=False)
def _is_run(ids: Words) -> Truth:
    """Whether each id is the next of the one before."""
    head, tail = ids[0, 0], ids[0, 1]
    for row in range(1, len(ids)):
        if ids[row, 0] != head or ids[row, 1] != tail + np.uint64(row):
            return False
    return True


@kernel("void(uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])", allocates=False)
def _expand(copied: Words, runs: Words, out: Words) -> None:
    """All ids in the order they came: those of runs in their places, and copied ones in the places between.

    Runs are in order and do not overlap. Copied ids and those of runs together are as many as `out` has rows.
    """
    at = 0
    taken = 0
    for index in range(len(runs) + 1):
        start = np.int64(runs[index, 0]) if index < len(runs) else len(out)
        while at < start:
            out[at, 0] = copied[taken, 0]
            out[at, 1] = copied[taken, 1]
            at += 1
            taken += 1
        if index < len(runs):
            for step in range(np.int64(runs[index, 1])):
                out[at, 0] = runs[index, 2]
                out[at, 1] = runs[index, 3] + np.uint64(step)
                at += 1


def _anonymous(ids: Words) -> tuple[int, int, int]:
    """The entry of a batch that is not known as a run; no run has a size below 0."""
    return id(ids), 0, -1


class Book:
    """Blocks of ids, entries about their rows, and notes about single messages.

    Args:
        since: when it is opened.
        spare: chunks of earlier books, taken from the end. Memory that was in use a moment ago costs less than fresh
            memory, which the system gives page by page.
    """

    def __init__(self, since: int, spare: list[NDArray[np.uint64]] | None = None) -> None:
        self.since = since
        self._spare = [] if spare is None else spare
        self.blocks = array("q")
        self.entries = array("q")
        self.notes = array("Q")
        self._runs = array("Q")
        self.count = 0  # ids in all blocks
        self.records = 0
        self._chunks: list[NDArray[np.uint64]] = [self._chunk(0)]
        self._filled: list[int] = []  # rows used of the chunks that are full
        self._used = 0
        self._copied = 0
        self._capacity = _CHUNK_ROWS
        self._rows = np.empty(_ROWS_AT_FIRST, np.int32)
        self._rows_used = 0
        # Where the blocks of batches start. A run is known by its first id and its size. Other batches are known by the
        # identity of their ids, which are held so that it stays theirs; of runs nothing is held, as memory between that
        # of other messages would keep the next batch from being put where the last one was, in the cache.
        self._recent: dict[tuple[int, int, int], tuple[NDArray[np.uint64] | None, int]] = {}

    def take(self, ids: NDArray[np.uint64], arrived_from: int, run: tuple[int, int] | None = None) -> None:
        """The ids of a batch that came in; with the first, where each is known to be the next of the one before."""
        recent = self._recent
        if len(recent) >= 2 * _RECENT_BATCHES:
            recent = self._recent = dict(islice(recent.items(), _RECENT_BATCHES, None))
        start = self._copy(ids, arrived_from, run)
        if run is None:
            recent[_anonymous(ids)] = (ids, start)
        else:
            recent[(*run, len(ids))] = (None, start)
        self.records += len(ids)

    def _copy(self, ids: NDArray[np.uint64], arrived_from: int, run: tuple[int, int] | None = None) -> int:
        size = len(ids)
        start = self.count
        self.count = start + size
        self.blocks.frombytes(_pack_block(start, size, arrived_from))
        # As long as nothing is copied, short runs are kept as such too: a book of runs alone is sealed the short way.
        if size >= _LEAST_RUN or (size and not self._copied):
            if run is None and _is_run(ids):
                run = ids.item(0, 0), ids.item(0, 1)
            if run is not None:
                self._runs.frombytes(_pack_run(start, size, *run))
                return start
        chunk = self._chunks[-1]
        if self._used + size > len(chunk):
            self._filled.append(self._used)
            chunk = self._chunk(size)
            self._chunks.append(chunk)
            self._capacity += len(chunk)
            self._used = 0
        chunk[self._used : self._used + size] = ids
        self._used += size
        self._copied += size
        return start

    def _chunk(self, rows: int) -> NDArray[np.uint64]:
        if self._spare and rows <= _CHUNK_ROWS:
            return self._spare.pop()
        return np.empty((max(_CHUNK_ROWS, rows), 2), np.uint64)

    def chunks(self) -> list[NDArray[np.uint64]]:
        """Those that another book can use, once this one is done with."""
        return [chunk for chunk in self._chunks if len(chunk) == _CHUNK_ROWS]

    def enter(
        self, ids: NDArray[np.uint64], rows: Rows, kind: int, number: int, run: tuple[int, int] | None = None
    ) -> None:
        """Something happened to rows of a batch, of which the same is known as when it was taken."""
        size = len(rows)
        if not size:
            return
        self.records += size
        known = self._recent.get(_anonymous(ids) if run is None else (*run, len(ids)))
        if known is None:
            start = self._copy(ids[rows], ADDENDUM)
            self.entries.frombytes(_pack_entry(kind, number, start, WHOLE, size))
        elif size == len(ids):
            self.entries.frombytes(_pack_entry(kind, number, known[1], WHOLE, size))
        else:
            first = self._rows_used
            if first + size > len(self._rows):
                self._grow(first + size)
            self._rows[first : first + size] = rows
            self._rows_used = first + size
            self.entries.frombytes(_pack_entry(kind, number, known[1], first, size))

    def _grow(self, size: int) -> None:
        larger = np.empty(max(size, 2 * len(self._rows)), np.int32)
        larger[: self._rows_used] = self._rows[: self._rows_used]
        self._rows = larger

    def note(self, ids: NDArray[np.uint64], kind: int, number: int) -> None:
        """Something happened to single messages."""
        noted = np.empty((len(ids), NOTE_FIELDS), np.uint64)
        noted[:, :2] = ids
        noted[:, 2] = kind << 32 | number
        self.notes.frombytes(noted.tobytes())
        self.records += len(ids)

    def close(self) -> None:
        """Nothing more comes in: let go of the batches."""
        self._recent.clear()

    @property
    def empty(self) -> bool:
        return not self.blocks and not self.notes

    @property
    def held_bytes(self) -> int:
        """Memory of the book, without that of batches still in flight."""
        arrays = (len(self.blocks) + len(self.entries) + len(self.notes) + len(self._runs)) * 8
        return self._capacity * 16 + len(self._rows) * 4 + arrays

    @property
    def unfolded_bytes(self) -> int:
        """Memory of all ids when the book is sealed, which runs do not have before; the least that sealing takes."""
        return self.count * 16 + len(self._rows) * 4 + (len(self.entries) + len(self.notes)) * 8

    @property
    def rows(self) -> NDArray[np.int32]:
        return self._rows[: self._rows_used]

    def runs(self) -> NDArray[np.uint64] | None:
        """The run of each block, if all blocks are runs."""
        if self._copied or self.notes or len(self._runs) // RUN_FIELDS != len(self.blocks) // BLOCK_FIELDS:
            return None
        return np.array(self._runs, np.uint64).reshape(-1, RUN_FIELDS)

    def ids(self) -> NDArray[np.uint64]:
        """The ids of all blocks, end to end."""
        filled = [*self._filled, self._used]
        copied = np.concatenate([chunk[:used] for chunk, used in zip(self._chunks, filled, strict=True)])
        if not self._runs:
            return copied
        out = np.empty((self.count, 2), np.uint64)
        _expand(copied, np.array(self._runs, np.uint64).reshape(-1, RUN_FIELDS), out)
        return out

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Blocks, entries and notes, one row each. Copies: an array that lends its memory could not grow."""
        return (
            np.array(self.blocks, np.int64).reshape(-1, BLOCK_FIELDS),
            np.array(self.entries, np.int64).reshape(-1, ENTRY_FIELDS),
            np.array(self.notes, np.uint64).reshape(-1, NOTE_FIELDS),
        )

    def about(self, head: int, tail: int) -> Iterator[tuple[int, int]]:
        """All that the book has on one id: (came from, 0) as (-1, number), and (kind, number) of each entry."""
        places = self._places(np.uint64(head), np.uint64(tail))
        if len(places):
            blocks, entries, _ = self.tables()
            holding = np.searchsorted(blocks[:, 0], places, side="right") - 1
            for arrived_from in blocks[holding, 2].tolist():
                yield -1, arrived_from
            yield from self._entries_about(entries, blocks[holding, 0], set(places.tolist()))
        notes = np.array(self.notes, np.uint64).reshape(-1, NOTE_FIELDS)
        for code in notes[(notes[:, 0] == np.uint64(head)) & (notes[:, 1] == np.uint64(tail)), 2].tolist():
            yield code >> 32, code & 0xFFFFFFFF

    def _places(self, head: np.uint64, tail: np.uint64) -> NDArray[np.int64]:
        """Return the place of an id among those of all blocks.

        Runs are not laid out for that: a question is asked on the loop, and a full book has some millions of ids.
        """
        runs = np.array(self._runs, np.uint64).reshape(-1, RUN_FIELDS)
        # Numbers below 0 wrap around to some that no run is as long as.
        beyond = tail - runs[:, 3]
        within = (runs[:, 2] == head) & (beyond < runs[:, 1])
        in_runs = (runs[within, 0] + beyond[within]).astype(np.int64)
        copied: list[int] = []
        before = 0
        for chunk, used in zip(self._chunks, [*self._filled, self._used], strict=True):
            rows = np.flatnonzero(chunk[:used, 1] == tail)
            copied += (before + rows[chunk[rows, 0] == head]).tolist()
            before += used
        if not copied:
            return np.sort(in_runs)
        blocks = np.array(self.blocks, np.int64).reshape(-1, BLOCK_FIELDS)
        sizes = np.where(np.isin(blocks[:, 0], runs[:, 0].astype(np.int64)), 0, blocks[:, 1])
        ends = np.cumsum(sizes)
        holding = np.searchsorted(ends, copied, side="right")
        in_blocks = blocks[holding, 0] + np.array(copied, np.int64) - (ends - sizes)[holding]
        return np.sort(np.concatenate([in_runs, in_blocks]))

    def _entries_about(
        self, entries: NDArray[np.int64], starts: NDArray[np.int64], places: set[int]
    ) -> Iterator[tuple[int, int]]:
        for kind, number, start, first, size in entries[np.isin(entries[:, 2], starts)].tolist():
            inside = (
                range(start, start + size) if first == WHOLE else (self.rows[first : first + size] + start).tolist()
            )
            if not places.isdisjoint(inside):
                yield kind, number
