"""`postroad archive export`: what a store retains, written as a Parquet dataset.

The store is read as a new process would read it, and never changed: a running broker is not disturbed. What it stores
after the export began is not in it; what it lets go before it was read is counted as gone.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.archive.errors import ArchiveError
from postroad.archive.tables import ARCHIVE_SCHEMA, archive_table
from postroad.broker import is_retention, retained_topic
from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.messages.id_columns import TIME_SHIFT
from postroad.selectors import TopicPattern
from postroad.store import Cursor, FileDisk, Log, Recovered, StoreReadError, StoreSettings, next_rows, recover
from postroad.store.row_sets import NO_RUNS, unite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from postroad.messages import Batch

__all__ = ["ExportReport", "export_archive"]

# Rows of a file.
FILE_ROWS = 1_000_000
# Rows and bytes of a row group, the unit that readers take into memory.
GROUP_ROWS, GROUP_BYTES = 65_536, 64 * 1024 * 1024
# Beyond all places.
_END = 2**62
# Of records that are read; each is used once.
_CACHE_BYTES = 16 * 1024 * 1024
# How often the store is listed again because its broker has removed a segment before it was read. It removes one only
# after it has begun another, so this is more than enough.
_LISTINGS = 10


@dataclass
class ExportReport:
    """What was exported.

    Attributes:
        messages: how many.
        files: how many files they are in.
        retained: the patterns that the store retains.
        gone: messages that were let go, or were damaged, before they could be read.
    """

    messages: int
    files: int
    retained: list[str]
    gone: int


def export_archive(
    store: Path, to: Path, topic: str | None = None, since: int | None = None, until: int | None = None
) -> ExportReport:
    """Write what a store retains to a new directory, in the order in which it was stored.

    Args:
        store: the folder of the store, `store` in the data directory of a broker.
        to: the directory of the dataset, which must not be there yet.
        topic: only messages whose topics fit this pattern.
        since: only messages whose ids have this time (ms) or a later one.
        until: only messages whose ids have an earlier time.

    Raises:
        ArchiveError: there is no store, it retains nothing, or the directory exists already.
        TopicError: the pattern is none.
    """
    if to.exists():
        raise ArchiveError(f"{to} exists already; choose another directory, or remove it")
    source = RetainedRows(store)
    wanted = None if topic is None else TopicPattern.parse(topic)
    fresh = to.with_name(f".{to.name}-{uuid.uuid4().hex}")
    fresh.mkdir(mode=0o700, parents=True)
    try:
        report = _write(source, fresh, wanted, since, until)
        # All of it or nothing: who finds the directory finds the whole archive.
        fresh.rename(to)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return report


def _write(
    source: RetainedRows, folder: Path, topic: TopicPattern | None, since: int | None, until: int | None
) -> ExportReport:
    chosen = _Choice(topic, since, until)
    with _ParquetFiles(folder) as files:
        for batch in source.batches():
            files.add(archive_table(batch.take(chosen.rows(batch))))
    return ExportReport(files.rows, files.count, source.topics, source.gone)


class _ParquetFiles:
    """Parquet files with row groups of a good size: records of the store are small."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._in_file = 0
        self.count = self.rows = 0

    def __enter__(self) -> _ParquetFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            if self._writer is not None:
                self._writer.close()

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        waiting = sum(each.num_rows for each in self._waiting)
        if waiting >= GROUP_ROWS or sum(each.nbytes for each in self._waiting) >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write a row group. The first one also if it is empty: an empty dataset has its columns anyway."""
        table = pa.concat_tables([ARCHIVE_SCHEMA.empty_table(), *self._waiting])
        self._waiting = []
        if self._writer is None or self._in_file >= FILE_ROWS:
            if self._writer is not None:
                self._writer.close()
            name = self._folder / f"part-{self.count:05d}.parquet"
            self._writer, self._in_file = pq.ParquetWriter(name, ARCHIVE_SCHEMA, compression="zstd"), 0
            self.count += 1
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._in_file += table.num_rows
        self.rows += table.num_rows


class _Choice:
    """Which rows are wanted."""

    def __init__(self, topic: TopicPattern | None, since: int | None, until: int | None) -> None:
        self._index = SubscriptionIndex()
        self._index.add(1, None, topic)
        self._since = 0 if since is None else since
        self._until = 2**48 if until is None else until

    def rows(self, batch: Batch) -> NDArray[np.int64]:
        times = (batch.ids[:, 1] >> TIME_SHIFT).astype(np.int64)
        mask = (times >= self._since) & (times < self._until)
        offsets, _ = self._index.match(batch, NO_BUDGET)
        return np.flatnonzero(mask & (np.diff(offsets) > 0))


def _recovered(disk: FileDisk) -> Recovered:
    for _ in range(_LISTINGS - 1):
        try:
            return recover(disk.segments(), disk.read)
        except StoreReadError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return recover(disk.segments(), disk.read)


class RetainedRows:
    """What a store retains, read once from beginning to end.

    Args:
        folder: of the store.

    Raises:
        ArchiveError: there is none, or it retains nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._disk = FileDisk(folder)
        if not self._disk.segments():
            raise ArchiveError(f"there is no store in {folder}; it is the folder `store` in a broker's data directory")
        self._log = Log(StoreSettings(cache_bytes=_CACHE_BYTES), _recovered(self._disk))
        kept = [each for each in self._log.cursors.values() if is_retention(each.terms)]
        if not kept:
            raise ArchiveError(f"the store in {folder} retains no topic; set [[store.retain]] in the broker's settings")
        self.topics = [retained_topic(each.terms) for each in kept]
        everything = NO_RUNS
        for each in kept:
            everything = unite(everything, each.waiting.runs)
        # Rows that two patterns retain come once.
        self._rows = Cursor(0, b"", False, everything)
        self.gone = 0

    def batches(self) -> Iterator[Batch]:
        """The rows in order, a batch for each record."""
        position = 0
        while (found := next_rows(self._rows, position, _END)) is not None:
            position = int(found.places[-1]) + 1
            stored = self._log.record(found.number)
            if stored is None:
                self._read()
                stored = self._log.record(found.number)
            if stored is None:
                self.gone += len(found.places)
            else:
                yield stored.batch.take(stored.rows_at(found.rows))

    def _read(self) -> None:
        for read in self._log.take_reads():
            try:
                data = self._disk.read(read.segment, read.start, read.length)
            except OSError:
                # The broker has removed it, or it cannot be read: the log counts it as damaged, and we as gone.
                data = b""
            self._log.loaded(read, data)
