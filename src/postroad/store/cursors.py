"""A cursor: the stored rows that one durable subscription, queue or spool waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.store.payloads import CursorState, packed
from postroad.store.row_sets import NO_RUNS, ROW_BITS, RowSet, Runs, intersect, runs_of, subtract, unite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store.payloads import StoredRows

__all__ = ["MAX_TRIES", "NO_CEILING", "Cursor", "Taken"]

# Beyond all places.
NO_CEILING = 2**63 - 1
# Further tries of a row are not counted, because each number is a separate set. Rows are given up before that.
MAX_TRIES = 100
# The tried rows are written whenever a client comes or goes, which one client can do many times a second: 16 KiB.
MAX_NOTED_RUNS = 1024


class Taken(NamedTuple):
    """Rows of one record taken from a cursor, in order.

    Attributes:
        places: name the rows; the taker settles them or gives them back.
        batch: where they are; several cursors share it.
        rows: which rows of the batch.
        tried: which of them were, or may have been, delivered before; None for none.
        stored: when they were stored, in ms.
        tries: how often each of them surely returned (`Log.retry`); None for never.
        notes: their notes (`Log.transfer`), each with the indices into `places` it belongs to; None for nothing.
    """

    places: NDArray[np.int64]
    batch: Batch
    rows: NDArray[np.int64]
    tried: NDArray[np.bool_] | None
    stored: int
    tries: NDArray[np.int64] | None = None
    notes: list[tuple[bytes, NDArray[np.int64]]] | None = None


class Cursor:
    """The rows of one subscription, queue or spool.

    A row is *waiting*, then *in flight*, then settled and forgotten; or it is given back, and waits again in its place.

    Attributes:
        number: unique, even after a restart.
        terms: what its owner keeps about it.
        durable: it survives a restart; otherwise it costs no record but the rows themselves.
        attached: somebody takes rows from it.
        fence: rows are given out once the record of this number is safe. It says that the cursor is attached, gave it
            rows of another cursor, or says that rows were given up.
        given_up: the number of the last record that says that rows were given up; 0 for none.
        waiting: rows to deliver.
        in_flight: rows that were given out and are neither settled nor given back.
        tried: rows that were, or may have been, given out before; a superset, cleaned when rows are given out again.
        tries: at k, the rows that surely returned more than k times; each set contains the next one.
        notes: texts, each with the rows that it belongs to.
        bytes: about how much it waits for or has in flight: rows count with the mean size of their record.
        ceiling: only rows below this place are given out: rows that were stored before may still join it below.
    """

    __slots__ = (
        "attached",
        "bytes",
        "ceiling",
        "durable",
        "fence",
        "given_up",
        "in_flight",
        "notes",
        "number",
        "terms",
        "tried",
        "tries",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        terms: bytes,
        durable: bool,
        waiting: Runs = NO_RUNS,
        tried: Runs = NO_RUNS,
        tries: Sequence[Runs] = (),
        notes: Mapping[bytes, Runs] | None = None,
    ) -> None:
        self.number = number
        self.terms = terms
        self.durable = durable
        self.attached = False
        self.fence = self.given_up = 0
        self.waiting = RowSet(waiting)
        self.in_flight = RowSet()
        self.tried = RowSet(tried)
        self.tries = [RowSet(runs) for runs in tries]
        self.notes = {text: RowSet(runs) for text, runs in (notes or {}).items()}
        self.bytes = 0
        self.ceiling = NO_CEILING

    @property
    def rows(self) -> int:
        """Return how many rows it waits for or has in flight."""
        return self.waiting.count + self.in_flight.count

    def in_flight_at(self, places: NDArray[np.int64]) -> Runs:
        """Return which of some rows, in any order, are in flight."""
        return intersect(runs_of(np.sort(places)), self.in_flight.runs)

    def unknown(self, runs: Runs) -> Runs:
        """Return which of some rows it neither waits for nor has in flight."""
        return subtract(runs, unite(self.waiting.runs, self.in_flight.runs))

    def take(self, runs: Runs) -> None:
        """Take waiting rows."""
        self.waiting.remove(runs)
        self.in_flight.add(runs)

    def give_back(self, runs: Runs) -> None:
        """Let rows in flight wait again; they count as tried."""
        self.in_flight.remove(runs)
        self.waiting.add(runs)
        self.tried.add(runs)

    def settle(self, runs: Runs) -> int:
        """Settle rows in flight; return how many there were."""
        self.forget(runs)
        return self.in_flight.remove(runs)

    def taken(self, number: int, stored: StoredRows, runs: Runs) -> Taken:
        """Return rows of a record, with what is known of their earlier tries."""
        places = runs.places()
        tried = None
        if self.tried.count:
            mask = self.tried.runs.contains(places)
            tried = mask if mask.any() else None
        rows = stored.rows_at(places - (number << ROW_BITS))
        tries = self.tries_of(places) if self.tries else None
        notes = self.notes_of(places) if self.notes else None
        return Taken(places, stored.batch, rows, tried, stored.stored, tries, notes)

    def packed_tried(self) -> tuple[bytes, bytes]:
        """Return the tried rows as they are stored: more than `MAX_NOTED_RUNS` runs become one that spans all."""
        runs = self.tried.runs
        if len(runs.starts) > MAX_NOTED_RUNS:
            runs = Runs(runs.starts[:1], runs.ends[-1:])
        return packed(runs)

    def state(self) -> CursorState:
        """Return what a checkpoint keeps of it."""
        return CursorState(
            self.number,
            self.terms,
            self.attached,
            packed(unite(self.waiting.runs, self.in_flight.runs)),
            self.packed_tried(),
            [packed(rows.runs) for rows in self.tries],
            [(text, packed(rows.runs)) for text, rows in self.notes.items()],
        )

    def count_try(self, runs: Runs) -> list[Runs]:
        """Count one more return of rows; return, for each number of tries, which of them returned more often."""
        raised = [runs]
        for rows in self.tries[: MAX_TRIES - 1]:
            again = intersect(runs, rows.runs)
            if not len(again.starts):
                break
            raised.append(again)
        for level, more in enumerate(raised):
            if level == len(self.tries):
                self.tries.append(RowSet())
            self.tries[level].add(more)
        return raised

    def tries_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each of the rows surely returned."""
        count = np.zeros(len(places), np.int64)
        for rows in self.tries:
            came = rows.runs.contains(places)
            if not came.any():
                break
            count += came
        return count

    def notes_of(self, places: NDArray[np.int64]) -> list[tuple[bytes, NDArray[np.int64]]]:
        """Return the notes of the rows, each with the indices of the rows it belongs to."""
        found = ((text, np.flatnonzero(rows.runs.contains(places))) for text, rows in self.notes.items())
        return [(text, at) for text, at in found if len(at)]

    def lose(self, runs: Runs) -> Iterator[Runs]:
        """Remove rows of a damaged record; yield those that waited, then those in flight."""
        for rows in (self.waiting, self.in_flight):
            gone = intersect(Runs(*(each.copy() for each in rows.runs)), runs)
            rows.remove(gone)
            yield gone

    def forget(self, runs: Runs) -> None:
        """Forget rows, and all that is known about them."""
        if self.tried.count:
            self.tried.remove(runs)
        if self.tries:
            for rows in self.tries:
                rows.remove(runs)
            while self.tries and not self.tries[-1].count:
                self.tries.pop()
        if self.notes:
            for rows in self.notes.values():
                rows.remove(runs)
            self.notes = {text: rows for text, rows in self.notes.items() if rows.count}
