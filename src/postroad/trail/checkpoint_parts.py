"""Parts of a checkpoint: the entries of all files that have something of one day, as a Parquet file.

Rows are sorted by (table, origin, time), in small row groups with statistics, so a reader of one id reads a group or
two. A file whose times span several days is named in the part of each day; one that spans more than `MANY_DAYS` (a
clock was wrong for a while) is named in the part `WIDE`, which every reader reads.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.trail.columns import DAY_MS, date_text
from postroad.trail.durable_files import replace_file
from postroad.trail.errors import TrailDamageError
from postroad.trail.file_checksums import footer_checksum, row_group_sums
from postroad.trail.file_reader import Reads, VerifiedFile
from postroad.trail.files import FileEntry, Group
from postroad.trail.manifest import Checkpoint, Part, checkpoint_name, decoded
from postroad.trail.paths import file_fault, refuse_links
from postroad.trail.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from postroad.trail.locations import Location
    from postroad.trail.spots import Spots

__all__ = [
    "MANY_DAYS",
    "WIDE",
    "checkpoint_parts",
    "days_of",
    "entries_of",
    "open_part",
    "origins_in",
    "read_part",
    "write_part",
]

WIDE = -1
MANY_DAYS = 7
PART_FOLDER = "parts"
# One origin of one table has a handful of entries an hour: a reader of one id takes one group out of a busy day.
_GROUP_ROWS = 1_024

_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("origin", pa.int64()),
        ("time_from", pa.int64()),
        ("time_to", pa.int64()),
        ("number_from", pa.int64()),
        ("number_to", pa.int64()),
        ("group", pa.int32()),
        ("group_rows", pa.int64()),
        ("path", pa.string()),
        ("day", pa.int32()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("footer_crc", pa.int64()),
        ("group_crc", pa.int64()),
        ("file_crc", pa.int64()),
    ]
)


def days_of(entry: FileEntry) -> tuple[int, ...]:
    """The parts that name a file."""
    days: set[int] = {entry.day}
    for group in entry.groups:
        days.update(_days(group))
    return tuple(sorted(days))


def _days(group: Group) -> range:
    first, last = group.time_from // DAY_MS, group.time_to // DAY_MS
    return range(WIDE, WIDE + 1) if last - first >= MANY_DAYS else range(first, last + 1)


def write_part(folder: Path, number: int, day: int, entries: Iterable[FileEntry]) -> Part | None:
    """Write the part of one day; none when no entry has anything of it."""
    rows = [
        (
            entry.table,
            *_row(group),
            entry.path,
            entry.day,
            entry.rows,
            entry.size,
            entry.footer_crc,
            group.crc,
            entry.crc,
        )
        for entry in entries
        for group in entry.groups
        if day in _days(group)
    ]
    if not rows:
        return None
    rows.sort()
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=_SCHEMA),
        sink,
        row_group_size=_GROUP_ROWS,
        version="2.6",
        compression="zstd",
        store_schema=False,
        write_page_checksum=True,
    )
    data = memoryview(sink.getvalue()).cast("B")
    name = "wide" if day == WIDE else date_text(day)
    path = f"{PART_FOLDER}/{name}-{number:012d}.parquet"
    replace_file(folder / path, data)
    tables = dict(Counter(str(row[0]) for row in rows))
    sums = tuple(row_group_sums(data))
    return Part(day, path, tables, len(data), footer_checksum(data, path), _number_ranges(rows), sums)


def _row(group: Group) -> tuple[int, ...]:
    return (
        group.origin,
        group.time_from,
        group.time_to,
        group.number_from,
        group.number_to,
        group.index,
        group.rows,
    )


def _number_ranges(rows: Sequence[tuple[Any, ...]]) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for name, _, _, _, low, high, *_ in rows:
        if TABLES[name].number:
            known = ranges.get(name, (low, high))
            ranges[name] = (min(known[0], low), max(known[1], high))
    return ranges


def open_part(folder: Location, part: Part, reads: Reads) -> VerifiedFile:
    """A part, to read from.

    Raises:
        TrailDamageError: it is gone or damaged, or a symbolic link.
    """
    sums = dict(enumerate(part.sums))
    return VerifiedFile(refuse_links(folder, part.path), part.size, part.footer_crc, reads, sums=sums)


def checkpoint_parts(folder: Path, number: int, broker: int) -> tuple[Part, ...] | None:
    """The parts of a checkpoint of a broker; None if it is gone or damaged."""
    path = folder / checkpoint_name(number)
    try:
        return decoded(path.read_bytes(), Checkpoint, path, broker).parts
    except (OSError, TrailDamageError):
        return None


def entries_of(folder: Location, part: Part, broker: int) -> list[FileEntry]:
    """All entries of a part of a broker.

    Raises:
        TrailDamageError: it is gone or damaged.
    """
    return read_part(open_part(folder, part, Reads()), broker)


def read_part(
    file: VerifiedFile,
    broker: int,
    table: str | None = None,
    origin: int | None = None,
    times: tuple[int, int] | None = None,
    among: Spots | None = None,
) -> list[FileEntry]:
    """The entries of a part of a broker, of one table, origin, range of times, or some minutes of origins if asked for.

    Raises:
        TrailDamageError: the part is damaged, or names what is not below the broker's own tables.
    """
    wanted = {"table": table, "origin": origin}
    groups = set(range(file.groups))
    for column, value in wanted.items():
        if value is not None:
            groups &= set(file.groups_with(column, value))
    # Parts of earlier versions have fewer columns.
    rows = file.read([name for name in _SCHEMA.names if name in file.names], groups)
    keep = np.ones(rows.num_rows, np.bool_)
    if table is not None:
        keep &= pc.equal(rows.column("table"), table).to_numpy()
    if origin is not None:
        keep &= rows.column("origin").to_numpy() == origin
    if times is not None:
        keep &= rows.column("time_from").to_numpy() <= times[1]
        keep &= rows.column("time_to").to_numpy() >= times[0]
    if among is not None:
        ranges = (rows.column(name).to_numpy() for name in ("origin", "time_from", "time_to"))
        keep &= among.within(*ranges)
    found = _entries(rows.filter(pa.array(keep)))
    for entry in found:
        fault = file_fault(entry.path, broker, entry.table)
        if fault:
            raise TrailDamageError(file.path, fault)
    return found


def origins_in(file: VerifiedFile, tables: Iterable[str]) -> set[int]:
    """The brokers where messages of some tables entered, as a part says.

    Raises:
        TrailDamageError: the part is damaged.
    """
    rows = file.read(["table", "origin"])
    keep = pc.is_in(rows.column("table"), pa.array(sorted(tables)))
    return set(pc.unique(rows.column("origin").filter(keep)).to_pylist()) - {0}


def _entries(rows: Any) -> list[FileEntry]:
    found: dict[str, FileEntry] = {}
    groups: dict[str, list[Group]] = {}
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table, origin, time_from, time_to, low, high, index, count, path, day, total, size, crc, *sums = row
        of_group, of_file = sums or (0, 0)
        if table not in TABLES:
            continue  # of a later Postroad: its files cannot be read here anyway
        found[path] = FileEntry(path, table, day, total, size, crc, (), of_file)
        groups.setdefault(path, []).append(Group(index, origin, time_from, time_to, count, low, high, of_group))
    return [msgspec.structs.replace(entry, groups=tuple(groups[path])) for path, entry in found.items()]
