"""What a process finds when it starts on a store: the last checkpoint, and what was written after it.

The tail that was being written when the machine failed may be torn, with parts missing: unsynced writes reach a disk in
any order. Records carry the number up to which everything was known to be on disk (`synced`). It separates two kinds of
holes:

- a hole up to the largest `synced` is *damage*: what was there is lost, named and counted; all other records hold.
- a hole beyond it is the *torn tail*: nothing from there on was ever confirmed. All of it is cut, even whole records
  after the hole, so that what is left is exactly what had been written up to a moment.

A segment that cannot be read is neither: nothing is known about it, so recovery refuses and changes nothing. A damaged
segment, and one that is cut where it does not look like an unfinished write, is preserved before it may be removed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.store.cursors import MAX_TRIES
from postroad.store.errors import DamageError, StoreReadError
from postroad.store.payloads import (
    CheckpointState,
    CursorChange,
    StoredRows,
    Transfer,
    latest_time,
    place_of,
    settled_in,
    stored_ids,
    tried_in,
    unpacked,
)
from postroad.store.records import SEGMENT_HEADER_BYTES, Kind, Record, frames_in, is_unfinished, segment_name
from postroad.store.row_sets import (
    MAX_NUMBER,
    MAX_RECORD_ROWS,
    NO_RUNS,
    ROW_BITS,
    Runs,
    intersect,
    runs_of,
    subtract,
    unite,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.store.records import LogHole

__all__ = ["Recovered", "RecoveredCursor", "recover"]

# Neighbours send again what they did not know to be settled when the broker died. That is a second of traffic at most;
# this is a few at the speed of a disk.
RECENT_BYTES = 32 * 1024 * 1024

# A read that fails once may succeed later: EIO of a network disk, ESTALE, ENOMEM.
READ_TRIES = 3

# Number, number in the header, segment, start, length, rows, time stored, latest time, as in the catalogue.
_COLUMNS = 8
# The latest time of the ids in a record of which an earlier version did not say it.
_ANY_TIME = 2**62


class RecoveredCursor(NamedTuple):
    """A cursor as it was left.

    Attributes:
        live: rows that it waits for.
        tried: those of them that were, or may have been, given out.
        tries: at k, those that returned more than k times.
        notes: texts, each with the rows that it belongs to.
    """

    number: int
    terms: bytes
    live: Runs
    tried: Runs
    tries: list[Runs]
    notes: dict[bytes, Runs]


class Recovered(NamedTuple):
    """What was found.

    Attributes:
        segments: all existing ones, with their sizes.
        tail: the segment that was written last; 0 for none.
        next_number: for the next record.
        records: int64[8, n]: the records with live rows.
        cursors: all of them.
        cut_bytes: of the torn tail.
        damaged: holes in what was confirmed.
        lost_rows: rows that cursors waited for and that are gone.
        notices: what was cut or damaged, in words.
        recent: uint64[n, 2]: ids of the rows stored last, as batches have them. Others may send them again.
        preserved: segments that are damaged, or cut where no write was unfinished: their bytes are kept for people.
        is_forced: all of it is on disk; otherwise an earlier process may have died before it forced it there.
    """

    segments: dict[int, int]
    tail: int
    next_number: int
    records: NDArray[np.int64]
    cursors: list[RecoveredCursor]
    cut_bytes: int
    damaged: int
    lost_rows: int
    notices: list[str]
    recent: NDArray[np.uint64]
    preserved: tuple[int, ...] = ()
    is_forced: bool = False

    @property
    def unforced(self) -> int:
        """The segment that has to be forced to disk before anything of it is safe; 0 for none."""
        return 0 if self.is_forced else self.tail


class _Cursor:
    """A cursor while records are read. Rows that were settled once never return, whatever the order of reading."""

    def __init__(self, terms: bytes, live: Runs = NO_RUNS, attached: bool = False, tried: Runs = NO_RUNS) -> None:
        self.terms = terms
        self.attached = attached
        self.tried = tried
        self.matched = [live]
        self.settled: list[Runs] = []
        self.tries: list[list[Runs]] = []
        self.notes: dict[bytes, list[Runs]] = {}

    def live(self) -> Runs:
        return subtract(_together(self.matched), _together(self.settled))

    def count_tries(self, level: int, runs: Runs) -> None:
        if level >= MAX_TRIES:
            raise DamageError(f"rows that came back more than {level:,} times")
        while len(self.tries) <= level:
            self.tries.append([])
        self.tries[level].append(runs)

    def note(self, text: bytes, runs: Runs) -> None:
        if text:
            self.notes.setdefault(text, []).append(runs)

    def recovered(self, number: int, kept: Runs) -> RecoveredCursor:
        """Return the cursor with the rows that exist."""
        tried = kept if self.attached else intersect(kept, self.tried)
        tries = [intersect(kept, _together(parts)) for parts in self.tries]
        while tries and not len(tries[-1].starts):
            tries.pop()
        notes = {text: intersect(kept, _together(parts)) for text, parts in self.notes.items()}
        notes = {text: runs for text, runs in notes.items() if len(runs.starts)}
        return RecoveredCursor(number, self.terms, kept, tried, tries, notes)


def _together(parts: list[Runs]) -> Runs:
    """Return all places of all parts."""
    if not parts:
        return NO_RUNS
    starts = np.concatenate([each.starts for each in parts])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.concatenate([each.ends for each in parts])[order]
    if not len(starts):
        return NO_RUNS
    # A run begins where a start lies beyond all ends before it.
    reached = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Runs(starts[first], reached[last])


def _columns(data: bytes, latest: bytes) -> NDArray[np.int64]:
    """Return the records of a checkpoint.

    Raises:
        DamageError: they are not what a checkpoint holds.
    """
    if len(data) % (8 * (_COLUMNS - 1)) or len(latest) not in (0, len(data) // (_COLUMNS - 1)):
        raise DamageError("a checkpoint whose columns differ in length")
    columns = np.frombuffer(data, "<i8").astype(np.int64).reshape(_COLUMNS - 1, -1)
    times = np.frombuffer(latest, "<i8") if latest else np.full(columns.shape[1], _ANY_TIME)
    columns = np.concatenate([columns, times[np.newaxis].astype(np.int64)])
    numbers, rows = columns[0], columns[5]
    if (columns < 0).any() or (np.diff(numbers) <= 0).any() or (numbers >= MAX_NUMBER).any():
        raise DamageError("a checkpoint whose records do not rise")
    if (rows > MAX_RECORD_ROWS).any() or (columns[3:5] > 2**40).any():
        raise DamageError("a checkpoint of records that cannot be")
    return columns


class _Replay:
    """State while the records are read in order."""

    def __init__(self) -> None:
        self.cursors: dict[int, _Cursor] = {}
        self.records: dict[int, tuple[int, ...]] = {}
        self.base = np.empty((_COLUMNS, 0), np.int64)
        self.last = 0
        # Rows up to this number that are not in `records` are missing; those beyond it were never confirmed.
        self.through = 0

    def take(self, record: Record, segment: int, data: memoryview) -> None:
        payload = record.payload(data)
        if record.kind is Kind.CHECKPOINT:
            self._restore(msgspec.msgpack.decode(payload, type=CheckpointState))
        elif record.kind is Kind.CURSOR and record.number <= self.through:
            # Written again after a failure: the checkpoint knows its later state.
            pass
        elif record.kind is Kind.CURSOR:
            self._change(msgspec.msgpack.decode(payload, type=CursorChange))
        elif record.kind is Kind.SETTLED:
            for number, runs in settled_in(payload):
                if number in self.cursors:
                    self.cursors[number].settled.append(runs)
        elif record.kind is Kind.ADOPTED:
            for number, runs in settled_in(payload) if record.number > self.through else ():
                if number in self.cursors:
                    self.cursors[number].matched.append(runs)
        elif record.kind is Kind.TRIED:
            number, raised = tried_in(payload)
            for level, runs in raised if number in self.cursors else ():
                self.cursors[number].count_tries(level, runs)
        elif record.kind is Kind.TRANSFERRED:
            if record.number > self.through:
                self._transfer(msgspec.msgpack.decode(payload, type=Transfer))
        else:
            self._rows(record, segment, StoredRows(payload), latest_time(payload))
        if record.kind is not Kind.CHECKPOINT:
            self.last = max(self.last, record.number)

    def _rows(self, record: Record, segment: int, stored: StoredRows, latest: int) -> None:
        number = stored.origin or record.number
        rows = stored.count if stored.numbers is None or not stored.count else int(stored.numbers[-1]) + 1
        place = (number, record.number, segment, record.start, record.length, rows, stored.stored, latest)
        self.records[number] = place
        if number <= self.through:
            # Written again, or moved: the checkpoint knows who still waits for its rows.
            return
        for match in stored.matches:
            cursor = self.cursors.get(match.cursor)
            if cursor is not None:
                cursor.matched.append(runs_of(place_of(number, match.rows)))

    def _change(self, change: CursorChange) -> None:
        if change.terms is None:
            self.cursors.pop(change.cursor, None)
            return
        if change.opens:
            self.cursors.setdefault(change.cursor, _Cursor(change.terms))
        cursor = self.cursors.get(change.cursor)
        if cursor is None:
            return
        cursor.terms, cursor.attached = change.terms, change.attached
        cursor.tried = unpacked(change.tried)

    def _transfer(self, transfer: Transfer) -> None:
        """Apply one record to both cursors: a crash leaves the rows with the one or with the other."""
        runs = unpacked(transfer.rows)
        if transfer.cursor in self.cursors:
            self.cursors[transfer.cursor].settled.append(runs)
        if transfer.to in self.cursors:
            self.cursors[transfer.to].matched.append(runs)
            self.cursors[transfer.to].note(transfer.note, runs)

    def _restore(self, state: CheckpointState) -> None:
        """Restore from a checkpoint, which has all that came before it."""
        base = _columns(state.records, state.latest)
        cursors = {}
        for each in state.cursors:
            cursor = _Cursor(each.terms, unpacked(each.live), each.attached, unpacked(each.tried))
            for level, packed in enumerate(each.tries):
                cursor.count_tries(level, unpacked(packed))
            for text, packed in each.notes:
                cursor.note(text, unpacked(packed))
            cursors[each.cursor] = cursor
        self.cursors = cursors
        self.base = base
        self.records = {}
        self.last = self.through = max(self.last, state.through)


def recover(
    found: Mapping[int, int], read: Callable[[int], bytes], sync: Callable[[int], None] | None = None
) -> Recovered:
    """Find out what a store holds.

    Args:
        found: its segments with their sizes, in order.
        read: returns the bytes of a segment.
        sync: forces a segment to disk; without it, or if it fails, the first commit of the log does so.

    Raises:
        StoreReadError: a segment cannot be read. Nothing was changed.
    """
    notices: list[str] = []
    contents = _from_last_checkpoint(list(found), read)
    whole = [each for _, _, frames in contents for each in frames if isinstance(each, Record)]
    replay, scan = _Replay(), _Scan(max((each.synced for each in whole), default=0), notices)
    for segment, data, frames in contents:
        if scan.is_over:
            scan.cut(segment, 0, memoryview(data), frames)
        else:
            scan.segment(segment, memoryview(data), frames, replay)
    # Earlier segments are not read now: their records are checked when somebody wants them. Numbers that were cut off
    # are not used again, so that their remains cannot be confused with anything else.
    highest = max((each.number for each in whole), default=0)
    recent = _recent_ids([each for each in found if each < contents[0][0]] if contents else [], read, contents, replay)
    recovered = _recovered(found, replay, scan, max(highest, replay.last) + 1, recent)
    return recovered._replace(is_forced=_forced(recovered.tail, sync))


def _forced(tail: int, sync: Callable[[int], None] | None) -> bool:
    """Force the segment that was written last to disk; the others were forced before it began."""
    if sync is None or not tail:
        return not tail
    try:
        sync(tail)
    except OSError:
        return False
    return True


def _recent_ids(
    earlier: list[int],
    read: Callable[[int], bytes],
    contents: list[tuple[int, bytes, list[Record | LogHole]]],
    replay: _Replay,
) -> NDArray[np.uint64]:
    """Return the ids of what was stored last: all that was read, and earlier segments while that is little."""
    size = sum(len(data) for _, data, _ in contents)
    segments = list(contents)
    while earlier and size < RECENT_BYTES:
        segment = earlier.pop()
        data = _bytes_of(segment, read)
        size += len(data)
        segments.append((segment, data, list(frames_in(memoryview(data), segment))))
    found = [np.empty((0, 2), np.uint64)]
    for _, data, frames in segments:
        for each in frames:
            if isinstance(each, Record) and each.kind is Kind.BATCH and each.number <= replay.last:
                with suppress(DamageError):
                    found.append(stored_ids(each.payload(memoryview(data))))
    return np.concatenate(found)


def _bytes_of(segment: int, read: Callable[[int], bytes]) -> bytes:
    for _ in range(READ_TRIES - 1):
        with suppress(OSError):
            return read(segment)
    try:
        return read(segment)
    except OSError as error:
        raise StoreReadError(
            f"the store cannot read segment {segment} ({error.strerror or error}), and has changed nothing: mend the "
            f"disk, or the owner and mode of store/{segment_name(segment)}, and start again. To start without what "
            "it holds, which is lost then, move that file to another folder"
        ) from error


def _from_last_checkpoint(
    found: Sequence[int], read: Callable[[int], bytes]
) -> list[tuple[int, bytes, list[Record | LogHole]]]:
    """Return the segments from the last one on that begins with a readable checkpoint."""
    contents: list[tuple[int, bytes, list[Record | LogHole]]] = []
    for segment in reversed(found):
        data = _bytes_of(segment, read)
        frames = list(frames_in(memoryview(data), segment))
        contents.insert(0, (segment, data, frames))
        # The first record is a checkpoint, even if the header of the segment is damaged; or it is a copy of that.
        head = next((each for each in frames if isinstance(each, Record)), None)
        if head is not None and head.kind is Kind.CHECKPOINT:
            break
    return contents


_LOST = "; what was there is lost"


class _Scan:
    """Reads frames in order, up to the torn tail."""

    def __init__(self, synced: int, notices: list[str]) -> None:
        self._synced = synced
        self.notices = notices
        self.is_over = False
        self.cut_bytes = self.damaged = 0
        self.preserved: set[int] = set()

    def segment(self, segment: int, data: memoryview, frames: list[Record | LogHole], replay: _Replay) -> None:
        for each, following in zip(frames, [*frames[1:], None], strict=False):
            if not isinstance(each, Record):
                is_copied = isinstance(following, Record) and following.kind is Kind.CHECKPOINT
                if is_copied and each.end > SEGMENT_HEADER_BYTES:
                    if replay.last < self._synced:
                        self._damage(segment, each.start, "a checkpoint is damaged; its copy is whole")
                    continue
                if each.end == SEGMENT_HEADER_BYTES and len(frames) > 1:
                    # The record right after it was written with it, in one sector: so this is not an unfinished write.
                    self._damage(segment, 0, "the header of the segment is damaged; its records are whole")
                    continue
                self._hole(segment, each, replay)
                if self.is_over:
                    self.cut(segment, each.start, data, frames)
                    return
                continue
            try:
                replay.take(each, segment, data)
            except (DamageError, msgspec.DecodeError) as error:
                self._damage(segment, each.start, f"the record {each.number} cannot be understood: {error}{_LOST}")

    def _hole(self, segment: int, hole: LogHole, replay: _Replay) -> None:
        if replay.last < self._synced:
            self._damage(segment, hole.start, f"{hole.end - hole.start:,} bytes are damaged{_LOST}")
        else:
            self.is_over = True

    def _damage(self, segment: int, start: int, what: str) -> None:
        self.damaged += 1
        self.preserved.add(segment)
        self.notices.append(f"segment {segment} at {start:,}: {what}")

    def cut(self, segment: int, start: int, data: memoryview, frames: list[Record | LogHole]) -> None:
        size = len(data) - start
        if not size:
            return
        self.cut_bytes += size
        whole = sum(isinstance(each, Record) and each.start >= start for each in frames)
        if not whole and is_unfinished(data, start):
            self.notices.append(f"segment {segment} at {start:,}: {size:,} bytes of an unfinished write are cut off")
            return
        self.preserved.add(segment)
        self.notices.append(
            f"segment {segment} at {start:,}: {size:,} bytes are cut off with {whole:,} whole records in them, because "
            "nothing says that they were confirmed"
        )


def _recovered(
    found: Mapping[int, int], replay: _Replay, scan: _Scan, next_number: int, recent: NDArray[np.uint64]
) -> Recovered:
    later = np.array(sorted(replay.records.values()), np.int64).reshape(-1, _COLUMNS).T
    base = replay.base[:, ~np.isin(replay.base[0], later[0])]
    records = np.concatenate([base, later], axis=1)
    records = records[:, np.argsort(records[0], kind="stable")]
    records = records[:, np.isin(records[2], list(found))]
    there = _known(records)
    cursors, wanted, lost = [], NO_RUNS, 0
    for number, cursor in replay.cursors.items():
        live = cursor.live()
        kept = intersect(live, there)
        # What was never confirmed was cut off with the tail that held it.
        confirmed = Runs(live.starts, np.minimum(live.ends, (replay.through + 1) << ROW_BITS))
        confirmed = Runs(*(each[confirmed.ends > confirmed.starts] for each in confirmed))
        lost += subtract(confirmed, there).size
        cursors.append(cursor.recovered(number, kept))
        wanted = unite(wanted, kept)
    needed = np.isin(records[0], wanted.starts >> ROW_BITS)
    scan.notices += [
        f"segment {each}: its file is kept as {segment_name(each)}.damaged" for each in sorted(scan.preserved)
    ]
    if lost:
        scan.notices.append(f"{lost:,} rows that subscriptions waited for are gone with the segments they were in")
    return Recovered(
        dict(found),
        max(found, default=0),
        next_number,
        records[:, needed],
        cursors,
        scan.cut_bytes,
        scan.damaged,
        lost,
        scan.notices,
        recent,
        tuple(sorted(scan.preserved)),
    )


def _known(records: NDArray[np.int64]) -> Runs:
    """Return the places of all rows of existing records."""
    starts = records[0] << ROW_BITS
    return Runs(starts, starts + records[5])
