"""The log of one broker: what is to be written, what is stored, and who waits for it. No I/O here.

Rows and acknowledgements come in (`append`, `settle`) and gather in memory. The driver asks for a `DiskCommit`, carries
it out on a disk, off the loop, and says how it went (`committed`, `failed`); meanwhile the next one gathers. Records
that cursors wait for and that are not in memory are asked for by `take_reads` and come back by `loaded`.

Rule 1: a row is stored once, in the record of the commit it came with, whoever waits for it.
Rule 2: a row's place holds the number of its record, and numbers rise in the order of writing, so that every cursor
    hands rows out in the order in which they came. A record that is moved to another segment keeps the number that
    places use.
Rule 3: what a cursor that survives hands out is safe before: no crash that `fsync` protects from takes it back.

How records get to the disk is the business of `writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.store.cache import RecordCache
from postroad.store.catalog import UNPLACED, Catalog, CatalogEntry
from postroad.store.cursors import Cursor, Taken
from postroad.store.disk import Read
from postroad.store.errors import DamageError, StoreFullError
from postroad.store.payloads import (
    CheckpointState,
    CursorChange,
    CursorState,
    EncodedRows,
    Match,
    StoredRows,
    Transfer,
    batch_payload,
    packed,
    place_of,
    settled_payload,
    tried_payload,
)
from postroad.store.places import (
    MAX_RECORD_ROWS,
    NO_RUNS,
    ROW_BITS,
    RowSet,
    Runs,
    by_record,
    first_places,
    intersect,
    runs_of,
    subtract,
    unite,
)
from postroad.store.records import HEADER_BYTES, Kind, payload_of
from postroad.store.statistics import StoreStatistics
from postroad.store.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store.disk import DiskCommit
    from postroad.store.recovery import Recovered
    from postroad.store.settings import StoreSettings

__all__ = ["Log"]

# A record is closed at this size: it is read and checked as a whole, and a reader that wants one row waits for it.
RECORD_BYTES = 1024 * 1024
# What may wait in memory for a disk that is slow or fails; beyond it the store takes no more.
MAX_WAITING_BYTES = 128 * 1024 * 1024
# How far ahead of a cursor records are read.
READ_AHEAD = 8
# The share of the memory for records that may be read ahead for one cursor.
_READ_AHEAD_SHARE = 4
# Which rows were tried is written whenever a client comes or goes, which one client can do many times a second: 16 KiB.
MAX_NOTED_RUNS = 1024
# Damage is told in words so often; after that it is counted alone.
MAX_TOLD = 100
# A segment is emptied by copying what is left when that is less than this share of it.
_SPARSE = 4


class Log:
    """An append-only log in segments, and the cursors over it.

    Args:
        settings: how it keeps its promises.
        recovered: what an earlier process has left.

    Attributes:
        cursors: by number.
        touches: how often something was done that a crash must not lose.
        on_work: called whenever there is something to write or to read.
        told: damage that was found, in words.
    """

    def __init__(self, settings: StoreSettings, recovered: Recovered | None = None) -> None:
        self.settings = settings
        self.cursors: dict[int, Cursor] = {}
        self._durable: set[int] = set()
        self.told: list[str] = []
        self._catalog = Catalog()
        self._cache = RecordCache(settings.cache_bytes)
        self._writer = LogWriter(settings, self._catalog, self._cache, self._checkpoint, self._empty_sparse)
        self._open: list[EncodedRows] = []
        self._open_matches: dict[int, list[NDArray[np.int64]]] = {}
        self._open_rows = self._open_bytes = self._open_stored = 0
        self._open_durable = self._settled_durable = False
        self._settled: dict[int, list[NDArray[np.int64]]] = {}
        self.touches = 0
        self.on_work: Callable[[], None] | None = None
        self._wanted: set[int] = set()
        self._reading: set[int] = set()
        self._moving: set[int] = set()
        self._appended_rows = self._settled_rows = self._moved = self._damaged = self._lost_rows = 0
        if recovered is not None:
            self._resume(recovered)

    def _resume(self, recovered: Recovered) -> None:
        self._writer.resume(recovered.segments, 0 if recovered.is_forced else recovered.tail, recovered.next_number)
        self._damaged, self._lost_rows = recovered.damaged, recovered.lost_rows
        self.told = list(recovered.told[:MAX_TOLD])
        self._catalog.load(recovered.records)
        for state in recovered.cursors:
            cursor = Cursor(state.number, state.terms, True, state.live, state.tried, state.tries, state.notes)
            cursor.bytes = self._catalog.count(state.live, 1)
            self.cursors[cursor.number] = cursor
            self._durable.add(cursor.number)

    # --- cursors -----------------------------------------------------------------------------------------------------

    def open_cursor(self, number: int, terms: bytes = b"", durable: bool = True) -> Cursor:
        """Begin a cursor: rows that are appended from now on can match it."""
        cursor = self.cursors[number] = Cursor(number, terms, durable)
        if durable:
            self._durable.add(number)
        self._note(CursorChange(number, terms, opens=True), cursor)
        return cursor

    def change_cursor(self, cursor: Cursor, terms: bytes) -> None:
        """Keep other terms for a cursor; its rows stay."""
        cursor.terms = terms
        self._note(CursorChange(cursor.number, terms, cursor.attached, self._noted(cursor)), cursor)

    def attach(self, cursor: Cursor) -> None:
        """Somebody takes rows from a cursor, from now on. After a crash all that waits counts as tried."""
        cursor.attached = True
        self._note(CursorChange(cursor.number, cursor.terms, True, self._noted(cursor)), cursor)
        # Nothing is handed out before a crash would be known to have happened after it.
        cursor.attached_at = self._writer.number - 1

    def detach(self, cursor: Cursor, returns: bool = True) -> None:
        """Nobody takes rows any more: what is in flight waits again, and counts as tried.

        Without `returns` it stays in flight: its owner gives back what came back, in its own time.
        """
        # First, or what is settled already would wait again.
        self._seal_settled()
        cursor.attached = False
        if returns:
            returned = Runs(*(each.copy() for each in cursor.in_flight.runs))
            cursor.tried.add(returned)
            cursor.waiting.add(returned)
            cursor.in_flight.clear()
        self._note(CursorChange(cursor.number, cursor.terms, False, self._noted(cursor)), cursor)

    def end_cursor(self, cursor: Cursor) -> None:
        """A cursor is over: nobody waits for its rows."""
        # Its rows are settled with all others.
        self._settled.pop(cursor.number, None)
        if cursor.number in self._open_matches:
            self._seal()
        self._catalog.count(cursor.waiting.runs, -1)
        self._catalog.count(cursor.in_flight.runs, -1)
        del self.cursors[cursor.number]
        self._durable.discard(cursor.number)
        self._note(CursorChange(cursor.number, None), cursor)

    def _noted(self, cursor: Cursor) -> tuple[bytes, bytes]:
        """The rows of a cursor that were tried, to be kept; where they are scattered, with all between them."""
        runs = cursor.tried.runs
        if len(runs.starts) > MAX_NOTED_RUNS:
            runs = Runs(runs.starts[:1], runs.ends[-1:])
        return packed(runs)

    def _note(self, change: CursorChange, cursor: Cursor) -> None:
        if cursor.durable:
            self.touches += 1
            self._enqueue(Kind.CURSOR, msgspec.msgpack.encode(change), True)

    # --- rows --------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """What the segments take, with all that is to be written."""
        return self._writer.size + self._open_bytes

    @property
    def room(self) -> int:
        """How many more bytes it may take."""
        return max(0, min(self.settings.max_bytes - self.size, MAX_WAITING_BYTES - self._waiting_bytes))

    @property
    def _waiting_bytes(self) -> int:
        return self._writer.waiting_bytes + self._open_bytes

    def append(self, batch: Batch, matches: Sequence[tuple[Cursor, NDArray[np.int64]]], now: int) -> int:
        """Store rows for the cursors they matched; answers the number that `safe` reaches when they are safe.

        Args:
            batch: where the rows are; nothing of it is kept.
            matches: the rows of each cursor, in order, without repeats.
            now: the time in ms.

        Raises:
            StoreFullError: the store may not take so much.
        """
        wanted = _rows_of(matches, len(batch))
        encoded = EncodedRows(batch if wanted is None else batch.take(wanted))
        self._check_room(encoded.size)
        if self._open and (
            self._open_rows + encoded.count > MAX_RECORD_ROWS or self._open_bytes + encoded.size > RECORD_BYTES
        ):
            self._seal()
        if not self._open:
            self._open_stored = now
        for cursor, rows in matches:
            places = rows if wanted is None else np.searchsorted(wanted, rows)
            self._open_matches.setdefault(cursor.number, []).append(places + self._open_rows)
            self._open_durable |= cursor.durable
            self.touches += cursor.durable
        self._open.append(encoded)
        self._open_rows += encoded.count
        self._open_bytes += encoded.size
        self._appended_rows += encoded.count
        self.wake()
        return self._writer.number

    def wake(self) -> None:
        """There is something to do."""
        if self.on_work is not None:
            self.on_work()

    def _check_room(self, size: int) -> None:
        if self.size + size > self.settings.max_bytes:
            raise StoreFullError(
                f"the store holds {self.size:,} bytes of {self.settings.max_bytes:,} (limit store.max_bytes); "
                "let subscribers catch up, delete subscriptions that nobody needs, or raise the limit"
            )
        if self._waiting_bytes + size > MAX_WAITING_BYTES:
            why = self.trouble or "the disk is slower than what comes"
            raise StoreFullError(f"{self._waiting_bytes:,} bytes wait to be stored: {why}")

    def _seal(self) -> None:
        """Close the open record."""
        if not self._open:
            return
        matches = [
            Match(number, rows[0] if len(rows) == 1 else np.concatenate(rows))
            for number, rows in self._open_matches.items()
        ]
        number, count = self._writer.number, self._open_rows
        kept = [match for match in matches if match.cursor in self._durable]
        payload = batch_payload(self._open, kept, self._open_stored)
        size = HEADER_BYTES + len(payload)
        self._catalog.add(CatalogEntry(number, number, UNPLACED, 0, size, count, self._open_stored))
        self._cache.pin(number, payload)
        for match in matches:
            cursor = self.cursors.get(match.cursor)
            if cursor is not None:
                runs = runs_of(place_of(number, match.rows))
                cursor.waiting.append(runs)
                cursor.bytes += self._catalog.count(runs, 1)
        self._open, self._open_matches, self._open_durable = [], {}, False
        self._open_rows = self._open_bytes = 0
        self._enqueue(Kind.BATCH, payload, bool(kept), catalogued=number)

    def _enqueue(self, kind: Kind, payload: bytes, durable: bool, catalogued: int = 0) -> None:
        if kind is not Kind.BATCH:
            # The open record was promised the next number.
            self._seal()
        self._writer.add(kind, payload, durable, catalogued)
        self.wake()

    def pull(self, cursor: Cursor, most: int) -> list[Taken]:
        """Hand out the next rows of a cursor, up to so many: those that are safe, and in memory.

        What is not in memory is asked for (`take_reads`); nothing behind it is handed out before.
        """
        found = cursor.waiting.front(most, self._below(cursor))
        taken: list[Taken] = []
        done = 0
        for number, runs in by_record(found):
            stored = self._cache.get(number)
            if stored is None:
                break
            taken.append(self._taken_rows(cursor, number, stored, runs))
            done += len(runs.starts)
        if done:
            gone = Runs(found.starts[:done], found.ends[:done])
            cursor.waiting.drop_front(gone)
            cursor.in_flight.add(gone)
        if len(found.starts):
            self._read_ahead(cursor.waiting.runs.starts)
        return taken

    def _below(self, cursor: Cursor) -> int:
        """A cursor hands out rows below this place."""
        reached = self.safe if cursor.durable else self._writer.number - 1
        if cursor.durable and cursor.attached_at > reached:
            return 0
        return min((reached + 1) << ROW_BITS, cursor.ceiling)

    def peek(self, cursor: Cursor, among: Runs, most: int) -> list[Taken]:
        """Show the first of some rows that wait for a cursor, up to so many: those that are safe, and in memory.

        They stay where they are; whoever wants some of them takes these (`take`). What is not in memory is asked for.
        """
        found = first_places(among, most, self._below(cursor))
        shown: list[Taken] = []
        for number, runs in by_record(found):
            stored = self._cache.get(number)
            if stored is None:
                break
            shown.append(self._taken_rows(cursor, number, stored, runs))
        if len(found.starts):
            # The first one that is missing, or what comes next.
            seen = int(shown[-1].places[-1]) if shown else -1
            at = int(np.searchsorted(among.starts, seen, "right"))
            self._read_ahead(among.starts[at:])
        return shown

    def take(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Hand out rows that wait for a cursor, of those that `peek` has shown."""
        runs = runs_of(places)
        cursor.waiting.remove(runs)
        cursor.in_flight.add(runs)

    def _taken_rows(self, cursor: Cursor, number: int, stored: StoredRows, runs: Runs) -> Taken:
        places = runs.places()
        tried = None
        if cursor.tried.count:
            mask = cursor.tried.runs.contains(places)
            tried = mask if mask.any() else None
        rows = stored.rows_at(places - (number << ROW_BITS))
        tries = cursor.tries_of(places) if cursor.tries else None
        notes = cursor.notes_of(places) if cursor.notes else None
        return Taken(places, stored.batch, rows, tried, stored.stored, tries, notes)

    def _read_ahead(self, starts: NDArray[np.int64]) -> None:
        """Ask for what comes next: one record in any case, more as long as they leave room in memory for others."""
        room = self.settings.cache_bytes // _READ_AHEAD_SHARE
        for at, number in enumerate(dict.fromkeys((starts[:READ_AHEAD] >> ROW_BITS).tolist())):
            entry = self._catalog.find(number)
            if entry is None or (at and entry.length > room):
                break
            room -= entry.length
            self._want(entry)

    def _want(self, entry: CatalogEntry) -> None:
        """Ask for a record unless it is here or was asked for."""
        number = entry.number
        known = number in self._wanted or number in self._reading or self._cache.has(number)
        if not known and entry.segment != UNPLACED:
            self._wanted.add(number)
            self.wake()

    def settle(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Rows of a cursor are done with; they were handed out."""
        self._settled.setdefault(cursor.number, []).append(places)
        self._settled_durable |= cursor.durable
        self.touches += cursor.durable
        self.wake()

    def give_back(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Rows that were handed out wait again, in their places, and count as tried."""
        # Not those whose record turned out to be damaged in the meantime.
        runs = intersect(runs_of(np.sort(places)), cursor.in_flight.runs)
        cursor.in_flight.remove(runs)
        cursor.waiting.add(runs)
        cursor.tried.add(runs)

    def retry(self, cursor: Cursor, places: NDArray[np.int64]) -> None:
        """Rows that were handed out have come back: that is counted. They wait again when they are given back."""
        runs = intersect(runs_of(np.sort(places)), cursor.in_flight.runs)
        if not len(runs.starts):
            return
        cursor.tried.add(runs)
        raised = cursor.count_try(runs)
        if cursor.durable:
            # A crash may lose a count; it costs no sync.
            self._enqueue(Kind.TRIED, tried_payload(cursor.number, raised), False)

    def transfer(self, cursor: Cursor, places: NDArray[np.int64], to: Cursor, note: bytes) -> None:
        """Rows that one durable cursor has handed out wait for another one from now on; nothing is copied.

        Args:
            cursor: it is done with them.
            places: the rows.
            to: it has settled none of them before.
            note: a text that goes with the rows (`Taken.notes`).
        """
        runs = intersect(runs_of(np.sort(places)), cursor.in_flight.runs)
        if not len(runs.starts):
            return
        fresh = subtract(runs, unite(to.waiting.runs, to.in_flight.runs))
        to.bytes += self._catalog.count(fresh, 1)
        cursor.in_flight.remove(runs)
        cursor.bytes -= self._catalog.count(runs, -1)
        cursor.forget(runs)
        to.waiting.add(fresh)
        to.notes.setdefault(note, RowSet()).add(runs)
        self.touches += 1
        self._enqueue(
            Kind.TRANSFERRED, msgspec.msgpack.encode(Transfer(cursor.number, to.number, packed(runs), note)), True
        )
        # Rule 3: a crash before this is safe leaves the rows with the cursor that had them.
        to.attached_at = max(to.attached_at, self._writer.number - 1)

    # --- history -----------------------------------------------------------------------------------------------------

    def boundary(self) -> int:
        """The place between all rows that were appended so far and those that come."""
        self._seal()
        return self._writer.number << ROW_BITS

    def record(self, number: int) -> StoredRows | None:
        """A record; None if it is not in memory, which then is asked for, or nobody needs it any more."""
        stored = self._cache.get(number)
        if stored is None and (entry := self._catalog.find(number)) is not None:
            self._want(entry)
        return stored

    def first_since(self, time: int) -> int:
        """No row below this place was stored at a time (ms) or later."""
        # Rows join a record while it is open: one that was begun before may have some that came later.
        return self._catalog.last_stored_before(time) << ROW_BITS

    def adopt(self, cursor: Cursor, runs: Runs) -> None:
        """Rows that are stored, because another cursor has them, wait for this one too, which has settled none of them.

        Those that it has already are left out: a crash may keep what was adopted, and lose how far its owner had come.
        """
        runs = subtract(runs, unite(cursor.waiting.runs, cursor.in_flight.runs))
        if not len(runs.starts):
            return
        cursor.waiting.add(runs)
        cursor.bytes += self._catalog.count(runs, 1)
        if cursor.durable:
            self.touches += 1
            self._enqueue(Kind.ADOPTED, settled_payload([(cursor.number, runs)]), True)

    def release(self, cursor: Cursor, runs: Runs) -> None:
        """The first rows that wait for a cursor (`RowSet.front`) are done with; nobody gets them."""
        if not len(runs.starts):
            return
        cursor.waiting.drop_front(runs)
        cursor.bytes -= self._catalog.count(runs, -1)
        if cursor.durable:
            self._enqueue(Kind.SETTLED, settled_payload([(cursor.number, runs)]), True)

    def _seal_settled(self) -> None:
        """Make a record of what was settled since the last one."""
        settled, self._settled, self._settled_durable = self._settled, {}, False
        told = []
        for number, parts in settled.items():
            cursor = self.cursors.get(number)
            if cursor is None:
                continue
            runs = runs_of(np.unique(parts[0] if len(parts) == 1 else np.concatenate(parts)))
            runs = intersect(runs, cursor.in_flight.runs)
            self._settled_rows += cursor.in_flight.remove(runs)
            cursor.bytes -= self._catalog.count(runs, -1)
            cursor.forget(runs)
            if cursor.durable and len(runs.starts):
                told.append((number, runs))
        if told:
            self._enqueue(Kind.SETTLED, settled_payload(told), True)

    def unread(self, cursor: Cursor) -> int:
        """How many rows a cursor has not handed out, with those that are not written yet."""
        return cursor.waiting.count + sum(map(len, self._open_matches.get(cursor.number, ())))

    def oldest(self, cursor: Cursor) -> int | None:
        """When the oldest row that waits for a cursor, or is in flight, was stored, in ms; None without one."""
        places = [rows.first for rows in (cursor.waiting, cursor.in_flight) if rows.count]
        entry = self._catalog.find(min(places) >> ROW_BITS) if places else None
        return None if entry is None else entry.stored

    def older_than(self, cursor: Cursor, time: int) -> int:
        """How many rows wait for a cursor that were stored before a time."""
        number = self._catalog.first_stored_from(time)
        starts, ends = cursor.waiting.runs
        return int((ends - starts)[: int(np.searchsorted(starts, number << ROW_BITS))].sum())

    def oldest_segment_rows(self, cursor: Cursor) -> int:
        """How many rows wait for a cursor in the oldest segment that anybody needs."""
        entries = self._catalog.entries()
        if not entries.shape[1]:
            return 0
        mine = entries[0][entries[2] == entries[2].min()]
        numbers = cursor.waiting.runs.starts >> ROW_BITS
        starts, ends = cursor.waiting.runs
        return int((ends - starts)[np.isin(numbers, mine)].sum())

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Why the disk takes nothing at the moment; empty while all is well."""
        return self._writer.trouble

    @property
    def position(self) -> int:
        """All that came so far for durable cursors is safe when `safe` has reached this number."""
        if self._open_durable:
            return self._writer.number
        if self._settled_durable:
            return self._writer.number + bool(self._open)
        return self._writer.last_durable

    @property
    def safe(self) -> int:
        """All that was appended up to this number survives what the setting `fsync` protects from."""
        return self._writer.safe

    @property
    def has_work(self) -> bool:
        """Whether `take_commit` would have something to write."""
        return not self._writer.is_committing and bool(self._open or self._settled or self._writer.has_queued)

    def sync_due(self) -> int | None:
        """When a sync is due by `interval_ms`, in ms; None when none is."""
        return self._writer.sync_due()

    def take_commit(self, now: int) -> DiskCommit | None:
        """All that waits, as one commit; None when there is nothing, or the last one is not done."""
        if self._writer.is_committing:
            return None
        self._seal()
        self._seal_settled()
        return self._writer.take_commit(now)

    def committed(self, commit: DiskCommit) -> None:
        """A commit is carried out."""
        self._writer.committed(commit)

    def failed(self, commit: DiskCommit, reason: str) -> None:
        """A commit was not carried out, or only in part: it is written again, to a new segment."""
        self._writer.failed(reason)

    # --- reading -----------------------------------------------------------------------------------------------------

    def take_reads(self) -> list[Read]:
        """Records that somebody waits for; `loaded` is to be called for each of them."""
        entries = [self._catalog.find(number) for number in self._wanted]
        self._wanted = set()
        # Whoever waited for the others is gone, or they have come into memory.
        needed = [entry for entry in entries if entry is not None and not self._cache.has(entry.number)]
        self._move_cached()
        self._reading.update(entry.number for entry in needed)
        return [Read(entry.number, entry.segment, entry.start, entry.length) for entry in needed]

    def loaded(self, read: Read, data: bytes | None) -> None:
        """A record was read. One that is not what was written is lost, and told.

        None says that it could not be read now: whoever waits for it asks again, by `pull`.
        """
        self._reading.discard(read.number)
        entry = self._catalog.find(read.number)
        if entry is None or data is None or self._cache.has(read.number):
            return
        if (entry.segment, entry.start) != (read.segment, read.start):
            # It was moved meanwhile.
            self._want(entry)
            return
        payload = payload_of(data, read.segment, entry.header)
        stored = None if payload is None else _checked(payload)
        if stored is None:
            self._lose(entry)
            return
        self._cache.put(read.number, stored)
        self._move_cached()

    def _move_cached(self) -> None:
        """Copy forward what has come into memory, and forget what nobody needs any more."""
        for number in list(self._moving):
            entry = self._catalog.find(number)
            stored = None if entry is None else self._cache.get(number)
            if entry is None:
                self._moving.discard(number)
            elif stored is not None:
                self._move(entry, stored)

    def _lose(self, entry: CatalogEntry) -> None:
        """A record is damaged: none of its rows is handed out, and all who wait for them wait no longer."""
        whole = runs_of(place_of(entry.number, np.arange(entry.rows)))
        lost = 0
        for cursor in self.cursors.values():
            for rows in (cursor.waiting, cursor.in_flight):
                gone = intersect(Runs(*(each.copy() for each in rows.runs)), whole)
                lost += rows.remove(gone)
                cursor.bytes -= self._catalog.count(gone, -1)
                if cursor.durable and len(gone.starts):
                    self._enqueue(Kind.SETTLED, settled_payload([(cursor.number, gone)]), True)
        self._moving.discard(entry.number)
        self._damaged += 1
        self._lost_rows += lost
        self._tell(
            f"segment {entry.segment}: the record {entry.header} of {entry.rows:,} rows at {entry.start:,} is damaged; "
            f"{lost:,} deliveries are lost"
        )

    def _tell(self, text: str) -> None:
        if len(self.told) < MAX_TOLD:
            self.told.append(text)

    # --- segments ----------------------------------------------------------------------------------------------------

    def _checkpoint(self, through: int) -> bytes:
        """All that recovery needs of what was written up to a number."""
        cursors = [
            CursorState(
                each.number,
                each.terms,
                each.attached,
                packed(unite(each.waiting.runs, each.in_flight.runs)),
                self._noted(each),
                [packed(rows.runs) for rows in each.tries],
                [(text, packed(rows.runs)) for text, rows in each.notes.items()],
            )
            for each in self.cursors.values()
            if each.durable
        ]
        records = self._catalog.entries(through=through)
        return msgspec.msgpack.encode(CheckpointState(through, records.astype("<i8").tobytes(), cursors))

    def _empty_sparse(self) -> None:
        """Ask for what is left of the oldest segment that is nearly empty, to copy it forward."""
        if self._moving:
            return
        for segment, size in self._writer.segments.items():
            if segment != self._writer.segment and size > _SPARSE * self._catalog.live_bytes(segment):
                numbers = self._catalog.entries(segment)[0].tolist()
                if not numbers or any(map(self._cache.is_pinned, numbers)):
                    # Empty, or closed just now: the disk does not have it for sure.
                    continue
                self._moving = set(numbers)
                for number in numbers:
                    entry = self._catalog.find(number)
                    assert entry is not None
                    self._want(entry)
                self._move_cached()
                return

    def _move(self, entry: CatalogEntry, stored: StoredRows) -> None:
        """Append what is left of a record, so that its segment can go."""
        self._moving.discard(entry.number)
        whole = runs_of(place_of(entry.number, np.arange(entry.rows)))
        matches: list[Match] = []
        wanted = NO_RUNS
        for cursor in self.cursors.values():
            live = intersect(whole, unite(cursor.waiting.runs, cursor.in_flight.runs))
            wanted = unite(wanted, live)
            if cursor.durable and len(live.starts):
                matches.append(Match(cursor.number, live.places() - (entry.number << ROW_BITS)))
        rows = wanted.places() - (entry.number << ROW_BITS)
        if not len(rows):
            return
        matches = [Match(each.cursor, np.searchsorted(rows, each.rows)) for each in matches]
        batch = stored.batch.take(stored.rows_at(rows))
        payload = batch_payload([EncodedRows(batch)], matches, entry.stored, entry.number, rows)
        self._cache.forget(entry.number)
        self._cache.pin(entry.number, payload)
        self._moved += 1
        self._enqueue(Kind.MOVED, payload, True, catalogued=entry.number)

    def statistics(self) -> StoreStatistics:
        """Counts for people and for metrics."""
        cursors = self.cursors.values()
        return StoreStatistics(
            cursors_now=sum(each.durable for each in cursors),
            spools_now=sum(not each.durable for each in cursors),
            waiting_rows_now=sum(each.waiting.count for each in cursors),
            in_flight_rows_now=sum(each.in_flight.count for each in cursors),
            segments_now=len(self._writer.segments),
            bytes_now=self.size,
            memory_bytes_now=self._cache.bytes + self._cache.pinned_bytes + self._open_bytes,
            appended_rows=self._appended_rows,
            settled_rows=self._settled_rows,
            written_bytes=self._writer.written_bytes,
            commits=self._writer.commits,
            syncs=self._writer.syncs,
            failures=self._writer.failures,
            moved_records=self._moved,
            damaged_records=self._damaged,
            lost_rows=self._lost_rows,
        )


def _rows_of(matches: Sequence[tuple[Cursor, NDArray[np.int64]]], count: int) -> NDArray[np.int64] | None:
    """The rows that anybody wants, in order; None when these are all."""
    if any(len(rows) == count for _, rows in matches):
        return None
    if len(matches) == 1:
        return matches[0][1]
    mask = np.zeros(count, np.bool_)
    for _, rows in matches:
        mask[rows] = True
    return np.flatnonzero(mask)


def _checked(payload: memoryview) -> StoredRows | None:
    try:
        stored = StoredRows(payload)
        assert stored.batch is not None
    except DamageError:
        return None
    return stored
