"""The log of one broker: what waits to be written, what is stored, and which cursors need it. No I/O here.

Rows and acknowledgements (`append`, `settle`) collect in memory. The driver takes a `DiskCommit`, carries it out on a
disk, outside the loop, and reports the result (`committed`, `failed`); meanwhile the next commit collects. `take_reads`
lists records that cursors wait for and that are not in memory; `loaded` brings them back.

Rule 1: a row is stored once, in the record of the commit it came with, however many cursors wait for it.
Rule 2: a row's place contains the number of its record, and numbers rise in the order of writing, so every cursor gives
    rows in the order in which they were appended. A record that moves to another segment keeps the number that
    places use.
Rule 3: a durable cursor gives only rows that are safe: no crash that `fsync` protects from can lose them.

`open_record` gathers rows, `writer` turns records into commits, `record_reads` says what to read, and `sparse_segments`
empties segments of which little is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.store.cache import RecordCache
from postroad.store.catalog import UNPLACED, Catalog, CatalogEntry
from postroad.store.cursors import Cursor, Taken
from postroad.store.errors import StoreFullError
from postroad.store.open_record import MatchedRows, OpenRecord
from postroad.store.payloads import (
    CheckpointState,
    CursorChange,
    StoredRows,
    Transfer,
    latest_time,
    packed,
    place_of,
    settled_payload,
    tried_payload,
)
from postroad.store.record_reads import RecordReads
from postroad.store.records import HEADER_BYTES, Kind, segment_name
from postroad.store.room import StoreRoom, StoreUse
from postroad.store.row_sets import ROW_BITS, RowSet, Runs, intersect, runs_of
from postroad.store.sparse_segments import SparseSegments
from postroad.store.statistics import StoreStatistics
from postroad.store.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store.disk import DiskCommit, Read
    from postroad.store.recovery import Recovered
    from postroad.store.settings import StoreSettings

__all__ = ["Log"]

# Damage is described this often; after that it is only counted.
MAX_NOTICES = 100


class Log:
    """An append-only log in segments, and the cursors over it.

    Args:
        settings: sizes, limits, and when to force the disk.
        recovered: the state that an earlier process left; None for an empty store.

    Attributes:
        cursors: by number.
        room: how much more is accepted.
        touches: counts changes that a crash must not lose.
        on_work: called whenever there is something to write or to read.
        notices: descriptions of damage that was found.
    """

    def __init__(self, settings: StoreSettings, recovered: Recovered | None = None) -> None:
        self.settings = settings
        self.cursors: dict[int, Cursor] = {}
        self._durable: set[int] = set()
        self.notices: list[str] = []
        self._catalog = Catalog()
        self._cache = RecordCache(settings.cache_bytes)
        self.room = StoreRoom(settings, self._use)
        self._writer = LogWriter(settings, self.room, self._catalog, self._cache, self._checkpoint, self._empty_sparse)
        self._reads = RecordReads(self._catalog, self._cache, settings.cache_bytes, self.wake)
        self._sparse = SparseSegments(self._catalog, self._cache, self._reads, self.cursors, self._append_moved)
        self._open = OpenRecord()
        self._settled: dict[int, list[NDArray[np.int64]]] = {}
        self._settled_durable = False
        self.touches = 0
        self.on_work: Callable[[], None] | None = None
        self._appended_rows = self._settled_rows = self._damaged = self._lost_rows = 0
        if recovered is not None:
            self._resume(recovered)

    def _resume(self, recovered: Recovered) -> None:
        self._writer.resume(recovered.segments, recovered.unforced, recovered.next_number, recovered.cut_bytes > 0)
        for segment in recovered.preserved:
            self._writer.preserve(segment)
        self._damaged, self._lost_rows = recovered.damaged, recovered.lost_rows
        self.notices = list(recovered.notices[:MAX_NOTICES])
        self._catalog.load(recovered.records)
        for state in recovered.cursors:
            cursor = Cursor(state.number, state.terms, True, state.live, state.tried, state.tries, state.notes)
            cursor.bytes = self._catalog.count(state.live, 1)
            self.cursors[cursor.number] = cursor
            self._durable.add(cursor.number)

    # --- cursors -----------------------------------------------------------------------------------------------------

    def open_cursor(self, number: int, terms: bytes = b"", durable: bool = True) -> Cursor:
        """Open a cursor: rows that are appended from now on can match it."""
        cursor = self.cursors[number] = Cursor(number, terms, durable)
        if durable:
            self._durable.add(number)
        self._note(CursorChange(number, terms, opens=True), cursor)
        return cursor

    def change_cursor(self, cursor: Cursor, terms: bytes) -> None:
        """Replace the terms of a cursor; its rows stay."""
        cursor.terms = terms
        self._note(CursorChange(cursor.number, terms, cursor.attached, cursor.packed_tried()), cursor)

    def attach(self, cursor: Cursor) -> None:
        """Let a consumer take rows from a cursor. After a crash, all its waiting rows count as tried."""
        cursor.attached = True
        self._note(CursorChange(cursor.number, cursor.terms, True, cursor.packed_tried()), cursor)
        # Rows go out only once this record is safe: recovery then knows that they may have been tried.
        self.fence(cursor)

    def detach(self, cursor: Cursor, returns: bool = True) -> None:
        """Remove the consumer of a cursor: rows in flight wait again, and count as tried.

        Without `returns` they stay in flight, and the owner gives them back later.
        """
        # Do this first, or rows that are already settled would wait again.
        self._seal_settled()
        cursor.attached = False
        if returns:
            cursor.give_back(Runs(*(each.copy() for each in cursor.in_flight.runs)))
        self._note(CursorChange(cursor.number, cursor.terms, False, cursor.packed_tried()), cursor)

    def end_cursor(self, cursor: Cursor) -> None:
        """Close a cursor; its rows are no longer needed by it."""
        # Its settled rows are still in flight, and released below with all others.
        self._settled.pop(cursor.number, None)
        if self._open.has_rows_of(cursor.number):
            self._seal()
        self._catalog.count(cursor.waiting.runs, -1)
        self._catalog.count(cursor.in_flight.runs, -1)
        del self.cursors[cursor.number]
        self._durable.discard(cursor.number)
        self._note(CursorChange(cursor.number, None), cursor)

    def _note(self, change: CursorChange, cursor: Cursor) -> None:
        if cursor.durable:
            self.touches += 1
            self._enqueue(Kind.CURSOR, msgspec.msgpack.encode(change), True)

    # --- rows --------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all segments, with what waits to be written."""
        return self._writer.size + self._open.bytes

    def _use(self) -> StoreUse:
        return StoreUse(self.size, self._writer.waiting_bytes + self._open.bytes, self.trouble)

    def append(self, batch: Batch, matches: Sequence[tuple[Cursor, NDArray[np.int64]]], now: int) -> int:
        """Store rows for the cursors they matched; returns the number that `safe` reaches when they are safe.

        Args:
            batch: where the rows are; nothing of it is kept.
            matches: the rows of each cursor, in order, without repeats.
            now: the time in ms.

        Raises:
            StoreFullError: the store has no room for them.
        """
        rows = MatchedRows(batch, matches)
        # What the disk has no room for at the moment can wait in memory: a caller that has a choice asks before.
        if lack := self.room.lack_in_log(rows.encoded.size):
            raise StoreFullError(lack)
        if not self._open.has_room(rows.encoded):
            self._seal()
        self._open.add(rows, now)
        self.touches += sum(cursor.durable for cursor, _ in matches)
        self._appended_rows += rows.encoded.count
        self.wake()
        return self._writer.number

    def last_places(self, cursor: Cursor) -> NDArray[np.int64]:
        """The places of the rows that `append` has just stored for a cursor."""
        return place_of(self._writer.number, self._open.last_of(cursor.number))

    def wake(self) -> None:
        """Tell the driver that there is something to do."""
        if self.on_work is not None:
            self.on_work()

    def _seal(self) -> None:
        """Close the open record."""
        if not self._open:
            return
        sealed, self._open = self._open, OpenRecord()
        number, matches = self._writer.number, sealed.matches()
        payload = sealed.payload(matches, self._durable)
        length, latest = HEADER_BYTES + len(payload), latest_time(payload)
        self._catalog.add(CatalogEntry(number, number, UNPLACED, 0, length, sealed.rows, sealed.stored, latest))
        self._cache.pin(number, payload)
        held = [(cursor, each.rows) for each in matches if (cursor := self.cursors.get(each.cursor)) is not None]
        for cursor, rows in held:
            cursor.waiting.append(runs_of(place_of(number, rows)))
            cursor.bytes += length // max(sealed.rows, 1) * len(rows)
        self._catalog.count_all(number, sum(len(rows) for _, rows in held))
        self._enqueue(Kind.BATCH, payload, any(each.cursor in self._durable for each in matches), catalogued=number)

    def _enqueue(self, kind: Kind, payload: bytes, durable: bool, catalogued: int = 0) -> None:
        if kind is not Kind.BATCH:
            # The rows of the open record were promised the next number.
            self._seal()
        self._writer.add(kind, payload, durable, catalogued)
        self.wake()

    def pull(self, cursor: Cursor, most: int) -> list[Taken]:
        """Take the next rows of a cursor, `most` at most, up to the first that is not safe or not in memory."""
        return self._reads.pull(cursor, most, self._below(cursor))

    def _below(self, cursor: Cursor) -> int:
        """Return the place up to which a cursor may give rows."""
        if self.is_fenced(cursor):
            return 0
        return min((self.safe + 1 if cursor.durable else self._writer.number) << ROW_BITS, cursor.ceiling)

    def is_fenced(self, cursor: Cursor) -> bool:
        """Return whether nothing can be taken from a cursor now."""
        return cursor.durable and cursor.fence > self.safe

    def fence(self, cursor: Cursor) -> None:
        """Take nothing more of a cursor before all that was noted so far is safe."""
        self._seal_settled()
        cursor.fence = max(cursor.fence, self._writer.number - 1)

    def peek(self, cursor: Cursor, among: Runs, most: int) -> list[Taken]:
        """Show the first of some waiting rows of a cursor, `most` at most: those that are safe and in memory.

        They keep waiting until `take` returns them. Records that are not in memory are listed by `take_reads`.
        """
        return self._reads.peek(cursor, among, most, self._below(cursor))

    def take(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Take waiting rows of a cursor that `peek` has shown."""
        cursor.take(runs_of(places))

    def settle(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Settle rows that a cursor gave out."""
        self._settled.setdefault(cursor.number, []).append(places)
        self._settled_durable |= cursor.durable
        self.touches += cursor.durable
        self.wake()

    def give_back(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Let rows that were given out wait again, in their old order; they count as tried."""
        # Without rows whose record was found damaged in the meantime.
        cursor.give_back(cursor.in_flight_at(places))

    def retry(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Count a failed try of rows that were given out. They wait again when they are given back."""
        runs = cursor.in_flight_at(places)
        if not len(runs.starts):
            return
        cursor.tried.add(runs)
        raised = cursor.count_try(runs)
        if cursor.durable:
            # Not durable: a crash may lose a count, so this costs no sync.
            self._enqueue(Kind.TRIED, tried_payload(cursor.number, raised), False)

    def transfer(self, cursor: Cursor, places: NDArray[np.int64], to: Cursor, note: bytes) -> None:
        """Move rows that one durable cursor has given out to another cursor, without copying them.

        Args:
            cursor: settles them.
            places: the rows.
            to: waits for them from now on; it has not settled any of them before.
            note: a text that goes with the rows (`Taken.notes`).
        """
        runs = cursor.in_flight_at(places)
        if not len(runs.starts):
            return
        fresh = to.unknown(runs)
        to.bytes += self._catalog.count(fresh, 1)
        cursor.settle(runs)
        cursor.bytes -= self._catalog.count(runs, -1)
        to.waiting.add(fresh)
        to.notes.setdefault(note, RowSet()).add(runs)
        self.touches += 1
        transfer = Transfer(cursor.number, to.number, packed(runs), note)
        self._enqueue(Kind.TRANSFERRED, msgspec.msgpack.encode(transfer), True)
        # Rule 3: a crash before this is safe leaves the rows with the cursor that had them.
        self.fence(to)

    # --- history -----------------------------------------------------------------------------------------------------

    def boundary(self) -> int:
        """Return the place between all rows that were appended so far and later ones."""
        self._seal()
        return self._writer.number << ROW_BITS

    def record(self, number: int) -> StoredRows | None:
        """Return a record; None if it is not in memory, and is requested, or if no cursor needs it any more."""
        return self._reads.record(number)

    def first_since(self, place: int, time: int) -> int:
        """Return a place, not before another one: no row between the two has an id of a time (ms) or later."""
        return max(place, self._catalog.next_since(place >> ROW_BITS, time) << ROW_BITS)

    def adopt(self, cursor: Cursor, runs: Runs) -> None:
        """Let stored rows of another cursor wait for this one too, which has not settled any of them.

        Rows that it already has are left out: a crash may keep an adoption and lose the owner's progress after it.
        """
        runs = cursor.unknown(runs)
        if not len(runs.starts):
            return
        cursor.waiting.add(runs)
        cursor.bytes += self._catalog.count(runs, 1)
        if cursor.durable:
            self.touches += 1
            self._enqueue(Kind.ADOPTED, settled_payload([(cursor.number, runs)]), True)

    def release(self, cursor: Cursor, runs: Runs) -> None:
        """Settle the first waiting rows of a cursor (`RowSet.front`) without delivering them."""
        if not len(runs.starts):
            return
        cursor.waiting.drop_front(runs)
        cursor.bytes -= self._catalog.count(runs, -1)
        if cursor.durable:
            self._enqueue(Kind.SETTLED, settled_payload([(cursor.number, runs)]), True)

    def _seal_settled(self) -> None:
        """Write a record of the rows that were settled since the last one."""
        settled, self._settled, self._settled_durable = self._settled, {}, False
        recorded = []
        for number, parts in settled.items():
            if (cursor := self.cursors.get(number)) is None:
                continue
            runs = runs_of(np.unique(parts[0] if len(parts) == 1 else np.concatenate(parts)))
            runs = intersect(runs, cursor.in_flight.runs)
            self._settled_rows += cursor.settle(runs)
            cursor.bytes -= self._catalog.count(runs, -1)
            if cursor.durable and len(runs.starts):
                recorded.append((number, runs))
        if recorded:
            self._enqueue(Kind.SETTLED, settled_payload(recorded), True)

    def unread(self, cursor: Cursor) -> int:
        """Return how many rows a cursor has not given out, including rows of the open record."""
        return cursor.waiting.count + self._open.count_of(cursor.number)

    def oldest(self, cursor: Cursor) -> int | None:
        """Return when the oldest row that waits for a cursor or is in flight was stored, in ms; None without rows."""
        places = [rows.first for rows in (cursor.waiting, cursor.in_flight) if rows.count]
        return self._catalog.stored_at(min(places)) if places else None

    def older_than(self, cursor: Cursor, time: int) -> int:
        """Return how many waiting rows of a cursor were stored before a time."""
        return self._catalog.rows_before(cursor.waiting.runs, time)

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Return why the disk accepts nothing at the moment; empty while all is well."""
        return self._writer.trouble

    @property
    def position(self) -> int:
        """Return the number that `safe` reaches once all that was stored so far for durable cursors is safe."""
        if self._open.durable:
            return self._writer.number
        if self._settled_durable:
            return self._writer.number + bool(self._open)
        return self._writer.last_durable

    @property
    def safe(self) -> int:
        """Return the number up to which all records survive what the setting `fsync` protects from."""
        return self._writer.safe

    @property
    def has_work(self) -> bool:
        """Return whether `take_commit` would have something to write."""
        return not self._writer.is_committing and bool(self._open or self._settled or self._writer.has_queued)

    def sync_due(self) -> int | None:
        """Return when the next sync is due by `interval_ms`, in ms; None if none is."""
        return self._writer.sync_due()

    def take_commit(self, now: int) -> DiskCommit | None:
        """Return everything that waits as one commit; None if there is nothing, or the last one is not finished."""
        if self._writer.is_committing:
            return None
        self._seal()
        self._seal_settled()
        return self._writer.take_commit(now)

    def committed(self, commit: DiskCommit) -> None:
        """Note that a commit was carried out."""
        self._writer.committed(commit)

    def failed(self, commit: DiskCommit, reason: str) -> None:
        """Note that a commit failed, perhaps half-way: all of it is written again, to a new segment."""
        self._writer.failed(reason)

    # --- reading -----------------------------------------------------------------------------------------------------

    def take_reads(self) -> list[Read]:
        """Return the records to read; call `loaded` for each of them."""
        reads = self._reads.take()
        self._sparse.move_cached()
        return reads

    def loaded(self, read: Read, data: bytes | None) -> None:
        """Take a record that was read. If it is not what was written, it counts as damaged and its rows are lost.

        None for `data` means that it could not be read now; the next `pull` asks for it again.
        """
        if (damaged := self._reads.loaded(read, data)) is None:
            self._sparse.move_cached()
        else:
            self._lose(damaged)

    def _lose(self, entry: CatalogEntry) -> None:
        """Settle all rows of a damaged record for all cursors, and report the damage."""
        whole, lost = runs_of(place_of(entry.number, np.arange(entry.rows))), 0
        for cursor in self.cursors.values():
            for gone in cursor.lose(whole):
                lost += gone.size
                cursor.bytes -= self._catalog.count(gone, -1)
                if cursor.durable and len(gone.starts):
                    self._enqueue(Kind.SETTLED, settled_payload([(cursor.number, gone)]), True)
        self._sparse.forget(entry.number)
        self._writer.preserve(entry.segment)
        self._damaged += 1
        self._lost_rows += lost
        if len(self.notices) < MAX_NOTICES:
            text = f"{entry.described} is damaged; {lost:,} deliveries are lost, and its file is kept as"
            self.notices.append(f"{text} {segment_name(entry.segment)}.damaged")

    def _checkpoint(self, through: int) -> bytes:
        """The payload of a checkpoint: what recovery needs of all records up to a number."""
        cursors = [each.state() for each in self.cursors.values() if each.durable]
        *records, latest = self._catalog.entries(through=through).astype("<i8")
        return msgspec.msgpack.encode(CheckpointState(through, np.array(records).tobytes(), cursors, latest.tobytes()))

    def _empty_sparse(self) -> None:
        self._sparse.begin(self._writer.segments, self._writer.segment)

    def _append_moved(self, payload: bytes, number: int) -> None:
        self._enqueue(Kind.MOVED, payload, True, catalogued=number)

    def statistics(self) -> StoreStatistics:
        """Counts for people and for metrics."""
        return StoreStatistics(
            cursors_now=len(self._durable),
            spools_now=len(self.cursors) - len(self._durable),
            waiting_rows_now=sum(each.waiting.count for each in self.cursors.values()),
            in_flight_rows_now=sum(each.in_flight.count for each in self.cursors.values()),
            segments_now=len(self._writer.segments),
            bytes_now=self.size,
            memory_bytes_now=self._cache.bytes + self._cache.pinned_bytes + self._open.bytes,
            appended_rows=self._appended_rows,
            settled_rows=self._settled_rows,
            written_bytes=self._writer.written_bytes,
            commits=self._writer.commits,
            syncs=self._writer.syncs,
            failures=self._writer.failures,
            moved_records=self._sparse.moved,
            damaged_records=self._damaged,
            lost_rows=self._lost_rows,
        )
