"""Divides a question into portions: some of its ids, and all files that may have records of them.

Ids carry their origin and time, and manifests say which origins and times each row group has. So the driver knows
which files the ids of a minute can be in, and a task that gets ids with their files finds all evidence of them: no
record of the trail moves from one task to another, and each is decoded once. Only row groups at the border of two
portions are read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.lookup import evidence_of
from postroad.pipeline.tables import ID
from postroad.trail import FileEntry
from postroad.trail.spots import SPOT_MS, Spots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.context import Context
    from postroad.pipeline.sources import SourceFile
    from postroad.trail.locations import Location

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    # Portion, broker (of files), table, and a file's entry or rows, packed.
    _Row = tuple[int, int | None, str, bytes]

__all__ = [
    "MAX_SPOTS",
    "AskedSpots",
    "Division",
    "asked_spots",
    "counted_spots",
    "divided",
    "evidence_in",
    "in_portions",
    "table_in_portions",
]

# What a task handles: some seconds of work, and some hundred megabytes with all that is found.
PORTION_BYTES, PORTION_IDS = 16 << 20, 64_000
# Ids of one minute and origin that are not spread over several portions.
MAX_IDS_TOGETHER = 4 * PORTION_IDS
# The most (origin, minute) pairs that the driver counts ids of, some 100 bytes each: twenty brokers for a month.
MAX_SPOTS = 1_000_000
_COLUMNS = {"portion": "int", "asked": "string", **dict.fromkeys(ID[:3], "bigint"), "counter": "int"}
_FILE_COLUMNS = {"broker": "bigint", "table": "string", "packed": "binary"}
_GIVEN = ["asked", *ID]
# In the place of a table's name: ids, packed.
_IDS = "ids"


class AskedSpots(NamedTuple):
    """The (origin, minute) pairs of a question, and how many ids each has; sorted by both."""

    spots: Spots
    origin: Ints
    minute: Ints
    ids: Ints

    @property
    def total(self) -> int:
        return int(self.ids.sum())


class Division(NamedTuple):
    """Which portion ids of a minute go to, and which files.

    Attributes:
        portions: how many.
        portion: by (origin, minute) pair.
        salts: over how many portions the ids of a pair are spread; mostly 1.
        more: the first of the further portions; 0 if there are none.
        files: (portion, file, with the row groups that it may need).
    """

    portions: int
    portion: Ints
    salts: Ints
    more: Ints
    files: list[tuple[int, SourceFile]]


def asked_spots(ids: DataFrame) -> AskedSpots | None:
    """Count ids by origin and minute; None if the pairs are too many for the driver."""
    from pyspark.sql import functions as f

    spot = f.floor(f.col("time") / SPOT_MS).cast("bigint").alias("spot")
    rows = ids.groupBy("origin", spot).count().limit(MAX_SPOTS + 1).toArrow()
    if rows.num_rows > MAX_SPOTS:
        return None
    origin, minute, count = (np.asarray(rows.column(place).to_numpy(), np.int64) for place in range(3))
    order = np.lexsort((minute, origin))
    return AskedSpots(Spots.of(origin, minute), origin[order], minute[order], count[order])


def counted_spots(ids: Any) -> AskedSpots | None:
    """The same of ids in an Arrow table."""
    origin, minute = ids.column("origin").to_numpy(), ids.column("time").to_numpy() // SPOT_MS
    spots = Spots.of(origin, minute)
    if len(spots) > MAX_SPOTS:
        return None
    place = spots.places(origin, minute)
    first = np.zeros(len(spots), np.int64)
    first[place] = np.arange(len(place))
    return AskedSpots(spots, origin[first], minute[first], np.bincount(place, minlength=len(spots)))


def divided(asked: AskedSpots, files: Sequence[SourceFile]) -> Division:
    """Divide a question so that each portion is about as much work, and few row groups are read twice."""
    of_file, groups = _groups(files)
    each = np.array([one.entry.size / max(1, one.entry.rows) for one in files], np.float64)
    sizes: Floats = each[of_file] * groups[:, 4]
    low, high = asked.spots.spans(groups[:, 1], groups[:, 2], groups[:, 3])
    work = _spread(low, high, sizes, len(asked.ids)) / PORTION_BYTES + asked.ids / PORTION_IDS
    # A row group of several origins has a row in `groups` for each.
    unit = np.unique(of_file << 32 | groups[:, 0], return_inverse=True)[1]
    weight = np.bincount(unit, sizes)
    # In order of origins and times, files of one origin are read once; in order of times, those of one minute are.
    ways = [_cut(work, order) for order in (np.arange(len(work)), np.lexsort((asked.origin, asked.minute)))]
    pairs = [_pairs(low, high, way) for way in ways]
    read = [np.unique(unit[one >> 32] << 32 | one & 0xFFFFFFFF) for one in pairs]
    best = int(np.argmin([weight[one >> 32].sum() for one in read]))
    portion = ways[best]
    count = int(portion.max(initial=-1)) + 1
    salts = np.where(asked.ids > MAX_IDS_TOGETHER, -(-asked.ids // PORTION_IDS), 1)
    more = np.where(salts > 1, count + np.cumsum(salts - 1) - (salts - 1), 0)
    needed = np.unique(np.concatenate([pairs[best], *_salted(low, high, salts, more)]))
    return Division(count + int((salts - 1).sum()), portion, salts, more, list(_shares(files, of_file, groups, needed)))


def _groups(files: Sequence[SourceFile]) -> tuple[Ints, Ints]:
    """Return the row groups of all files: the place of the file; and index, origin, times, rows."""
    rows = [
        (place, group.index, group.origin, group.time_from, group.time_to, group.rows)
        for place, one in enumerate(files)
        for group in one.entry.groups
    ]
    table = np.array(rows, np.int64).reshape(-1, 6)
    return table[:, 0], table[:, 1:]


def _spread(low: Ints, high: Ints, sizes: Floats, count: int) -> Floats:
    """Return the bytes of each place, where those of a row group are shared by the places that it spans."""
    steps = np.zeros(count + 1)
    there = high > low
    each = sizes[there] / (high[there] - low[there])
    np.add.at(steps, low[there], each)
    np.subtract.at(steps, high[there], each)
    return np.maximum(0, np.cumsum(steps)[:-1])


def _pairs(low: Ints, high: Ints, portion: Ints) -> Ints:
    """Return each row group with each portion that it has something of, as row group << 32 | portion."""
    there = np.flatnonzero(high > low)
    # Neighbouring places are mostly in the same portion: only where another begins does it matter.
    begins = np.flatnonzero(np.diff(portion, prepend=-1))
    first = np.searchsorted(begins, low[there], "right") - 1
    count = np.searchsorted(begins, high[there], "left") - first
    which = np.repeat(there, count)
    turn = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    found: Ints = which << 32 | portion[begins[np.repeat(first, count) + turn]]
    return found


def _cut(work: Floats, order: Ints) -> Ints:
    """Return the portion of each place: the work, in some order, cut into pieces of about the same size."""
    total = float(work.sum())
    pieces = max(1, round(total))
    sorted_work = work[order]
    middle = np.cumsum(sorted_work) - sorted_work / 2
    piece = np.minimum(pieces - 1, (middle * pieces / max(total, 1e-9)).astype(np.int64))
    portion = np.empty(len(work), np.int64)
    portion[order] = np.unique(piece, return_inverse=True)[1]
    return portion


def _salted(low: Ints, high: Ints, salts: Ints, more: Ints) -> Iterator[Ints]:
    """Yield the row groups of places whose ids are spread, with the further portions."""
    for spot in np.flatnonzero(salts > 1).tolist():
        here = np.flatnonzero((low <= spot) & (spot < high))
        for extra in range(int(more[spot]), int(more[spot] + salts[spot] - 1)):
            yield here << 32 | extra


def _shares(files: Sequence[SourceFile], of_file: Ints, groups: Ints, needed: Ints) -> Iterator[tuple[int, SourceFile]]:
    """Yield what each portion reads: files, with the row groups that it needs."""
    chosen: dict[tuple[int, int], set[int]] = {}
    for pair, file in zip(needed.tolist(), of_file[needed >> 32].tolist(), strict=True):
        chosen.setdefault((pair & 0xFFFFFFFF, file), set()).add(int(groups[pair >> 32, 0]))
    for (portion, file), indices in chosen.items():
        entry = files[file].entry
        kept = tuple(group for group in entry.groups if group.index in indices)
        yield portion, files[file]._replace(entry=msgspec.structs.replace(entry, groups=kept))


# --- as Spark has them ----------------------------------------------------------------------------------------------


def table_in_portions(
    spark: SparkSession, ids: Any, asked: AskedSpots, division: Division, journalled: Mapping[str, Any]
) -> DataFrame:
    """Return the same as `in_portions` for ids in an Arrow table: Spark only passes them on, some of them in a row."""
    origin, minute = ids.column("origin").to_numpy(), ids.column("time").to_numpy() // SPOT_MS
    place = asked.spots.places(origin, minute)
    salts = division.salts[place]
    salt = np.arange(len(place)) % salts
    portion = np.where(salt == 0, division.portion[place], division.more[place] + salt - 1)
    order = np.argsort(portion, kind="stable")
    bounds = np.searchsorted(portion[order], np.arange(division.portions + 1))
    given = ids.select(_GIVEN)
    rows = [
        (number, None, _IDS, _packed(given.take(pa.array(order[bounds[number] : bounds[number + 1]]))))
        for number in range(division.portions)
    ]
    files = _file_rows(spark, rows + _other_rows(asked, division, journalled))
    return _placed(files, division.portions)


def in_portions(
    spark: SparkSession, ids: DataFrame, asked: AskedSpots, division: Division, journalled: Mapping[str, Any]
) -> DataFrame:
    """Return ids and files as rows of one table, the partitions of which are the portions.

    Args:
        spark: the session.
        ids: what is asked for, with the text `asked`.
        asked: the minutes of the ids.
        division: of the question.
        journalled: rows of tables beyond the files; each portion gets those of its minutes.
    """
    from pyspark.sql import functions as f

    table = pa.table(
        {
            "of": asked.origin,
            "spot": asked.minute,
            "first": division.portion,
            "salts": division.salts,
            "more": division.more,
        }
    )
    plan = f.broadcast(spark.createDataFrame(table))
    spot = f.floor(f.col("time") / SPOT_MS)
    salt = f.pmod(f.xxhash64(*ID), f.col("salts"))
    number = f.when(salt == 0, f.col("first")).otherwise(f.col("more") + salt - 1)
    keyed = ids.join(plan, (f.col("origin") == f.col("of")) & (spot == f.col("spot")), how="inner")
    given = keyed.select(
        number.cast("int").alias("portion"),
        *(f.col(name).cast(kind).alias(name) for name, kind in _COLUMNS.items() if name != "portion"),
        *(f.lit(None).cast(kind).alias(name) for name, kind in _FILE_COLUMNS.items()),
    )
    files = _other_rows(asked, division, journalled)
    if files:
        nothing = [f.lit(None).cast(kind).alias(name) for name, kind in _COLUMNS.items() if name != "portion"]
        given = given.unionByName(_file_rows(spark, files).select("portion", *nothing, *_FILE_COLUMNS))
    return _placed(given, division.portions)


def _placed(rows: DataFrame, count: int) -> DataFrame:
    if hasattr(rows, "repartitionById"):
        return rows.repartitionById(max(1, count), "portion")
    # An earlier Spark: some tasks get several portions, and some get none.
    return rows.repartition(max(1, count), "portion")


def _other_rows(asked: AskedSpots, division: Division, journalled: Mapping[str, Any]) -> list[_Row]:
    """Return the files of each portion, and what journals say about its minutes."""
    rows: list[_Row] = [
        (portion, one.broker, one.entry.table, msgspec.msgpack.encode(one.entry)) for portion, one in division.files
    ]
    return rows + [
        (portion, None, name, packed) for portion, name, packed in _journalled_rows(asked, division, journalled)
    ]


def _file_rows(spark: SparkSession, rows: list[_Row]) -> DataFrame:
    kinds = (pa.int32(), pa.int64(), pa.string(), pa.binary())
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=["portion", *_FILE_COLUMNS]))


def _journalled_rows(
    asked: AskedSpots, division: Division, journalled: Mapping[str, Any]
) -> Iterator[tuple[int, str, bytes]]:
    for name, rows in journalled.items():
        if not {*ID[:2]} <= {*rows.column_names} or not len(asked.ids):
            continue
        origin, minute = rows.column("origin").to_numpy(), rows.column("time").to_numpy() // SPOT_MS
        place = np.minimum(asked.spots.places(origin, minute), len(asked.ids) - 1)
        is_asked = (asked.origin[place] == origin) & (asked.minute[place] == minute)
        for spot in np.unique(place[is_asked]).tolist():
            packed = _packed(rows.filter(pa.array(is_asked & (place == spot))))
            further = range(int(division.more[spot]), int(division.more[spot] + division.salts[spot] - 1))
            for portion in (int(division.portion[spot]), *further):
                yield portion, name, packed


def _packed(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def evidence_in(root: Location, context: Context, batches: Iterable[Any]) -> Any:
    """Return all evidence of the ids of a partition of `in_portions`, with the rows of an id together; None if empty.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    from postroad.pipeline.sources import SourceFile

    held = list(batches)
    if not held:
        return None
    rows = pa.Table.from_batches(held)
    is_id = pc.is_null(rows.column("packed"))
    by_table: dict[str, list[Any]] = {
        _IDS: [rows.filter(is_id).select(_GIVEN)] if _GIVEN[0] in rows.column_names else []
    }
    files: dict[str, SourceFile] = {}
    for row in rows.filter(pc.invert(is_id)).select(list(_FILE_COLUMNS)).to_pylist():
        if row["broker"] is None:
            by_table.setdefault(row["table"], []).append(pa.ipc.open_stream(row["packed"]).read_all())
            continue
        entry = msgspec.msgpack.decode(row["packed"], type=FileEntry)
        if entry.path in files:
            # Several portions of one task.
            both = {*files[entry.path].entry.groups, *entry.groups}
            entry = msgspec.structs.replace(entry, groups=tuple(sorted(both, key=lambda one: (one.index, one.origin))))
        files[entry.path] = SourceFile(row["broker"], entry)
    tables = {name: pa.concat_tables(parts) for name, parts in by_table.items() if parts}
    ids = tables.pop(_IDS, None)
    return None if ids is None or not ids.num_rows else evidence_of(root, context, ids, files.values(), tables)
