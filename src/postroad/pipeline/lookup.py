"""Finds the records of asked ids in files of the trail, with pyarrow; workers and the driver itself do the same.

Nearly all rows of a file are of messages that nobody asked about. So only their origins and times are decoded first,
and compared with a small map of the asked ones; the other columns only of a file that has a row to show for it. What is
found becomes evidence, with the rows of an id together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.pipeline.evidence import ASKED, COLUMNS, HITS, JOURNEY, PASSAGE, RECORD, SHED, SOURCES
from postroad.pipeline.probes import FILTER_COLUMNS, hits_of
from postroad.pipeline.tables import ID
from postroad.trail import SCHEMAS, Reads, TrailDamageError, unpack_words
from postroad.trail.coverage import run_of_file
from postroad.trail.read_ahead import opened_ahead
from postroad.trail.spots import SPOT_MS, Spots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.pipeline.context import Context
    from postroad.pipeline.sources import SourceFile
    from postroad.trail.locations import Location

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["EVIDENCE", "EXACT", "AskedIds", "as_evidence", "evidence_of", "hashed_ids", "rows_of"]

_ARROW = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}
EVIDENCE = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])
# Tables of the exact record: their kind of evidence, and the columns that have other names there.
EXACT: dict[str, tuple[int, dict[str, str]]] = {
    "journeys": (JOURNEY, {"relayed_to": "path"}),
    "passages": (PASSAGE, {}),
    "shed": (SHED, {}),
    "records": (RECORD, {"link": "kind", "subscription": "subject"}),
}
# Places in a map of asked times for each id: one row in sixteen that nobody asked about passes one, one in 256 both.
_PLACES_PER_ID = 16
_MIN_PLACE_BITS = 10
# Spread times and origins over the maps: odd numbers without a pattern.
_SPREADS = (
    (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)),
    (np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)),
)


class AskedIds:
    """The ids of a question, each once, to look up rows by."""

    def __init__(self, ids: Any) -> None:
        columns = _numbers(ids)
        self._seed, known, first, which = _distinct(columns)
        # By time, as answers are given; neighbours in them are then neighbours in the files, which compress better.
        order = np.lexsort([columns[place][first] for place in (3, 2, 0, 1)])
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self._hashes, self._place = known, rank
        self.columns = [column[first[order]] for column in columns]
        self.place_of_question = rank[which]
        bits = max(_MIN_PLACE_BITS, (_PLACES_PER_ID * len(order) - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        self._maps = np.zeros((len(_SPREADS), 1 << bits), np.bool_)
        for places, spread in zip(self._maps, _SPREADS, strict=True):
            places[self._spot(self.columns[0], self.columns[1], spread)] = True

    def __len__(self) -> int:
        return len(self._place)

    def _spot(self, origin: Ints, time: Ints, spread: tuple[np.uint64, np.uint64]) -> Any:
        mixed = time.view(np.uint64) * spread[0] + origin.view(np.uint64) * spread[1]
        return (mixed >> self._shift).view(np.int64)

    def may_have(self, origin: Ints, time: Ints) -> Bits:
        """Return, row by row, whether an id of this origin and time may have been asked about."""
        found: Bits = self._maps[0][self._spot(origin, time, _SPREADS[0])]
        for places, spread in zip(self._maps[1:], _SPREADS[1:], strict=True):
            rows = np.flatnonzero(found)
            found[rows] = places[self._spot(origin[rows], time[rows], spread)]
        return found

    def places(self, rows: Any) -> Ints:
        """Return the place of each row's id among those asked about, or -1."""
        columns = _numbers(rows)
        if not len(columns[0]):
            return np.empty(0, np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashed_ids(columns, self._seed)), len(self) - 1)
        places = self._place[at]
        same = np.ones(len(places), np.bool_)
        for mine, theirs in zip(self.columns, columns, strict=True):
            same &= mine[places] == theirs
        return np.where(same, places, -1)


