"""One Parquet file of one table and date: written whole, and described for the manifest."""

from __future__ import annotations

import io
import mmap
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.trail.columns import DAY_MS, date_text
from postroad.trail.durable_files import LARGE_BYTES, replace_file, replace_file_by
from postroad.trail.errors import TrailDamageError, TrailWriteError
from postroad.trail.file_checksums import Layout, file_sums, footer_bytes, layout_of, row_group_spans
from postroad.trail.packed_lists import unpack_words
from postroad.trail.paths import refuse_links
from postroad.trail.run_files import render_runs
from postroad.trail.runs import RunTable
from postroad.trail.schemas import metadata, table_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "FileEntry",
    "Group",
    "describe_file",
    "file_path",
    "origins_of",
    "render",
    "write_file",
]

# Measured on passages: 0.5 % smaller than zstd's default of 3 for 15 % more time; higher levels gain nothing more.
COMPRESSION_LEVEL = 5
# Filters are nearly random bits, so searching for repetitions is useless: measured on Bloom filters a tenth, half and
# completely full, the lowest level is as small or smaller, in 12 to 70 % of the time.
FILTER_COMPRESSION_LEVEL = 1
# Filters of which less than this share could be saved are not compressed at all. A full Bloom filter of the paper would
# save 5.5 %, for more time than all else takes that makes a file of it.
WORTH_COMPRESSING = 0.1
# Columns of numbers are not compressed in row groups of so few rows, such as all of filters have: zstd needs longer to
# get ready than to compress them. Measured on files of 1 to 166 filters: 280 bytes less to 710 more, in a fifth to a
# third less time.
FEW_ROWS = 16
# Pages of version 2 leave the bits that tell null from not null uncompressed: 1 % more for columns of lists.
PAGE_VERSION = "1.0"


class Group(msgspec.Struct, array_like=True, frozen=True):
    """What a row group has of one origin: the range of id times, and of numbers where the table keeps one.

    Of tables that are not about messages, origin is 0 and the times are the rows' own. `crc` is the CRC-32 of all bytes
    of the row group: Parquet's own checksums leave out the headers of its pages, and a wrong header makes wrong values
    of right pages. 0 if it is not known, in trails of earlier versions.
    """

    index: int
    origin: int
    time_from: int
    time_to: int
    rows: int
    number_from: int = 0
    number_to: int = 0
    crc: int = 0


class FileEntry(msgspec.Struct, array_like=True, frozen=True):
    """A file as the manifest knows it: where it is, what is in it, and how to tell that it is still the same.

    `crc` is the CRC-32 of the whole file, for readers of whole files; 0 if it is not known.
    """

    path: str
    table: str
    day: int
    rows: int
    size: int
    footer_crc: int
    groups: tuple[Group, ...]
    crc: int = 0

    @property
    def time_from(self) -> int:
        return min((group.time_from for group in self.groups), default=0)

    @property
    def time_to(self) -> int:
        return max((group.time_to for group in self.groups), default=-1)


def origins_of(entries: Iterable[FileEntry]) -> set[int]:
    """The brokers where the messages of some files entered, from the manifest."""
    return {group.origin for entry in entries for group in entry.groups if group.origin}


def file_path(table: str, broker: int, day: int, name: str) -> str:
    """Where a file is, from the root of the trail."""
    return f"{table}/broker={broker}/date={date_text(day)}/{name}.parquet"


def write_file(root: Path, table: str, broker: int, day: int, name: str, rows: Any) -> FileEntry:
    """Write the rows of one date, durably; the file counts once a manifest names it.

    Raises:
        TrailWriteError: the disk does not take it.
    """
    path = file_path(table, broker, day, name)
    place = _place(root, path)
    size = table_named(table).group_rows
    if isinstance(rows, RunTable):
        groups = tuple(_run_groups(rows, size))
    else:
        groups = tuple(_groups(table, rows, [min(size, rows.num_rows - at) for at in range(0, rows.num_rows, size)]))
    entry = FileEntry(path, table, day, rows.num_rows, 0, 0, groups)
    if isinstance(rows, RunTable):
        data, parts = render_runs(broker, rows)
    elif rows.nbytes < LARGE_BYTES:
        data, parts = _rendered(table, broker, rows)
    else:
        found: list[FileEntry] = []

        def fill(temporary: Path) -> None:
            footer = _render_to(temporary, table, broker, rows)
            # As long as the system has it in memory.
            found.append(_summed_file(entry, temporary, footer))

        replace_file_by(place, fill)
        return found[-1]
    replace_file(place, data)
    return _summed(entry, data, parts)


def _place(root: Path, path: str) -> Path:
    try:
        return refuse_links(root, path)
    except TrailDamageError as error:
        raise TrailWriteError(error.path, error.problem) from error


