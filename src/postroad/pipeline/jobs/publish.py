"""`publish`: journeys, passages and reports as Apache Iceberg tables, for engines that know nothing of Postroad.

A publication is one pinned state of all manifests. Each file of the trail becomes one file of a table, with a name
derived from it. So publishing again adds nothing, and a run that was killed can continue. The steps follow the order of
the manifests: new files count before the files they replace are removed, and the coverage is written in between. A
reader between two steps may find a message twice, but never misses one.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.open_tables import DataPut, TrailState, open_tables, put_data, uri_of
from postroad.pipeline.plain_rows import COVERAGE, PLAIN, coverage_rows, plain_rows
from postroad.pipeline.report_files import REPORTS, report_files
from postroad.pipeline.rewrite import read_unit
from postroad.pipeline.sources import Damage, SourceFile
from postroad.pipeline.units import Unit, done
from postroad.trail import DEFAULT_GRACE_MS, TrailDamageError, TrailWriteError, date_text
from postroad.trail.locations import location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.open_tables import OpenTable, OpenTables
    from postroad.trail.locations import Location

__all__ = ["NAMESPACE", "PublishOptions", "run"]

NAMESPACE = "postroad"
# If more of the trail than this is to be published, workers do it.
DRIVER_BYTES = 32 << 20
# The order in which new files begin to count.
_OF_TRAIL = ("journeys", "passages")
_FOLDER = "tables"


@dataclass(frozen=True, kw_only=True)
class PublishOptions(JobOptions):
    """Options of `publish`.

    Attributes:
        catalogue: its URI, or the name of one that PyIceberg knows; by default a file in the warehouse.
        warehouse: where the tables are; by default `tables` in the results.
        namespace: of the tables.
        now: the time in Unix ms; by default from the clock.
    """

    catalogue: str | None = None
    warehouse: Location | None = None
    namespace: str = NAMESPACE
    now: int | None = None


def run(run: JobRun[PublishOptions]) -> dict[str, Any]:
    """Publish the files that the manifests name, then the reports."""
    options = run.options
    warehouse = options.warehouse or location(options.out) / _FOLDER
    trail = uri_of(run.sources.root)
    numbers = {str(broker): pinned.number for broker, pinned in run.sources.pins.items()}
    state = TrailState(numbers, run.sources.pinned_ms)
    with open_tables(options.catalogue, warehouse.absolute(), options.namespace, trail, state) as tables:
        return Publication(run, tables).made()


class Publication:
    """One publication under way.

    Args:
        run: the job.
        tables: the destination.
    """

    def __init__(self, run: JobRun[PublishOptions], tables: OpenTables) -> None:
        self._run = run
        self._tables = tables
        self._figures = {"files_added": 0, "rows_added": 0, "files_removed": 0, "files_deleted": 0}
        self._found: list[OpenTable] = []

    def made(self) -> dict[str, Any]:
        """Do all steps; return the summary."""
        added = {name: self._added(name) for name in _OF_TRAIL}
        self._cover()
        for name, (table, wanted) in added.items():
            # If a part of a manifest cannot be read, a file that seems gone may still count.
            if not self._run.sources.damaged:
                self._run.tell(f"taking out of {name} what no longer counts")
                self._count(table, removed=table.keep(wanted))
        for name in REPORTS:
            self._report(name)
        now = self._run.options.now or int(time.time() * 1_000)
        for table in self._found:
            self._figures["files_deleted"] += table.expire(now - DEFAULT_GRACE_MS)
            self._figures["files_deleted"] += table.sweep(now - DEFAULT_GRACE_MS)
        return {**self._figures, **{table.name: table.metadata for table in self._found}}

    def _table(self, name: str, schema: Any, *, by_day: bool = False) -> OpenTable:
        table = self._tables.table(name, schema, by_day=by_day)
        self._found.append(table)
        return table

    def _count(self, table: OpenTable, put: Iterable[DataPut] = (), removed: int = 0) -> None:
        listed = list(put)
        self._figures["files_added"] += len(listed)
        self._figures["rows_added"] += sum(one.footer.num_rows for one in listed)
        self._figures["files_removed"] += removed
        text = f"{self._tables.namespace}.{table.name}"
        if (listed or removed) and text not in self._run.account.written:
            self._run.account.written.append(text)

    # --- of the trail ----------------------------------------------------------------------------------------------

    def _added(self, name: str) -> tuple[OpenTable, set[str]]:
        """Publish the new files of a table; return the names of all that count."""
        table, sources = self._table(name, PLAIN[name], by_day=True), self._run.sources
        wanted = {data_name(source): source for source in sources.named(name, always=True)}
        known = set(table.files())
        fresh = {file: source for file, source in wanted.items() if file not in known and source.entry.rows}
        if fresh:
            self._run.tell(f"publishing {len(fresh):,} files of {name}")
            put = self._put(table, fresh)
            table.add(put)
            self._count(table, put)
        return table, set(wanted)

    def _put(self, table: OpenTable, fresh: dict[str, SourceFile]) -> list[DataPut]:
        """Write the files, here or by workers; leave out damaged ones if the options say so."""
        run, root = self._run, self._run.sources.root
        folder, schema, names = table.folder, table.schema, list(fresh)
        units = [Unit(one.broker, one.entry.table, one.entry.day, (one.entry,)) for one in fresh.values()]

        def write(number: int, unit: Unit) -> Iterator[tuple[int, DataPut | str]]:
            try:
                rows = plain_rows(unit.table, unit.broker, read_unit(root, unit))
            except TrailDamageError as error:
                yield number, error.problem
                return
            yield number, put_data(folder, names[number], schema, rows)

        try:
            if run.may_do_without and sum(unit.size for unit in units) <= DRIVER_BYTES:
                found = [one for number, unit in enumerate(units) for one in write(number, unit)]
            else:
                found = done(run.spark, units, write)
        except (OSError, TrailWriteError) as error:
            raise PipelineError(f"{folder}: cannot be written ({error})") from error
        for number, one in found:
            if isinstance(one, str):
                entry = units[number].entries[0]
                times = entry.time_from, entry.time_to + 1
                run.sources.leave_out(Damage(str(root / entry.path), one, units[number].broker, *times))
        return [one for _, one in found if isinstance(one, DataPut)]

    def _cover(self) -> None:
        """Publish for which times the record is complete: after the new files, before the old ones are removed."""
        rows = coverage_rows(self._run.sources)
        digest = hashlib.sha256(repr(rows.to_pylist()).encode()).hexdigest()[:32]
        self._replace("coverage", [(digest, rows)], COVERAGE)

    # --- reports -----------------------------------------------------------------------------------------------------

    def _report(self, name: str) -> None:
        parts = [(one.digest, one.rows()) for one in report_files(location(self._run.options.out), name)]
        if parts:
            self._run.tell(f"publishing the report {name}")
            self._replace(name, parts, parts[0][1].schema)

    def _replace(self, name: str, parts: list[tuple[str, Any]], schema: Any) -> None:
        """Replace all rows of a table."""
        table = self._table(name, schema)
        known = set(table.files())
        wanted = {f"{digest}.parquet": rows for digest, rows in parts if rows.num_rows}
        try:
            put = [
                put_data(table.folder, file, table.schema, rows) for file, rows in wanted.items() if file not in known
            ]
        except (OSError, TrailWriteError) as error:
            raise PipelineError(f"{table.folder}: cannot be written ({error})") from error
        removed = table.replace(put, wanted.keys())
        self._count(table, put, removed)


def data_name(source: SourceFile) -> str:
    """Return the name of a trail file in its table: unique over all files that ever existed, without a folder."""
    entry = source.entry
    stem = PurePosixPath(entry.path).stem
    return f"{source.broker}-{date_text(entry.day)}-{stem}-{entry.crc or entry.footer_crc:08x}.parquet"
