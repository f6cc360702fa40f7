"""Apache Iceberg tables in a catalogue: which files count in each, changed in atomic steps.

A data file is written once, under a name derived from its source, and counts when a snapshot names it. So a process
that was killed and starts again sees by the names what is already done. If two processes publish the same files at
once, one loses its commit, looks again, and finds nothing left to do. If somebody published a later state of the trail
meanwhile, a process that still has an earlier one stops: it would remove what is new and bring back what was erased.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.errors import PipelineError
from postroad.trail.access import make_folders
from postroad.trail.locations import StoredPath, changed_ms, file_uri, put_file, remove_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.snapshots import Snapshot

    from postroad.trail.locations import Location

__all__ = ["CATALOGUE", "DataPut", "OpenTable", "OpenTables", "TrailState", "open_tables", "put_data", "uri_of"]

# The name of a catalogue that is known only by its URI. The JDBC catalogues of Spark and Trino look tables up by it.
CATALOGUE = "postroad"
# The trail that the tables belong to: two trails in one namespace would remove each other's files.
TRAIL_PROPERTY = "postroad.trail"
# Which manifests a snapshot shows, as JSON: broker -> number.
MANIFESTS_PROPERTY = "postroad.manifests"
# Files in one commit. The driver holds some kilobytes for each, and repeats a commit that fails.
MAX_COMMIT_FILES = 5_000
# Others publish seldom. A process that loses this often in a row is in a loop with another.
MAX_ATTEMPTS = 10
_PROPERTIES = {
    # Without this, publishing every hour would leave a manifest of a few files each time.
    "commit.manifest-merge.enabled": "true",
    # Old metadata are deleted with the snapshots they describe.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class DataPut(NamedTuple):
    """A data file that was written and that no snapshot names yet.

    Attributes:
        name: in the data folder of its table.
        size: in bytes.
        footer: of Parquet.
    """

    name: str
    size: int
    footer: Any


@dataclass(frozen=True)
class TrailState:
    """The state of a trail that a publication shows.

    Attributes:
        numbers: of the manifest of each broker.
        pinned_ms: when they were read, in Unix ms.
    """

    numbers: Mapping[str, int]
    pinned_ms: int

    @property
    def properties(self) -> dict[str, str]:
        """Return what every snapshot says about it."""
        return {MANIFESTS_PROPERTY: msgspec.json.encode(self.numbers).decode()}

    def check(self, table: str, latest: Snapshot | None) -> None:
        """Refuse to change a table that shows a later state.

        Numbers alone do not tell: a broker whose trail was lost starts with small ones again. What was published before
        this state was read is earlier than it in any case.

        Raises:
            PipelineError: the table shows a later state.
        """
        if latest is None or latest.summary is None or latest.timestamp_ms < self.pinned_ms:
            return
        noted = latest.summary.additional_properties.get(MANIFESTS_PROPERTY, "{}")
        shown = msgspec.json.decode(noted, type=dict[str, int])
        if any(number > self.numbers.get(broker, 0) for broker, number in shown.items()):
            raise PipelineError(
                f"{table}: somebody published a later state of the trail meanwhile; nothing is missing there. "
                "Publish again if there is more to come"
            )


def put_data(folder: Location, name: str, schema: Any, rows: Any) -> DataPut:
    """Write rows as a file of a table, with the column numbers of its schema.

    Raises:
        OSError: the store refuses the write.
        TrailWriteError: the disk refuses it.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(rows.cast(schema), sink, compression="zstd", write_page_checksum=True)
    data = memoryview(sink.getvalue()).cast("B")
    put_file(folder / name, data)
    return DataPut(name, len(data), pq.read_metadata(pa.BufferReader(data)))


def uri_of(place: Location) -> str:
    """Return a place as tables name it: a URI without options."""
    return str(place) if isinstance(place, StoredPath) else file_uri(place)