def _summed_file(entry: FileEntry, place: Path, footer: Any) -> FileEntry:
    """The entry of a large file that is written, mapped instead of read into memory."""
    with (
        place.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        return _summed(entry, data, layout_of(footer, len(data) - footer_bytes(data)))


def _summed(entry: FileEntry, data: memoryview, parts: Layout) -> FileEntry:
    """An entry with the size of the file and its checksums."""
    footer, sums, whole = file_sums(data, parts, entry.path)
    groups = tuple(msgspec.structs.replace(group, crc=sums[group.index]) for group in entry.groups)
    return FileEntry(entry.path, entry.table, entry.day, entry.rows, len(data), footer, groups, whole)


def render(table: str, broker: int, rows: Any) -> memoryview:
    """The bytes of a file."""
    return _rendered(table, broker, rows)[0]


def _rendered(table: str, broker: int, rows: Any) -> tuple[memoryview, Layout]:
    """The bytes of a file, and where its parts are."""
    sink = pa.BufferOutputStream()
    footer = _render(sink, table, broker, rows)
    data = memoryview(sink.getvalue()).cast("B")
    return data, layout_of(footer, len(data) - footer_bytes(data))


def _render_to(path: Path, table: str, broker: int, rows: Any) -> Any:
    """Write a file as it is made: a large one is never in memory as a whole. Returns what its footer says."""
    # The file is there and empty. If it were truncated, ext4 would begin to write it when it is closed; it is forced to
    # disk right after, in one go.
    with pa.OSFile(str(path), "ab") as sink:
        return _render(sink, table, broker, rows)


def _render(sink: Any, table: str, broker: int, rows: Any) -> Any:
    layout = table_named(table)
    plain = set(layout.delta)
    bare = {"data"} if table == "filters" and _is_dense(rows) else set()
    if min(rows.num_rows, layout.group_rows) <= FEW_ROWS:
        bare |= {field.name for field in layout.schema if pa.types.is_primitive(field.type)}
    footers: list[Any] = []
    with pq.ParquetWriter(
        sink,
        layout.schema,
        version="2.6",
        data_page_version=PAGE_VERSION,
        compression={name: "none" if name in bare else "zstd" for name in layout.schema.names},
        compression_level={name: _level(name) for name in layout.schema.names if name not in bare},
        use_dictionary=[field.name for field in layout.schema if field.name not in plain | {"data", "keys", "alias"}],
        column_encoding=dict.fromkeys(layout.delta, "DELTA_BINARY_PACKED"),
        # Footers are one part in a hundred of small files: only what readers choose row groups by.
        write_statistics=[name for name in layout.schema.names if name in layout.statistics],
        # The serialised Arrow schema would be a kilobyte in every footer, and adds nothing to Parquet's own.
        store_schema=False,
        write_page_checksum=True,
        metadata_collector=footers,
    ) as writer:
        writer.write_table(rows, row_group_size=layout.group_rows)
        writer.add_key_value_metadata(metadata(table, broker))
    return footers[0]


def _is_dense(filters: Any) -> bool:
    """Whether filters are not worth compressing: ribbons, and Bloom filters with about as many ones as zeros."""
    ones, bits = (filters.column(name).to_numpy().astype(np.float64) for name in ("ones", "bits"))
    ribbons = pc.equal(filters.column("method"), "ribbon").to_numpy()
    share = np.where(ribbons, 0.5, np.clip(ones / np.maximum(bits, 1), 1e-9, 1 - 1e-9))
    information = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    return bool((bits * information).sum() > (1 - WORTH_COMPRESSING) * bits.sum())


def _level(column: str) -> int:
    return FILTER_COMPRESSION_LEVEL if column == "data" else COMPRESSION_LEVEL


def _groups(table: str, rows: Any, sizes: list[int]) -> Iterator[Group]:
    layout = table_named(table)
    start = 0
    for index, size in enumerate(sizes):
        part = rows.slice(start, size)
        start += size
        times = part.column(layout.time).to_numpy()
        ends = times
        if table == "filters":
            ends = part.column("time_to").to_numpy()
        elif table == "latencies":
            ends = part.column("until").to_numpy()
        numbers = part.column(layout.number).to_numpy() if layout.number else np.zeros(size, np.int64)
        origins = part.column(layout.origin).to_numpy() if layout.origin else np.zeros(size, np.int64)
        for origin in np.unique(origins):
            here = origins == origin
            if table == "filters":
                here &= times <= ends
                yield from _late(index, int(origin), part.column("singles").filter(pa.array(origins == origin)))
            if here.any():
                yield _group(index, int(origin), times[here], ends[here], numbers[here])


def _run_groups(rows: RunTable, size: int) -> Iterator[Group]:
    for index, runs in enumerate(rows.portions(size)):
        for origin in np.unique(runs.origin).tolist():
            here = runs.origin == origin
            times = runs.time[here]
            yield Group(index, origin, int(times.min()), int(times.max()), int(runs.counts[here].sum()))


def _group(
    index: int, origin: int, times: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]
) -> Group:
    return Group(index, origin, int(times.min()), int(ends.max()), len(times), int(numbers.min()), int(numbers.max()))


def _late(index: int, origin: int, singles: Any) -> Iterator[Group]:
    """Late ids may lie days from the range of their filter: one entry for each day, so that ranges stay narrow."""
    late = np.concatenate([np.empty(0, np.int64), *(unpack_words(row) for row in singles.to_pylist() if row)])
    days = late // DAY_MS
    for day in np.unique(days):
        times = late[days == day]
        yield Group(index, origin, int(times.min()), int(times.max()), 0)


def describe_file(root: Path, path: str, table: str, day: int) -> FileEntry:
    """The entry of a file that another writer made, for instance a compaction, from what is in it."""
    data = (root / path).read_bytes()
    file = pq.ParquetFile(io.BytesIO(data))
    layout = table_named(table)
    wanted = {layout.time, layout.origin, layout.number, "time_to", "singles", "opened", "until"}
    rows = file.read(columns=[name for name in file.schema_arrow.names if name in wanted])
    sizes = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
    entry = FileEntry(path, table, day, rows.num_rows, 0, 0, tuple(_groups(table, rows, sizes)))
    # Nobody knows here whether the checksums of its pages are right: all bytes are summed.
    return _summed(entry, memoryview(data), Layout(row_group_spans(file.metadata, len(data) - footer_bytes(data))))
