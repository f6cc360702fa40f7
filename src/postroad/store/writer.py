"""Turns records into commits: which segment takes them, when to force it to disk, what to write again.

Rule 1: numbers of records rise in the order of writing.
Rule 2: each segment begins with a checkpoint, and is forced to disk before the next one begins. Recovery reads the last
    checkpoint and what follows it.
Rule 3: a segment is removed when no row in it is wanted, after a sync of all that says so. A damaged one is preserved
    first: its remains may be the only copy of something.
Rule 4: what a failed commit has written does not count: all of it, and what was written since the last sync, is written
    again to a new segment. Nothing is appended to a segment that failed once, and one that was begun for it is removed
    before the next try: it would take the room that the next try needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.store.disk import Create, DiskCommit, Preserve, Remove, Sync, Write
from postroad.store.records import HEADER_BYTES, Kind, frame, segment_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.store.cache import RecordCache
    from postroad.store.catalog import Catalog, CatalogEntry
    from postroad.store.disk import Step
    from postroad.store.room import StoreRoom
    from postroad.store.settings import StoreSettings

__all__ = ["LogWriter"]

# Unsynced records stay in memory, to be written again if the sync fails; with more than this, the sync comes early.
MAX_UNSYNCED_BYTES = 32 * 1024 * 1024


class _PendingRecord:
    """A record that may not be on disk yet.

    Attributes:
        durable: a crash must not lose it.
        catalogued: the record number in the catalogue; 0 if it has no rows.
        before: where its rows were before the commit under way.
    """

    __slots__ = ("before", "catalogued", "durable", "kind", "number", "payload")

    def __init__(self, kind: Kind, number: int, payload: bytes, durable: bool, catalogued: int) -> None:
        self.kind = kind
        self.number = number
        self.payload = payload
        self.durable = durable
        self.catalogued = catalogued
        self.before: CatalogEntry | None = None

    @property
    def size(self) -> int:
        return HEADER_BYTES + len(self.payload)


class LogWriter:
    """The writing side of a log.

    Args:
        settings: when to force the disk.
        room: says how large segments are.
        catalog: learns where records are.
        cache: pins records until they are on disk.
        checkpoint: makes the payload of a checkpoint of all records up to a number.
        begun: called after a segment was begun.

    Attributes:
        number: of the next record.
        written: the number of the last record that was written.
        last_durable: the number of the last record that a crash must not lose, written or not.
        trouble: why the disk accepts nothing at the moment; empty while all is well.
        segments: the sizes of all segments by number.
    """

    def __init__(
        self,
        settings: StoreSettings,
        room: StoreRoom,
        catalog: Catalog,
        cache: RecordCache,
        checkpoint: Callable[[int], bytes],
        begun: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._room = room
        self._catalog = catalog
        self._cache = cache
        self._checkpoint = checkpoint
        self._begun = begun
        self.number = 1
        self.written = self.last_durable = 0
        self.trouble = ""
        self.segments: dict[int, int] = {}
        self.segment: int | None = None
        self._next_segment = 1
        # The size of the checkpoint at the beginning of the segment, and the size at which the segment is closed.
        self._checkpoint_bytes = 0
        self._capacity = settings.segment_bytes
        # The last segment of an earlier process, which may not be on disk: force it before anything is written.
        self._inherited: int | None = None
        # Only the next checkpoint tells that what was cut off does not count: should it be damaged, the records before
        # it are read again, and later ones say that all of that was on disk. So a copy follows it.
        self._copies_checkpoint = False
        # Segments that the commit that is being made begins, and those that failed commits have begun: nothing in the
        # latter counts, and they are not in `segments`.
        self._begun_segments: list[int] = []
        self._abandoned: set[int] = set()
        # Damaged segments that are not preserved yet.
        self._damaged: set[int] = set()
        self._synced = 0
        self._queue: list[_PendingRecord] = []
        self._taken: list[_PendingRecord] = []
        self._unsynced: list[_PendingRecord] = []
        self._unsynced_since: int | None = None
        self._queued_bytes = self._taken_bytes = self._unsynced_bytes = 0
        self._commit: DiskCommit | None = None
        # State of the commit that is being made.
        self._steps: list[Step] = []
        self._pieces: list[bytes] = []
        self._last = 0
        self.syncs = self.commits = self.failures = self.written_bytes = 0

    def resume(self, segments: dict[int, int], tail: int, number: int, was_cut: bool = False) -> None:
        """Continue after what an earlier process left; a `tail` is forced to disk before anything of it is safe.

        With `was_cut`, whole records of an unconfirmed write are left in it, which must not count again.
        """
        self.segments = dict(segments)
        self._next_segment = 1 + max(segments, default=0)
        self._inherited = tail if tail in segments else None
        self.number = number
        self.written = number - 1
        self._copies_checkpoint = was_cut

    def preserve(self, segment: int) -> None:
        """Keep the bytes of a damaged segment for people before it is removed."""
        if segment in self.segments:
            self._damaged.add(segment)

    @property
    def size(self) -> int:
        """Return the bytes of all segments, with what waits to be written."""
        return sum(self.segments.values()) + self._queued_bytes

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that wait to be written or are being written."""
        return self._queued_bytes + self._taken_bytes

    @property
    def is_committing(self) -> bool:
        """Return whether a commit is under way."""
        return self._commit is not None

    @property
    def has_queued(self) -> bool:
        """Return whether there are records to write, a tail to force to disk, or damage to preserve."""
        return bool(self._queue or self._damaged) or self._inherited is not None

    @property
    def safe(self) -> int:
        """Return the number up to which all records survive what the setting `fsync` protects from."""
        if self._settings.fsync != "always":
            return self.written
        if self._inherited is not None:
            # An earlier process has written it, and may have died before it was forced to disk.
            return 0
        unsynced = next((each.number for each in self._unsynced if each.durable), None)
        return self.written if unsynced is None else unsynced - 1

    def sync_due(self) -> int | None:
        """Return when the next sync is due by `interval_ms`, in ms; None if none is."""
        if self._settings.fsync != "interval" or self._unsynced_since is None:
            return None
        return self._unsynced_since + self._settings.interval_ms

    def _is_sync_due(self, now: int) -> bool:
        since, due = self._unsynced_since, self.sync_due()
        # A clock that was set back does not make the wait longer.
        return since is not None and due is not None and not since <= now < due

    def add(self, kind: Kind, payload: bytes, durable: bool, catalogued: int = 0) -> int:
        """Take a record; return its number."""
        pending = _PendingRecord(kind, self.number, payload, durable, catalogued)
        self._queue.append(pending)
        self._queued_bytes += pending.size
        self.number += 1
        if durable:
            self.last_durable = pending.number
        return pending.number

    def dead(self) -> list[int]:
        """Return the segments without a live record."""
        return [each for each in self.segments if each != self.segment and each not in self._catalog.live]

    # --- commits -----------------------------------------------------------------------------------------------------

    def take_commit(self, now: int) -> DiskCommit | None:
        """Return everything that waits as one commit; None if there is nothing, or the last one is not finished."""
        if self._commit is not None:
            return None
        is_due = self._is_sync_due(now) or self._unsynced_bytes > MAX_UNSYNCED_BYTES
        if not self.has_queued and not is_due and not self.dead():
            return None
        # A log that has become tight closes a long segment, one that has room again continues a short one.
        self._capacity = self._room.segment_bytes(self._checkpoint_bytes)
        taken, self._queue = self._queue, []
        self._taken, self._taken_bytes, self._queued_bytes = taken, self._queued_bytes, 0
        has_durable = any(each.durable for each in taken)
        if self._unsynced_since is None and has_durable:
            self._unsynced_since = now
        before = sum(self.segments.values())
        self._begin_steps()
        for pending in taken:
            self._place(pending)
        dead = self.dead()
        if dead and self.segment is None:
            # A checkpoint must follow them first, or the records that settled their rows would be lost with them.
            self._begin_segment()
        self._flush()
        syncs = (has_durable and self._settings.fsync == "always") or is_due or bool(dead)
        if syncs and self.segment is not None:
            self._steps.append(Sync(self.segment))
        size = sum(self.segments.values()) - before
        self._steps += [Remove(segment) for segment in dead]
        self._commit = DiskCommit(self._steps, max(self.written, self._last), syncs, size)
        return self._commit

    def _begin_steps(self) -> None:
        self._steps = [Remove(segment) for segment in sorted(self._abandoned)]
        self._steps += [Preserve(segment) for segment in sorted(self._damaged)]
        self._begun_segments = []
        self._steps += [] if self._inherited is None else [Sync(self._inherited)]
        # After a failure, records up to `written` may be written again; their numbers stay.
        self._last = self.written

    def _place(self, pending: _PendingRecord) -> None:
        """Append a record to the segment, or to a new one if it does not fit."""
        if self.segment is None or self.segments[self.segment] + pending.size > self._capacity:
            self._begin_segment()
        segment = self.segment
        assert segment is not None
        start = self.segments[segment]
        self._put(frame(segment, pending.kind, pending.number, self._synced, [pending.payload]), pending.payload)
        if pending.catalogued:
            pending.before = self._catalog.find(pending.catalogued)
            self._catalog.place(pending.catalogued, pending.number, segment, start, pending.size)
        self._last = max(self._last, pending.number)

    def _begin_segment(self) -> None:
        """Close the segment, and begin another one with a checkpoint."""
        self._flush()
        if self.segment is not None:
            self._steps.append(Sync(self.segment))
        segment, self._next_segment = self._next_segment, self._next_segment + 1
        self.segment, self.segments[segment] = segment, 0
        self._begun_segments.append(segment)
        self._steps.append(Create(segment))
        payload = self._checkpoint(self._last)
        self._put(segment_header(segment))
        for _ in range(2 if self._copies_checkpoint else 1):
            self._put(frame(segment, Kind.CHECKPOINT, self._last, self._synced, [payload]), payload)
        self._checkpoint_bytes = len(payload)
        self._capacity = self._room.segment_bytes(len(payload))
        self._begun()

    def _put(self, *pieces: bytes) -> None:
        assert self.segment is not None
        self._pieces += pieces
        self.segments[self.segment] += sum(map(len, pieces))

    def _flush(self) -> None:
        if self._pieces:
            assert self.segment is not None
            self._steps.append(Write(self.segment, list(self._pieces)))
            self._pieces = []

    def committed(self, commit: DiskCommit) -> None:
        """Note that a commit is carried out."""
        self._commit = None
        taken, self._taken, self._taken_bytes = self._taken, [], 0
        self.trouble = ""
        self._inherited = None
        self.commits += 1
        self.written_bytes += commit.size
        self.written = commit.through
        for step in commit.steps:
            if isinstance(step, Remove):
                self.segments.pop(step.segment, None)
                self._abandoned.discard(step.segment)
            elif isinstance(step, Preserve):
                self._damaged.discard(step.segment)
        if commit.syncs:
            done = self._unsynced + taken
            self._synced = commit.through
            self._copies_checkpoint = False
            self._unsynced, self._unsynced_bytes, self._unsynced_since = [], 0, None
            self.syncs += 1
        else:
            pins = self._settings.fsync != "never"
            done = [each for each in taken if not (pins and each.durable)]
            kept = [each for each in taken if pins and each.durable]
            self._unsynced += kept
            self._unsynced_bytes += sum(each.size for each in kept)
        self._cache.unpin(each.catalogued for each in done if each.catalogued)

    def failed(self, reason: str) -> None:
        """Note that a commit was not carried out, or only in part: it is written again, to a new segment."""
        self._commit = None
        self.trouble = reason
        self.failures += 1
        for each in reversed(self._taken):
            if each.before is not None:
                self._catalog.place(each.catalogued, *each.before[1:5])
        self._queue = self._unsynced + self._taken + self._queue
        self._unsynced, self._unsynced_bytes, self._taken, self._taken_bytes = [], 0, [], 0
        self._queued_bytes = sum(each.size for each in self._queue)
        for segment in self._begun_segments:
            del self.segments[segment]
        self._abandoned.update(self._begun_segments)
        self.segment = None
