"""Journeys and passages in plain types, for readers without our code: lists for packed numbers, times for milliseconds.

The binary columns of the trail are small and quick to judge, but only Postroad can read them. Published tables have the
same rows with column types that every engine knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.pipeline.ids import id_texts
from postroad.pipeline.tables import ID
from postroad.trail import Hole, unpack_lists

if TYPE_CHECKING:
    from postroad.pipeline.sources import Sources

__all__ = ["COVERAGE", "PLAIN", "coverage_rows", "plain_rows"]

_TIME = pa.timestamp("us", "UTC")
_NUMBERS = pa.list_(pa.field("element", pa.int64()))
_ID = [("id", pa.string()), ("origin", pa.int64()), ("time", _TIME), ("publisher", pa.int64()), ("counter", pa.int32())]


def _pairs(*names: str) -> Any:
    return pa.list_(pa.field("element", pa.struct([(name, pa.int64()) for name in names])))


# Columns of packed lists, and what their numbers are: single values or pairs.
_LISTS: dict[str, dict[str, tuple[str, ...]]] = {
    "passages": dict.fromkeys(("relayed_to", "delivered", "acknowledged", "refused", "queued"), ()),
    "journeys": {
        "path": ("broker", "neighbour"),
        **dict.fromkeys(("delivered", "acknowledged", "refused"), ("broker", "subscription")),
    },
}
PLAIN: dict[str, Any] = {
    "passages": pa.schema(
        [("broker", pa.int64()), *_ID, ("arrived_from", pa.int64()), *((name, _NUMBERS) for name in _LISTS["passages"])]
    ),
    "journeys": pa.schema([*_ID, *((name, _pairs(*pair)) for name, pair in _LISTS["journeys"].items())]),
}
# For which times the record of each broker is complete (`reason` is null), and where it has gaps.
COVERAGE = pa.schema(
    [("broker", pa.int64()), ("since", _TIME), ("until", _TIME), ("retained_since", _TIME), ("reason", pa.string())]
)
# 9999-12-31: many readers know no later time, and a gap without an end needs one.
_LAST_MS = 253_402_214_400_000


def plain_rows(table: str, broker: int, rows: Any) -> Any:
    """Return rows of a broker's `passages` or `journeys` in plain types.

    Raises:
        TrailDamageError: the bytes of a list are not whole numbers.
    """
    columns = {name: rows.column(name) for name in ID}
    columns["id"] = id_texts(*(columns[name].to_numpy() for name in ID))
    columns["time"] = _times(columns["time"].to_numpy())
    if table == "passages":
        columns["broker"] = pa.repeat(pa.scalar(broker, pa.int64()), rows.num_rows)
        columns["arrived_from"] = rows.column("arrived_from")
    for name, pair in _LISTS[table].items():
        columns[name] = _listed(rows.column(name), pair)
    schema = PLAIN[table]
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def _times(milliseconds: Any) -> Any:
    """Return times as a column. An id may have a time of the year 10889, which readers cannot show: it is cut."""
    return pa.array(np.minimum(np.asarray(milliseconds, np.int64), _LAST_MS) * 1_000, pa.int64()).cast(_TIME)


def _listed(packed: Any, pair: tuple[str, ...]) -> Any:
    """Turn a column of packed lists into one of lists, empty if there is nothing."""
    offsets, numbers = unpack_lists(packed)
    if not pair:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers))
    values = pa.StructArray.from_arrays([pa.array(numbers[at :: len(pair)]) for at in range(len(pair))], list(pair))
    return pa.ListArray.from_arrays(pa.array(offsets // len(pair), pa.int32()), values)


def coverage_rows(sources: Sources) -> Any:
    """Return the coverage that the manifests state; files that were left out are gaps."""
    rows: list[tuple[int, int, int, int, str | None]] = []
    hidden = _not_in_tables(sources)
    for broker, pinned in sorted(sources.pins.items()):
        kept, holes = pinned.retained_since, [*pinned.holes, *sources.holes(broker), *hidden.get(broker, ())]
        rows += [(broker, run.since, run.through, kept, None) for run in pinned.runs]
        rows += [(broker, hole.since, min(hole.until, _LAST_MS), kept, hole.reason) for hole in holes]
    brokers, *times, reasons = list(zip(*rows, strict=True)) or [()] * len(COVERAGE)
    columns = [pa.array(brokers, pa.int64()), *(_times(np.array(one, np.int64)) for one in times)]
    return pa.table([*columns, pa.array(reasons, pa.string())], schema=COVERAGE)


def _not_in_tables(sources: Sources) -> dict[int, list[Hole]]:
    """Return the times whose record is not in rows of a table: a message missing there proves nothing."""
    found: dict[int, list[Hole]] = {}
    for name in ("filters", "records"):
        times: dict[int, tuple[int, int]] = {}
        for broker, entry in sources.named(name, always=True):
            since, until = times.get(broker, (entry.time_from, entry.time_to))
            times[broker] = min(since, entry.time_from), max(until, entry.time_to)
        for broker, (since, until) in times.items():
            found.setdefault(broker, []).append(Hole(since, until + 1, f"kept as {name}, which are in no table"))
    return found
