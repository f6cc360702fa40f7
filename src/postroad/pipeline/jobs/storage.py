"""`storage`: bytes that the record takes per message and per elementary record, by broker, day and recorder.

The bytes are those of the files, footers included; the size before compression is what Parquet states. An elementary
record is a publication, an arrival from another broker, or a delivery: what the paper's figures count. Each file is
read once, and only the columns to count: workers return a few numbers for each broker, day and table.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.charts import Panel, bars
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.units import Unit, done
from postroad.tracking import HistoryKind
from postroad.trail import Reads, TrailFile, date_text
from postroad.trail.access import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.sources import SourceFile
    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

__all__ = ["RECORDERS", "Cost", "StorageOptions", "costs_of", "figures", "run", "tabulated"]

# Which recorder writes a table of messages.
RECORDERS = {"passages": "exact", "journeys": "journeys", "filters": "filters", "records": "log"}
# The columns that tell how many messages and records a file has.
_COLUMNS = {
    "passages": ("arrived_from", "delivered"),
    "journeys": ("origin", "path", "delivered"),
    "filters": ("kind", "entries", "method"),
    "records": ("kind",),
}
# Days that one picture shows: more bars are no longer told apart.
MAX_DAYS = 62
# Of files, compressed: two columns of them are read and counted in less time than Spark takes to start.
DRIVER_BYTES, _THREADS = 64 << 20, 8
# Files of one unit: a worker gives back one answer for all of them.
UNIT_FILES = 256
_ENTERED = (HistoryKind.ACCEPTED, HistoryKind.ARRIVED)
_SCHEMA = pa.schema(
    [
        ("broker", pa.int64()),
        ("date", pa.string()),
        ("table", pa.string()),
        ("recorder", pa.string()),
        *((name, pa.int64()) for name in ("files", "messages", "records", "bytes", "raw_bytes")),
        *((name, pa.float64()) for name in ("bytes_per_message", "bits_per_record", "raw_bits_per_record")),
    ]
)


class Cost(NamedTuple):
    """What files of one broker, day and table cost, and what is in them.

    Attributes:
        files: how many.
        bytes: of these.
        raw_bytes: before compression.
        counts: recorder -> messages and elementary records.
    """

    files: int
    bytes: int
    raw_bytes: int
    counts: dict[str, tuple[int, int]]

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        names = [*self.counts, *(name for name in other.counts if name not in self.counts)]
        counts = {}
        for name in names:
            one, two = self.counts.get(name, (0, 0)), other.counts.get(name, (0, 0))
            counts[name] = one[0] + two[0], one[1] + two[1]
        return Cost(self.files + other.files, self.bytes + other.bytes, self.raw_bytes + other.raw_bytes, counts)


NOTHING = Cost(0, 0, 0, {})
Place = tuple[int, int, str]


def costs_of(run: JobRun[Any], names: Iterable[str]) -> dict[Place, Cost]:
    """What the files of some tables cost, by broker, day and table; workers look at them where they are many bytes."""
    sources = run.sources.read_here()
    found = [source for name in names for source in sources.of(name)]
    run.sources.damaged += [one for one in sources.damaged if one not in run.sources.damaged]
    units, root = list(_units(found)), sources.root

    def look(_: int, unit: Unit) -> Iterator[tuple[Place, Cost]]:
        yield (unit.broker, unit.day, unit.table), sum((_cost(root, unit.broker, one) for one in unit.entries), NOTHING)

    if run.may_do_without and sum(source.entry.size for source in found) <= DRIVER_BYTES:
        with ThreadPoolExecutor(_THREADS) as threads:
            costs = [one for each in threads.map(lambda unit: list(look(0, unit)), units) for one in each]
    else:
        costs = done(run.spark, units, look)
    sums: dict[Place, Cost] = {}
    for place, cost in costs:
        sums[place] = sums.get(place, NOTHING) + cost
    return dict(sorted(sums.items()))


def _units(files: Iterable[SourceFile]) -> Iterator[Unit]:
    """Files of one broker, day and table together, up to some number."""

    def place(source: SourceFile) -> Place:
        return source.broker, source.entry.day, source.entry.table

    for (broker, day, table), group in groupby(sorted(files, key=place), place):
        entries = [source.entry for source in group]
        for start in range(0, len(entries), UNIT_FILES):
            yield Unit(broker, table, day, tuple(entries[start : start + UNIT_FILES]))


def _cost(root: Location, broker: int, entry: FileEntry) -> Cost:
    """What one file costs.

    Raises:
        TrailDamageError: it is not as it was written.
    """
    file = TrailFile(root, entry, broker, Reads())
    if len({group.index for group in entry.groups}) < file.groups:
        # Groups of other times than the job is about count too, and their checksums are not in the entry.
        file.verify()
    rows = file.read(_COLUMNS[entry.table])
    return Cost(1, entry.size, file.raw_bytes, _counts(rows, entry.table))


def _counts(rows: Any, table: str) -> dict[str, tuple[int, int]]:
    """Messages and elementary records in rows of a table, by recorder."""
    if table == "passages":
        first = _sum(pc.greater_equal(rows.column("arrived_from"), 0))
        return {RECORDERS[table]: (first, first + _listed(rows, "delivered", 4))}
    if table == "journeys":
        # A journey has one row at its origin; its hops are records of other brokers.
        count = rows.num_rows
        return {RECORDERS[table]: (count, count + _listed(rows, "path", 8) + _listed(rows, "delivered", 8))}
    if table == "records":
        return {RECORDERS[table]: _by_kind(rows, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))}
    methods = pc.unique(rows.column("method")).to_pylist()
    portions = {name: rows.filter(pc.equal(rows.column("method"), name)) for name in sorted(methods)}
    return {name: _by_kind(here, here.column("entries")) for name, here in portions.items()}


def _by_kind(rows: Any, entries: Any) -> tuple[int, int]:
    entered = pc.is_in(rows.column("kind"), pa.array(_ENTERED, pa.int32()))
    counting = pc.is_in(rows.column("kind"), pa.array([*_ENTERED, HistoryKind.DELIVERED], pa.int32()))
    return _sum(entries.filter(entered)), _sum(entries.filter(counting))


def _listed(rows: Any, name: str, width: int) -> int:
    """How many numbers of this many bytes are in the packed lists of a column."""
    return _sum(pc.binary_length(rows.column(name).cast(pa.binary()))) // width


def _sum(column: Any) -> int:
    return int(pc.sum(column).as_py() or 0)


def tabulated(costs: Mapping[Place, Cost]) -> Any:
    """A row for each broker, day, table and recorder, as an Arrow table."""
    rows = []
    for (broker, day, table), cost in costs.items():
        total = sum(records for _, records in cost.counts.values())
        for recorder, (messages, records) in cost.counts.items():
            # Filters of several methods share files: the bytes go to them by their records.
            share = records / total if total else 1.0
            size, raw = cost.bytes * share, cost.raw_bytes * share
            rows.append(
                {
                    "broker": broker,
                    "date": date_text(day),
                    "table": table,
                    "recorder": recorder,
                    "files": cost.files,
                    "messages": messages,
                    "records": records,
                    "bytes": int(size),
                    "raw_bytes": int(raw),
                    "bytes_per_message": _over(size, messages),
                    "bits_per_record": _over(8 * size, records),
                    "raw_bits_per_record": _over(8 * raw, records),
                }
            )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _over(above: float, below: int) -> float | None:
    """A ratio; none if there is nothing to divide by, as of a broker that sealed filters and saw no message."""
    return above / below if below else None


def figures(rows: Iterable[Mapping[str, Any]]) -> str:
    """Draw bytes per message before and after compression, by day and recorder, as in the paper's Figures 4 and 5.

    A message counts once at each broker that it passed, because each of them keeps a record of it.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        here = sums.setdefault((str(row["date"]), row["recorder"]), [0, 0, 0])
        for place, name in enumerate(("messages", "raw_bytes", "bytes")):
            here[place] += int(row[name] or 0)
    days = sorted({day for day, _ in sums})[-MAX_DAYS:]
    recorders = sorted({recorder for _, recorder in sums})

    def panel(title: str, place: int) -> Panel:
        each = {name: [sums.get((day, name), [0, 0, 0]) for day in days] for name in recorders}
        return Panel(title, {name: [of[place] / of[0] if of[0] else None for of in each[name]] for name in recorders})

    return bars(days, [panel("bytes per message", 1), panel("bytes per message, compressed", 2)])