@dataclass
class OpenTable:
    """One table.

    Attributes:
        name: in its namespace.
        iceberg: the table, in its last known state.
        folder: where its data files are.
        state: of the trail, which its next snapshots show.
    """

    name: str
    iceberg: IcebergTable
    folder: Location
    state: TrailState

    @property
    def schema(self) -> Any:
        """Return its columns for Arrow, with their numbers."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.iceberg.schema())

    @property
    def metadata(self) -> str:
        """Return the file that describes its present state, for engines without a catalogue."""
        return self.iceberg.metadata_location

    def files(self) -> dict[str, DataFile]:
        """Return the files that count now, by name."""
        snapshot = self.iceberg.current_snapshot()
        return {} if snapshot is None else self._files_of(snapshot)

    def _files_of(self, snapshot: Snapshot) -> dict[str, DataFile]:
        found = {}
        for manifest in snapshot.manifests(self.iceberg.io):
            for entry in manifest.fetch_manifest_entry(self.iceberg.io, discard_deleted=True):
                found[entry.data_file.file_path.rpartition("/")[2]] = entry.data_file
        return found

    def add(self, put: Iterable[DataPut]) -> int:
        """Add files that do not count yet; return how many those were."""
        waiting = {one.name: one for one in put}

        def append(known: dict[str, DataFile]) -> bool:
            fresh = [one for name, one in waiting.items() if name not in known][:MAX_COMMIT_FILES]
            if not fresh:
                return False
            with (
                self.iceberg.transaction() as transaction,
                transaction.update_snapshot(snapshot_properties=self.state.properties).merge_append() as update,
            ):
                for one in fresh:
                    update.append_data_file(self._data_file(one))
            return True

        before = len(waiting.keys() - self.files().keys())
        while self._committed(append):
            pass
        return before

    def keep(self, names: Collection[str]) -> int:
        """Remove all files but these; return how many were removed."""
        return self.replace((), names)

    def replace(self, put: Iterable[DataPut], names: Collection[str]) -> int:
        """Add files, and remove all but those of these names, in one step; return how many were removed.

        What to remove is decided by the state of the table that the commit is based on, not by an earlier look at it.
        """
        new = list(put)
        gone: list[int] = [0]

        def exchange(known: dict[str, DataFile]) -> bool:
            old = [file for name, file in known.items() if name not in names]
            fresh = [one for one in new if one.name not in known]
            if not old and not fresh:
                return False
            with (
                self.iceberg.transaction() as transaction,
                transaction.update_snapshot(snapshot_properties=self.state.properties).overwrite() as update,
            ):
                for file in old:
                    update.delete_data_file(file)
                for one in fresh:
                    update.append_data_file(self._data_file(one))
            gone[0] = len(old)
            return True

        self._committed(exchange)
        return gone[0]

    def _committed(self, change: Callable[[dict[str, DataFile]], bool], *, shows_state: bool = True) -> bool:
        """Commit a change; try again from the latest state if somebody else committed meanwhile.

        Args:
            change: returns whether there was something to commit.
            shows_state: whether the table shows the state of this publication after it.

        Raises:
            PipelineError: others changed the table all the time, or published a later state.
        """
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(MAX_ATTEMPTS):
            if shows_state:
                self.state.check(self.name, self.iceberg.current_snapshot())
            try:
                return change(self.files())
            except CommitFailedException:
                self.iceberg.refresh()
        raise PipelineError(
            f"{self.name}: others changed the table {MAX_ATTEMPTS} times meanwhile; publish again later"
        )

    def _data_file(self, put: DataPut) -> DataFile:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

        schema, spec = self.iceberg.schema(), self.iceberg.spec()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=put.footer,
            stats_columns=compute_statistics_plan(schema, self.iceberg.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri_of(self.folder / put.name),
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(spec, schema),
            file_size_in_bytes=put.size,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def expire(self, before_ms: int) -> int:
        """Drop unnamed snapshots that were replaced before a time, and delete their own data files; return how many.

        The files are deleted first: if the process is killed in between, the snapshots are still there, and the next
        call continues.
        """
        deleted: list[int] = [0]

        def drop(_: dict[str, DataFile]) -> bool:
            old = self._replaced(before_ms)
            if not old:
                return False
            gone = [one.snapshot_id for one in old]
            kept = self._paths_of(one for one in self.iceberg.snapshots() if one.snapshot_id not in gone)
            data, metadata = self._paths_of(old)
            for path in sorted(data - kept[0]):
                remove_file(self.folder / path.rpartition("/")[2])
            deleted[0] += len(data - kept[0])
            self.iceberg.maintenance.expire_snapshots().by_ids(gone).commit()
            for path in sorted(metadata - kept[1]):
                remove_file(self.folder.parent / "metadata" / path.rpartition("/")[2])
            return True

        self._committed(drop, shows_state=False)
        return deleted[0]

    def sweep(self, before_ms: int) -> int:
        """Delete files put before a time that no snapshot names: those of processes that were killed; return how many.

        Somebody else may be about to commit what was put since.
        """
        latest = self.iceberg.current_snapshot()
        metadata_files = (self.metadata, *(one.metadata_file for one in self.iceberg.metadata.metadata_log))

        def unnamed(places: list[Location], snapshots: Iterable[Snapshot]) -> list[Location]:
            named = {path.rpartition("/")[2] for path in (*metadata_files, *set().union(*self._paths_of(snapshots)))}
            return [place for place in places if place.name not in named]

        folders = (self.folder, self.folder.parent / "metadata")
        there = [one for folder in folders if folder.is_dir() for one in folder.iterdir()]
        # Mostly the latest snapshot names them all, and the others need not be read.
        left = [one for one in unnamed(there, [latest] if latest else []) if _is_older(one, before_ms)]
        doomed = unnamed(left, self.iceberg.snapshots()) if left else []
        for one in doomed:
            remove_file(one)
        return len(doomed)

    def _replaced(self, before_ms: int) -> list[Snapshot]:
        """Return the unnamed snapshots whose successor is from before a time: nobody has begun to read them since."""
        # The main branch names the latest snapshot; people may have named others.
        named = {ref.snapshot_id for ref in self.iceberg.metadata.refs.values()}
        every = sorted(self.iceberg.snapshots(), key=lambda one: one.sequence_number or 0)
        return [
            one
            for one, successor in pairwise(every)
            if one.snapshot_id not in named and successor.timestamp_ms < before_ms
        ]

    def _paths_of(self, snapshots: Iterable[Snapshot]) -> tuple[set[str], set[str]]:
        """Return the data files that snapshots name, and the files that describe the snapshots."""
        data: set[str] = set()
        metadata: set[str] = set()
        for snapshot in snapshots:
            try:
                manifests = snapshot.manifests(self.iceberg.io)
                data |= {file.file_path for file in self._files_of(snapshot).values()}
            except FileNotFoundError:
                continue  # an earlier expiry was killed while it worked on this snapshot
            metadata |= {snapshot.manifest_list, *(one.manifest_path for one in manifests)}
        return data, metadata


def _is_older(place: Location, than_ms: int) -> bool:
    try:
        return changed_ms(place) < than_ms
    except FileNotFoundError:
        return False  # a folder, or deleted by somebody else


@dataclass
class OpenTables:
    """The tables of one namespace.

    Attributes:
        catalogue: where to look them up.
        warehouse: the folder that holds them.
        namespace: of all of them.
        trail: the record they publish.
        state: of the record.
    """

    catalogue: Catalog
    warehouse: Location
    namespace: str
    trail: str
    state: TrailState

    def table(self, name: str, schema: Any, *, by_day: bool = False) -> OpenTable:
        """Return a table; create it, or add columns that it lacks.

        Args:
            name: in the namespace.
            schema: the columns, of Arrow.
            by_day: whether files are partitioned by the day of the column `time`.

        Raises:
            PipelineError: the table belongs to another trail.
        """
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        place = self.warehouse / self.namespace / name
        identifier = (self.namespace, name)
        try:
            found = self.catalogue.load_table(identifier)
        except NoSuchTableError:
            # Somebody else may create it at the same moment.
            with suppress(TableAlreadyExistsError):
                self._make(identifier, schema, uri_of(place), by_day)
            found = self.catalogue.load_table(identifier)
        owner = found.properties.get(TRAIL_PROPERTY, "")
        if owner != self.trail:
            raise PipelineError(
                f"{self.namespace}.{name}: publishes another trail ({owner or 'none of ours'}); "
                "choose another --namespace for this one, or drop its tables"
            )
        if set(schema.names) - {field.name for field in found.schema().fields}:
            with found.update_schema() as update:
                update.union_by_name(schema)
        return OpenTable(name, found, place / "data", self.state)

    def _make(self, identifier: tuple[str, str], schema: Any, place: str, by_day: bool) -> None:
        from pyiceberg.transforms import DayTransform

        properties = {**_PROPERTIES, TRAIL_PROPERTY: self.trail}
        made = self.catalogue.create_table_transaction(identifier, schema, location=place, properties=properties)
        with made as transaction:
            if by_day:
                with transaction.update_spec() as spec:
                    spec.add_field("time", DayTransform(), "day")


@contextmanager
def open_tables(
    catalogue: str | None, warehouse: Location, namespace: str, trail: str, state: TrailState
) -> Iterator[OpenTables]:
    """Return the tables of a namespace; create the namespace if it does not exist.

    Args:
        catalogue: its URI (`sqlite:////…`, `postgresql+psycopg2://…`, `https://…` for REST), or the name of one in
            PyIceberg's own settings; by default a file of SQLite in the warehouse, which must then be a directory.
        warehouse: where tables are created.
        namespace: of the tables.
        trail: the record they publish.
        state: of the record.

    Raises:
        PipelineError: PyIceberg is not installed, or there is no such catalogue.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise PipelineError(
            f"open tables need PyIceberg ({error}); install it with: pip install 'postroad[tables]'"
        ) from None
    if catalogue is None:
        if not isinstance(warehouse, Path):
            raise PipelineError(
                f"{warehouse}: where tables are in a store a catalogue has to be named: --catalogue sqlite:////path "
                "for a file of this machine, or one that others reach"
            )
        make_folders(warehouse)
        catalogue = f"sqlite:///{warehouse.resolve()}/catalogue.db"
    settings = {"warehouse": uri_of(warehouse), **_of_store(warehouse)}
    is_uri = "://" in catalogue
    try:
        found = load_catalog(CATALOGUE if is_uri else catalogue, **({"uri": catalogue} if is_uri else {}), **settings)
        found.create_namespace_if_not_exists(namespace)
    except Exception as error:
        # What the library says may hold the URI, and so the password.
        problem = str(error).replace(catalogue, _shown(catalogue))
        raise PipelineError(f"{_shown(catalogue)}: cannot be used as a catalogue: {problem}") from None
    try:
        yield OpenTables(found, warehouse, namespace, trail, state)
    finally:
        close = getattr(found, "close", None)
        if close is not None:
            close()


def _shown(catalogue: str) -> str:
    """Return a catalogue without the credentials that its URI may have."""
    scheme, colon, rest = catalogue.partition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2]}"


def _of_store(place: Location) -> dict[str, str]:
    """Return what PyIceberg has to know about a store beyond what it finds itself."""
    if not isinstance(place, StoredPath):
        return {}
    options = dict(place.store.options)
    endpoint = options.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL")
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    return {**({"s3.endpoint": endpoint} if endpoint else {}), **({"s3.region": region} if region else {})}
