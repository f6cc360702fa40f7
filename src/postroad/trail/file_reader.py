"""Reads one Parquet file, and verifies that it is the one that the manifest names.

Parquet protects its pages with checksums, but not their headers. The manifest has the size of a file and the checksums
of its footer, of each row group and of the whole; a reader compares them before it decodes anything. A file that is
truncated, damaged, of another table or of another version is refused, so no answer uses it.
"""

from __future__ import annotations

import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.trail.errors import TrailDamageError, TrailVersionError
from postroad.trail.file_checksums import footer_bytes, footer_checksum, row_group_spans
from postroad.trail.locations import Spans, StoredPath
from postroad.trail.paths import file_fault
from postroad.trail.schemas import BROKER_KEY, TABLE_KEY, VERSION, VERSION_KEY, table_named
from postroad.trail.shipped_files import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location

__all__ = ["Reads", "TrailFile", "VerifiedFile"]

# Read at once from the end of a file: larger than the footers of all but huge files, and small files whole.
TAIL_BYTES = 16_384
# A file of a store of up to so many bytes is fetched whole, by one request: a second one takes longer than the bytes.
WHOLE_BYTES = 1 << 20
# Read at a time where a whole file is compared with its checksum.
_PORTION_BYTES = 1 << 20
# Packed lists: few are different, and a reader of one id wants one of them. As dictionaries they need not be copied out
# for every row, which halves the time of a read.
_REPEATING = {
    name: tuple(field.name for field in table_named(name).schema if field.type == pa.binary())
    for name in ("passages", "journeys")
}


class Reads:
    """What reading cost: files opened and bytes read from them."""

    __slots__ = ("bytes", "files")

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0

    def count(self, size: int) -> None:
        """A file was opened, and so much of it read."""
        self.files += 1
        self.bytes += size

    def add(self, other: Reads) -> None:
        """Count what was counted elsewhere."""
        self.files += other.files
        self.bytes += other.bytes


