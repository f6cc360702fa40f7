"""Turns the segments of a recorder into tables of the trail: Arrow columns, split by date."""

from __future__ import annotations

import zlib
from collections import defaultdict
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.tracking import (
    Aliases,
    FilterSegment,
    Latencies,
    LinkChanges,
    Lists,
    LogRecords,
    Names,
    PassageRuns,
    Passages,
    Repeated,
    Segment,
    Shed,
    SubscriptionChanges,
    Timings,
)
from postroad.trail.errors import TrailError
from postroad.trail.packed_lists import LARGEST_BINARY, pack_lists, pack_words, unpack_words
from postroad.trail.runs import RunTable
from postroad.trail.schemas import SCHEMAS, table_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["DAY_MS", "by_date", "date_text", "tabulate"]

DAY_MS = 86_400_000
# Files that one commit makes of a table. Around midnight there are two dates, and a few more where clocks are off; a
# publisher whose ids have wild times would make a file for each, and every file costs milliseconds and a disk force.
MAX_DATES = 8

# Everything but filters has one NamedTuple of columns for many rows.
_COLUMNAR: dict[type[Any], str] = {
    Passages: "passages",
    Shed: "shed",
    SubscriptionChanges: "subscriptions",
    LinkChanges: "links",
    Names: "names",
    Aliases: "aliases",
    Timings: "timings",
    Latencies: "latencies",
    LogRecords: "records",
}


def tabulate(segments: Iterable[Segment]) -> dict[str, Any]:
    """One table for each table of the trail that has rows, sorted as its files are: Arrow's, or runs of passages.

    Raises:
        TrailError: there is no table for it.
    """
    parts: dict[str, list[Any]] = defaultdict(list)
    filters: list[FilterSegment] = []
    runs: list[PassageRuns] = []
    for segment in segments:
        if isinstance(segment, FilterSegment):
            filters.append(segment)
            continue
        if isinstance(segment, PassageRuns):
            runs.append(segment)
            continue
        name = _COLUMNAR.get(type(segment))
        if name is None:
            raise TrailError(f"the trail has no table for {type(segment).__name__}")
        parts[name].append(_columns(name, segment))
    if filters:
        parts["filters"].append(_filter_columns(filters))
    found = {
        name: _sorted(name, pa.concat_tables(tables))
        for name, tables in parts.items()
        if any(table.num_rows for table in tables)
    }
    if runs:
        if len(runs) > 1 or "passages" in found:
            raise TrailError("runs of passages stand alone: write them by themselves")
        found["passages"] = RunTable(runs[0])
    return found


def _columns(name: str, segment: Any) -> Any:
    schema = SCHEMAS[name]
    arrays = []
    for field in schema:
        values = getattr(segment, field.name)
        if isinstance(values, Lists):
            arrays.append(pack_lists(values))
        elif isinstance(values, Repeated):
            places = np.repeat(np.arange(len(values.texts), dtype=np.int32), values.counts)
            arrays.append(pa.array(values.texts, field.type).take(pa.array(places)))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _filter_columns(filters: Sequence[FilterSegment]) -> Any:
    schema = SCHEMAS["filters"]
    # In the order of the files from the start: sorting the table afterwards would copy all filters again.
    filters = sorted(filters, key=attrgetter(*table_named("filters").sort))
    arrays = []
    for field in schema:
        if field.name == "crc":
            arrays.append(pa.array([zlib.crc32(one.data) for one in filters], field.type))
        elif field.name in ("singles", "keys"):
            arrays.append(pack_words(getattr(one, field.name) for one in filters))
        elif field.name == "data":
            arrays.append(pa.chunked_array([_alone(one.data) for one in filters], field.type))
        else:
            arrays.append(pa.array([getattr(one, field.name) for one in filters], field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _alone(data: bytes) -> Any:
    """A column of one value, which is not copied."""
    if len(data) > LARGEST_BINARY:
        raise TrailError(f"a filter of {len(data):,} bytes does not fit a row; seal earlier")
    offsets = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _sorted(name: str, table: Any) -> Any:
    keys = table_named(name).sort
    if table.num_rows < 2 or _is_sorted(table, keys):
        # Filters stay where they are: putting them together would copy them.
        return table if name == "filters" else table.combine_chunks()
    order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys])
    return table.take(order).combine_chunks()


def _is_sorted(table: Any, keys: Sequence[str]) -> bool:
    """Recorders seal most tables in order; looking is ten times cheaper than sorting again."""
    tied = np.ones(table.num_rows - 1, np.bool_)
    for key in keys:
        if not pa.types.is_integer(table.schema.field(key).type):
            return False
        values = table.column(key).to_numpy()
        if np.any(tied & (values[1:] < values[:-1])):
            return False
        tied &= values[1:] == values[:-1]
    return True


def by_date(name: str, table: Any) -> list[tuple[int, Any]]:
    """The rows of each UTC date, as (days since 1970, rows); of at most `MAX_DATES`.

    If there are more, the dates with the fewest rows are joined under the first of them.
    """
    runs = isinstance(table, RunTable)
    days = table.runs.time // DAY_MS if runs else _days(name, table)
    if not len(days):
        return []
    if days.min() == days.max():
        return [(int(days[0]), table)]
    found, place = np.unique(days, return_inverse=True)
    sizes = np.bincount(place, table.runs.counts if runs else None)
    order = np.argsort(-sizes, kind="stable")
    alone = order if len(found) <= MAX_DATES else order[: MAX_DATES - 1]
    parts = [(int(found[one]), place == one) for one in alone.tolist()]
    rest = ~np.isin(place, alone)
    if rest.any():
        parts.append((int(days[rest].min()), rest))
    parts.sort(key=itemgetter(0))
    return [(day, table.chosen(rows) if runs else table.filter(pa.array(rows))) for day, rows in parts]


def _days(name: str, table: Any) -> NDArray[np.int64]:
    times: NDArray[np.int64] = table.column(table_named(name).time).to_numpy()
    if name == "filters":
        # A filter with nothing but late ids has no range of times: its first late id says where it belongs.
        singles = table.column("singles").to_pylist()
        empty = np.flatnonzero(times > table.column("time_to").to_numpy())
        times = times.copy()
        for row in empty:
            late = unpack_words(singles[row])
            times[row] = late.min() if len(late) else table.column("opened")[int(row)].as_py()
    return times // DAY_MS


def date_text(day: int) -> str:
    """The date of a day since 1970, as folders are named. Ids reach beyond the year 9999, where Python's dates end."""
    return str(np.datetime64(day, "D"))