@dataclass(frozen=True, kw_only=True)
class StorageOptions(JobOptions):
    """Options of `storage`.

    Attributes:
        plot: the file for a chart; none by default.
    """

    plot: Path | None = None


def run(run: JobRun[StorageOptions]) -> dict[str, Any]:
    """Write `storage`, and a chart of it if the options ask for one."""
    run.tell("counting")
    names = run.sources.need(RECORDERS, "with filters, journeys and records is what takes room")
    found = tabulated(costs_of(run, names))
    run.write_table(found, "storage")
    rows = found.select(["date", "recorder", "messages", "records", "bytes", "raw_bytes"]).to_pylist()
    summary: dict[str, Any] = {}
    for recorder in sorted({row["recorder"] for row in rows}):
        here = [row for row in rows if row["recorder"] == recorder]
        records, size, raw = (sum(row[name] or 0 for row in here) for name in ("records", "bytes", "raw_bytes"))
        summary[f"{recorder}_bytes"] = int(size)
        summary[f"{recorder}_bits_per_record"] = round(8 * size / max(1, records), 2)
        summary[f"{recorder}_raw_bits_per_record"] = round(8 * raw / max(1, records), 2)
    plot = run.options.plot
    if plot is not None:
        try:
            write_private(plot, figures(rows).encode())
        except OSError as error:
            raise PipelineError(f"{plot}: the picture cannot be written ({error.strerror})") from None
        run.account.written.append(str(plot))
    return summary