def _numbers(rows: Any) -> list[Ints]:
    return [np.ascontiguousarray(rows.column(name).to_numpy(), np.int64) for name in ID]


def hashed_ids(columns: list[Ints], seed: int) -> Any:
    """Return a number for each id; that two ids share one is as rare as chance has it, and depends on the seed."""
    mixed = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        mixed = (mixed + column.view(np.uint64)) * _SPREADS[0][0]
        mixed ^= mixed >> np.uint64(32)
    return mixed * _SPREADS[0][1]


def _distinct(columns: list[Ints]) -> tuple[int, Any, Ints, Ints]:
    """Return a seed, the hashes of distinct ids by it, ascending; the first row of each; and which of them a row is."""
    for seed in range(len(columns[0]) + 2):
        known, first, which = np.unique(hashed_ids(columns, seed), return_index=True, return_inverse=True)
        # Two ids with one hash would hide each other.
        if all((column == column[first[which]]).all() for column in columns):
            return seed, known, first.astype(np.int64), which.astype(np.int64)
    raise AssertionError("ids that differ have different hashes with some seed")


# --- rows -----------------------------------------------------------------------------------------------------------


def rows_of(
    root: Location,
    name: str,
    files: Iterable[SourceFile],
    journalled: Any = None,
    reads: Reads | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Return all rows of files of a table, and of journals, with broker and run; None if there are none.

    Args:
        root: of the trail.
        name: of the table.
        files: of the table.
        journalled: rows of journals.
        reads: counts what is read.
        columns: those to read; all by default.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    schema = SCHEMAS[name] if columns is None else pa.schema([SCHEMAS[name].field(column) for column in columns])
    parts = []
    for broker, entry, file in opened_ahead(root, files, reads or Reads()):
        rows = file.read(schema.names, {group.index for group in entry.groups}).select(schema.names).cast(schema)
        parts.append(_with_writer(rows, broker, entry.path))
    if journalled is not None:
        parts.append(journalled.select([*schema.names, "broker", "run"]))
    return pa.concat_tables(parts) if parts else None


def _with_writer(rows: Any, broker: int, path: str) -> Any:
    for column, value in (("broker", broker), ("run", run_of_file(path))):
        rows = rows.append_column(column, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
    return rows


def _asked_rows(root: Location, name: str, files: Iterable[SourceFile], asked: AskedIds, reads: Reads) -> Iterator[Any]:
    """Yield those rows of files that may be about asked ids."""
    schema = SCHEMAS[name]
    for broker, entry, file in opened_ahead(root, files, reads):
        groups = {group.index for group in entry.groups}
        head = file.read(ID[:2], groups)
        origin, time = (np.ascontiguousarray(head.column(column).to_numpy(), np.int64) for column in ID[:2])
        wanted = asked.may_have(origin, time)
        if wanted.any():
            rows = file.read(schema.names, groups).select(schema.names).filter(pa.array(wanted))
            # A column that is empty in the whole file has no type.
            yield _with_writer(rows.cast(schema), broker, entry.path)


def as_evidence(rows: Any, source: int, renamed: Mapping[str, str] | None = None) -> Any:
    """Return rows of a table as evidence: columns by name or renamed, and null if the table lacks them."""
    names = {name: name for name in rows.column_names} | dict(renamed or {})
    columns = []
    for field in EVIDENCE:
        if field.name == "source":
            columns.append(pa.repeat(pa.scalar(source, pa.int32()), rows.num_rows))
        elif field.name in names:
            columns.append(rows.column(names[field.name]).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=EVIDENCE)


# --- evidence -------------------------------------------------------------------------------------------------------


def evidence_of(
    root: Location,
    context: Context,
    questions: Any,
    files: Iterable[SourceFile],
    journalled: Mapping[str, Any],
    reads: Reads | None = None,
) -> Any:
    """Return all evidence of some ids, the rows of each together, with its questions first.

    Args:
        root: of the trail.
        context: of the trail.
        questions: ids, with the text `asked`; several may be about one id.
        files: those that may have records of them; of any tables of messages.
        journalled: rows of tables beyond the files, with `broker` and `run`.
        reads: counts what is read.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    by_table: dict[str, list[SourceFile]] = {}
    for one in files:
        by_table.setdefault(one.entry.table, []).append(one)
    reads = reads or Reads()
    asked = AskedIds(questions)
    parts, places = [as_evidence(questions, ASKED)], [asked.place_of_question]
    for name, (source, renamed) in EXACT.items():
        found = list(_asked_rows(root, name, by_table.get(name, ()), asked, reads))
        found += [journalled[name]] if name in journalled else []
        if found:
            rows = pa.concat_tables(found)
            there = asked.places(rows)
            parts.append(as_evidence(rows if name == "passages" else rows.drop(["run"]), source, renamed))
            places.append(there)
    columns = [name for name in FILTER_COLUMNS if name != "broker"]
    filters = rows_of(root, "filters", by_table.get("filters", ()), journalled.get("filters"), reads, columns)
    if filters is not None:
        for hits in _hits(context, asked, filters):
            parts.append(as_evidence(hits, HITS))
            places.append(asked.places(hits))
    return _together(parts, np.concatenate(places))


def _together(parts: list[Any], places: Ints) -> Any:
    """Return rows by the place of their ids, source and broker, without those that are of no id."""
    rows = pa.concat_tables(parts)
    source = rows.column("source").to_numpy().astype(np.int64)
    broker = rows.column("broker").fill_null(0).to_numpy()
    key = (places * SOURCES + source) * (int(broker.max(initial=0)) + 1) + broker
    order = np.argsort(key, kind="stable")
    return rows.take(pa.array(order[int((places < 0).sum()) :])).combine_chunks()


def _hits(context: Context, asked: AskedIds, filters: Any) -> Iterator[Any]:
    """Yield what filters say, origin by origin and minute by minute."""
    order = np.lexsort((asked.columns[1], asked.columns[0]))
    sorted_ids = [column[order] for column in asked.columns]
    origin, minute = sorted_ids[0], sorted_ids[1] // SPOT_MS
    begins = np.flatnonzero((np.diff(origin, prepend=-1) != 0) | (np.diff(minute, prepend=-1) != 0))
    ends = np.append(begins[1:], len(origin))
    filters = filters.filter(pa.array(_may_cover(filters, Spots.of(origin, minute))))
    of_filters = filters.column("origin").to_numpy()
    since, until = (filters.column(name).to_numpy() for name in ("time_from", "time_to"))
    is_range, singles = since <= until, [_minutes(row) for row in filters.column("singles").to_pylist()]
    late = np.flatnonzero([len(one) > 0 for one in singles])
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        at, spot = int(origin[begin]), int(minute[begin])
        here = (of_filters == at) & is_range & (since // SPOT_MS <= spot) & (spot <= until // SPOT_MS)
        for row in late:
            here[row] |= of_filters[row] == at and bool((singles[row] == spot).any())
        if here.any():
            arrays = [pa.array(column[begin:end]) for column in sorted_ids]
            ids = pa.table([*arrays[:3], arrays[3].cast(pa.int32())], names=list(ID))
            yield hits_of(context, ids, filters.filter(pa.array(here)).select(list(FILTER_COLUMNS)))


def _may_cover(filters: Any, spots: Spots) -> Bits:
    """Return, filter by filter, whether it may be about an asked minute of its origin."""
    columns = (filters.column(name).to_numpy() for name in ("origin", "time_from", "time_to"))
    late: Bits = filters.column("singles").is_valid().to_numpy()
    return spots.within(*columns) | late


def _minutes(packed: bytes | None) -> Ints:
    """Return the minutes of single times; none if they are damaged, since the filter's range then covers them."""
    try:
        return np.asarray(unpack_words(packed) // SPOT_MS)
    except TrailDamageError:
        return np.empty(0, np.int64)
