"""Small questions that the driver answers itself, with the functions that workers run: no job, no session, no Java.

Starting Spark costs more than reading a few megabytes. If a question touches no more than that, the driver reads the
files. The same code as in Spark collects, judges and counts the evidence, so the answers are the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.pipeline.evidence import ASKED, COLUMNS, HITS, JOURNEY, PASSAGE, RECORD, SHED
from postroad.pipeline.ids import ID_COLUMN, id_texts
from postroad.pipeline.judgement import VERDICT_SCHEMA, judged
from postroad.pipeline.probes import FILTER_COLUMNS, hits_of
from postroad.pipeline.reconciler import COUNTS_SCHEMA, asked_once, counts_of
from postroad.pipeline.search import BIN_MS
from postroad.pipeline.tables import ID
from postroad.tracking import HERE
from postroad.trail import SCHEMAS, TrailDamageError, TrailFile, unpack_words
from postroad.trail.coverage import run_of_file
from postroad.trail.spots import SPOT_MS, Spots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from postroad.pipeline.context import Context
    from postroad.pipeline.sources import SourceFile, Sources

__all__ = [
    "ASKED_SCHEMA",
    "EXACT",
    "MAX_BYTES",
    "MAX_IDS",
    "counts_in",
    "is_small",
    "is_small_file",
    "small_asked",
    "spots_of",
    "unanswered",
    "verdicts_on",
]

# Compressed size of the files. Decoded: some hundred megabytes at most, and some seconds, about Spark's start.
MAX_BYTES = 8 << 20
MAX_IDS = 50_000
# Size of the file of ids.
_MAX_ASKED_BYTES = 4 << 20
_LINES = re.compile(r"\r\n|\n|\r")
ASKED_SCHEMA = pa.schema([("asked", pa.string()), *((VERDICT_SCHEMA.field(name)) for name in ID)])

_ARROW = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}
_EVIDENCE = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])
# Tables of the exact record: their kind of evidence, and the columns that have other names there.
EXACT: dict[str, tuple[int, dict[str, str]]] = {
    "journeys": (JOURNEY, {"relayed_to": "path"}),
    "passages": (PASSAGE, {}),
    "shed": (SHED, {}),
    "records": (RECORD, {"link": "kind", "subscription": "subject"}),
}
_ORDER = [(name, "ascending") for name in ("time", "origin", "publisher", "counter", "source", "broker")]


def is_small(files: Iterable[SourceFile]) -> bool:
    """Return whether the driver should read these files itself."""
    total = 0
    for source in files:
        total += source.entry.size
        if total > MAX_BYTES:
            return False
    return True


def is_small_file(ids: Path | None) -> bool:
    """Return whether a file of ids, if any, has few."""
    try:
        return ids is None or ids.stat().st_size <= _MAX_ASKED_BYTES
    except OSError:
        return True  # The file does not exist; Spark reports that.


# --- what is asked for ----------------------------------------------------------------------------------------------


def small_asked(path: Path) -> Any:
    """Return what a small file asks for, as `ids.read_asked` does; None if it is large, or better read by Spark.

    It reads Parquet, lines, and CSV without quotes.
    """
    try:
        if not path.is_file() or path.stat().st_size > _MAX_ASKED_BYTES or path.name.endswith(".gz"):
            return None
        if path.name.endswith(".parquet"):
            return _of_table(pq.read_table(path))
        text = path.read_bytes().decode(errors="replace")
    except (OSError, pa.ArrowException):
        return None  # Spark reports what is wrong with it.
    lines = [line for line in _LINES.split(text) if line]
    if path.name.endswith(".csv"):
        if not lines or '"' in text or "\\" in text:
            return None
        names, *rows = (line.split(",") for line in lines)
        place = names.index(ID_COLUMN) if ID_COLUMN in names else 0 if len(names) == 1 else None
        if place is None or any(len(row) != len(names) for row in rows):
            return None
        lines = [row[place] for row in rows]
    return _of_texts(lines)


def _of_table(rows: Any) -> Any:
    if set(ID) <= set(rows.column_names):
        known = rows.select(list(ID)).drop_null()
        known = known.cast(pa.schema([ASKED_SCHEMA.field(name) for name in ID])).group_by(list(ID)).aggregate([])
        if known.num_rows > MAX_IDS:
            return None
        return known.select(list(ID)).add_column(0, "asked", pa.nulls(known.num_rows, pa.string())).cast(ASKED_SCHEMA)
    names = rows.column_names
    name = ID_COLUMN if ID_COLUMN in names else names[0] if len(names) == 1 else None
    if name is None or not pa.types.is_string(rows.schema.field(name).type):
        return None
    return _of_texts(rows.column(name).drop_null().to_pylist())


def _of_texts(texts: Sequence[str]) -> Any:
    asked = list(dict.fromkeys(text.strip(" ") for text in texts))
    asked = [text for text in asked if text]
    if len(asked) > MAX_IDS:
        return None
    rows: list[tuple[str, int | None, int | None, int | None, int | None]] = []
    for text in asked:
        try:
            one = MessageId.parse(text)
            rows.append((text, one.broker, one.time, one.publisher, one.counter))
        except PostroadError:
            rows.append((text, None, None, None, None))
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ASKED_SCHEMA, strict=True)], schema=ASKED_SCHEMA
    )


def spots_of(asked: Any) -> Spots:
    """Return the (origin, minute) pairs of the ids."""
    known = asked.filter(pc.is_valid(asked.column("origin")))
    origins, times = known.column("origin").to_pylist(), known.column("time").to_pylist()
    return Spots((origin, time // SPOT_MS) for origin, time in zip(origins, times, strict=True))


# --- evidence -------------------------------------------------------------------------------------------------------


def rows_of(sources: Sources, name: str, files: Iterable[SourceFile]) -> Any:
    """Return the rows of files of a table, and of journals, with broker and run; None if there are none.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    schema, parts = SCHEMAS[name], []
    for broker, entry in files:
        file = TrailFile(sources.root, entry, broker, sources.reads)
        rows = file.read(schema.names, {group.index for group in entry.groups}).select(schema.names).cast(schema)
        for column, value in (("broker", broker), ("run", run_of_file(entry.path))):
            rows = rows.append_column(column, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        parts.append(rows)
    if name in sources.told:
        parts.append(sources.told[name])
    return pa.concat_tables(parts) if parts else None


def _as_evidence(rows: Any, source: int, renamed: dict[str, str] | None = None) -> Any:
    names = {name: name for name in rows.column_names} | (renamed or {})
    columns = []
    for field in _EVIDENCE:
        if field.name == "source":
            columns.append(pa.repeat(pa.scalar(source, pa.int32()), rows.num_rows))
        elif field.name in names:
            columns.append(rows.column(names[field.name]).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=_EVIDENCE)


def _keys(rows: Any) -> Any:
    """Return the ids of rows, each as one comparable value."""
    words = np.stack([rows.column(name).to_numpy().astype(np.int64) for name in ID], axis=1)
    return np.ascontiguousarray(words).view("V32").ravel()


def _sorted(parts: list[Any]) -> Any:
    rows = pa.concat_tables(parts)
    return rows.sort_by(_ORDER).combine_chunks()


def verdicts_on(sources: Sources, context: Context, asked: Any) -> Any:
    """Return the verdicts on ids, with the id as text, as `trace_ids` does.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    if not asked.num_rows:
        return _with_text(VERDICT_SCHEMA.empty_table())
    parts, wanted = [_as_evidence(asked, ASKED)], _keys(asked)
    for name, (source, renamed) in EXACT.items():
        rows = rows_of(sources, name, sources.of(name))
        if rows is not None:
            found = rows.filter(pa.array(np.isin(_keys(rows), wanted)))
            parts.append(_as_evidence(found if name == "passages" else found.drop(["run"]), source, renamed))
    filters = rows_of(sources, "filters", sources.of("filters"))
    if filters is not None:
        parts += [_as_evidence(hits, HITS) for hits in _hits(context, asked, filters)]
    return _with_text(judged(context, _sorted(parts)))


def _hits(context: Context, asked: Any, filters: Any) -> Iterable[Any]:
    """Return what filters say, origin by origin and bin by bin, as workers get them."""
    ids = asked.select(list(ID)).group_by(list(ID)).aggregate([])
    spots = np.stack([ids.column("origin").to_numpy(), ids.column("time").to_numpy() // BIN_MS], axis=1)
    of_filters = filters.column("origin").to_numpy()
    since, until = (filters.column(name).to_numpy() // BIN_MS for name in ("time_from", "time_to"))
    is_range = filters.column("time_from").to_numpy() <= filters.column("time_to").to_numpy()
    singles = [_bins(row) for row in filters.column("singles").to_pylist()]
    for origin, spot in np.unique(spots, axis=0).tolist():
        here = (of_filters == origin) & is_range & (since <= spot) & (spot <= until)
        here |= (of_filters == origin) & np.array([bool((late == spot).any()) for late in singles], np.bool_)
        if here.any():
            some = ids.filter(pa.array((spots == (origin, spot)).all(axis=1)))
            yield hits_of(context, some.select(list(ID)), filters.filter(pa.array(here)).select(list(FILTER_COLUMNS)))


def unanswered(asked: Any, why: str, schema: Any) -> Any:
    """Return a row for each text or id of which nothing is known, and why; it claims nothing, so nothing is certain."""
    rows = [
        {**row, "asked": text, "id": text if row["origin"] is not None else None, "verdict": why, "certainty": 0.0}
        for row in asked.to_pylist()
        for text in [row["asked"] or _text(row)]
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _text(row: dict[str, Any]) -> str:
    return str(MessageId(row["publisher"], row["origin"], row["time"], row["counter"]))


def _bins(packed: bytes | None) -> Any:
    """Return the bins of single times; none if they are damaged, since the filter's range then covers them."""
    try:
        return unpack_words(packed) // BIN_MS
    except TrailDamageError:
        return np.empty(0, np.int64)


def _with_text(verdicts: Any) -> Any:
    text = id_texts(*(verdicts.column(name).to_numpy() for name in ID))
    place = verdicts.schema.get_field_index("asked")
    asked = pc.coalesce(verdicts.column(place), text)
    named = verdicts.set_column(place, verdicts.schema.field(place), asked)
    return named.append_column(pa.field("id", pa.string()), text)


def counts_in(sources: Sources, context: Context, passages: list[SourceFile], journeys: list[SourceFile]) -> Any:
    """Count the verdicts on every message of the exact record, as `audit.reconciliation` does.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    parts = []
    rows = _between(sources, rows_of(sources, "passages", passages))
    if rows is not None:
        entered = rows.filter(pc.equal(rows.column("arrived_from"), HERE))
        parts += [_as_evidence(entered.select(list(ID)), ASKED), _as_evidence(rows, PASSAGE)]
    rows = _between(sources, rows_of(sources, "journeys", journeys))
    if rows is not None:
        parts.append(_as_evidence(rows.select(list(ID)), ASKED))
        parts.append(_as_evidence(rows.drop(["run"]), JOURNEY, EXACT["journeys"][1]))
    shed = rows_of(sources, "shed", sources.of("shed", always=True))
    if shed is not None:
        parts.append(_as_evidence(_between(sources, shed).drop(["run"]), SHED))
    counts = counts_of(judged(context, asked_once(_sorted(parts))))
    keys = COUNTS_SCHEMA.names[:4]
    sums = counts.group_by(keys).aggregate([(name, "sum") for name in COUNTS_SCHEMA.names[4:]])
    columns = [sums.column(name) for name in (*keys, *(f"{name}_sum" for name in COUNTS_SCHEMA.names[4:]))]
    return pa.Table.from_arrays(columns, names=COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)


def _between(sources: Sources, rows: Any) -> Any:
    if rows is None or not sources.is_bounded:
        return rows
    time = rows.column("time").to_numpy()
    return rows.filter(pa.array((time >= sources.since) & (time < sources.until)))