class VerifiedFile:
    """An open Parquet file; what is read from it is counted.

    Attributes:
        path: where it is.
        reads: where that is counted.

    Raises:
        TrailDamageError: it is not the file that was written; also when reading finds damage later.
    """

    def __init__(
        self,
        path: Location,
        size: int,
        footer_crc: int,
        reads: Reads,
        repeating: Sequence[str] = (),
        sums: Mapping[int, int] | None = None,
    ) -> None:
        self.path = path
        self.reads = reads
        # The last rows read from a file that is in memory anyway: a part of a manifest is asked again and again.
        self._kept: dict[tuple[str | int, ...], Any] = {}
        # Row group -> its checksum, of those that were not compared yet.
        self._sums = {index: crc for index, crc in (sums or {}).items() if crc}
        try:
            tail, opened = self._tail(size)
        except OSError as error:
            raise TrailDamageError(path, error.strerror or error) from error
        if footer_checksum(tail, path) != footer_crc:
            raise TrailDamageError(path, "the footer is not the one that was written")
        reads.count(min(len(tail), footer_bytes(tail)))
        self._size, self._footer = size, footer_bytes(tail)
        self._whole = tail if len(tail) == size else None
        self._is_small = size <= TAIL_BYTES
        # Of a file in a store each span is fetched once, and what was compared is what is decoded.
        self._spans = None if opened is None else Spans(opened, size, tail)
        try:
            source = pa.BufferReader(tail) if self._whole is not None else self._spans or str(path)
            self._file = pq.ParquetFile(source, page_checksum_verification=True, read_dictionary=list(repeating))
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise TrailDamageError(path, error) from error

    def _tail(self, expected: int) -> tuple[bytes, Any]:
        """The end of the file; and of a file in a store that is not whole in it, the file, opened."""
        with ExitStack() as files:
            file = files.enter_context(self.path.open("rb"))
            size = file.seek(0, 2)
            if size != expected:
                raise TrailDamageError(self.path, f"has {size:,} bytes instead of {expected:,}")
            far = isinstance(self.path, StoredPath)
            file.seek(0 if far and size <= WHOLE_BYTES else max(0, size - TAIL_BYTES))
            tail = file.read()
            footer = footer_bytes(tail)
            if len(tail) < footer <= size:
                file.seek(size - footer)
                tail = file.read()
            if far and len(tail) < size:
                files.pop_all()
                return tail, file
        return tail, None

    @property
    def groups(self) -> int:
        """How many row groups it has."""
        return int(self._file.num_row_groups)

    @property
    def raw_bytes(self) -> int:
        """What its row groups take before compression."""
        return sum(int(self._file.metadata.row_group(index).total_byte_size) for index in range(self.groups))

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return list(self._file.schema_arrow.names)

    @property
    def said(self) -> dict[bytes, bytes]:
        """What the file says about itself."""
        return self._file.metadata.metadata or {}

    def read(self, columns: Sequence[str], groups: Iterable[int] | None = None) -> Any:
        """The columns of some row groups, of all if not said; their bytes are compared with the checksums first."""
        chosen = sorted(set(groups)) if groups is not None else list(range(self.groups))
        key: tuple[str | int, ...] = (*columns, *chosen)
        if key in self._kept:
            return self._kept[key]
        try:
            self._compare(chosen)
            rows = self._file.read_row_groups(chosen, columns=list(columns), use_threads=False)
            # After it: a description of a column that is not one ends the process where the metadata is asked for it,
            # and is an error where it is read.
            self.reads.bytes += self._cost(columns, chosen)
        except (OSError, ValueError, IndexError, KeyError, pa.ArrowException) as error:
            raise TrailDamageError(self.path, error) from error
        if self._is_small:
            self._kept = {key: rows}
        return rows

    def compare(self, groups: Iterable[int]) -> None:
        """Fetch some row groups, if the file is in a store, and compare them with their checksums.

        Raises:
            TrailDamageError: one of them is not the one that was written.
        """
        try:
            self._compare(sorted(set(groups)))
        except (OSError, IndexError) as error:
            raise TrailDamageError(self.path, error) from error

    def _compare(self, groups: Sequence[int]) -> None:
        wanted = [index for index in groups if index in self._sums]
        if not wanted:
            return
        spans = row_group_spans(self._file.metadata, self._size - self._footer)
        if self._spans is not None:
            self._spans.fetch_ahead(spans[index] for index in wanted)
        with ExitStack() as files:
            near = self._whole is not None or self._spans is not None
            file = None if near else files.enter_context(self.path.open("rb"))
            for index in wanted:
                start, end = spans[index]
                if self._spans is not None:
                    data = self._spans.fetch(start, end)
                elif file is None:
                    assert self._whole is not None
                    data = self._whole[start:end]
                else:
                    file.seek(start)
                    data = file.read(end - start)
                if zlib.crc32(data) != self._sums[index]:
                    raise TrailDamageError(self.path, f"row group {index} is not the one that was written")
                del self._sums[index]

    def _cost(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        places = [place for place, name in enumerate(self._file.schema_arrow.names) if name in set(columns)]
        chosen = [self._file.metadata.row_group(index) for index in groups]
        return sum(group.column(place).total_compressed_size for group in chosen for place in places)

    def groups_with(self, column: str, value: Any) -> list[int]:
        """The row groups whose statistics admit a value."""
        place = self._file.schema_arrow.names.index(column)
        found = []
        for index in range(self.groups):
            statistics = self._file.metadata.row_group(index).column(place).statistics
            if statistics is None or not statistics.has_min_max or statistics.min <= value <= statistics.max:
                found.append(index)
        return found


class TrailFile(VerifiedFile):
    """A file of a table, as the manifest names it.

    Raises:
        TrailDamageError: it is damaged, of another table or of another broker, or not below the trail.
        TrailVersionError: it is of another version.
    """

    def __init__(self, root: Location, entry: FileEntry, broker: int, reads: Reads) -> None:
        fault = file_fault(entry.path, broker, entry.table)
        if fault:
            raise TrailDamageError(root, f"a manifest {fault}")
        place = place_of(root, entry.path, broker)
        sums = {group.index: group.crc for group in entry.groups}
        super().__init__(place, entry.size, entry.footer_crc, reads, _REPEATING.get(entry.table, ()), sums)
        self._entry = entry
        version = self.said.get(VERSION_KEY, b"")
        # Python converts some thousand digits at most.
        if not version.isdigit() or len(version) > len(str(2**64)):
            raise TrailDamageError(self.path, "not a file of a trail")
        if int(version) != VERSION:
            raise TrailVersionError(self.path, f"of version {int(version)}; this Postroad reads {VERSION}")
        table, owner = self.said.get(TABLE_KEY, b""), self.said.get(BROKER_KEY, b"")
        if table != entry.table.encode():
            raise TrailDamageError(self.path, f"of the table {table.decode(errors='replace')!r}, not {entry.table!r}")
        if owner != str(broker).encode():
            raise TrailDamageError(self.path, f"of broker {owner.decode(errors='replace')!r}, not {broker}")

    def verify(self) -> None:
        """Compare the whole file with its checksum: for callers that pass it to another reader.

        Raises:
            TrailDamageError: it is damaged.
        """
        if not self._entry.crc:
            # Written by an earlier version without checksum: the best check is to decode it, with the checksums of its
            # pages.
            self.read(self.names)
            return
        found = 0
        try:
            with self.path.open("rb") as file:
                while data := file.read(_PORTION_BYTES):
                    found = zlib.crc32(data, found)
        except OSError as error:
            raise TrailDamageError(self.path, error.strerror or error) from error
        if found != self._entry.crc:
            raise TrailDamageError(self.path, "its contents are not what was written")
