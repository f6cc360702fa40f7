"""The growing trail as a stream for Spark: offsets are numbers of manifests, rows are counts of what new files hold.

A broker's commit names the files it adds. Compaction, retention and erasure only replace files, and their manifests
name no run, so the stream skips them: nothing is counted twice. Files that a compaction removed after they were
committed can still be read during the grace period of the trail. A journal that is replayed after a crash repeats some
of what was committed before it, so its files are compared with those.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from postroad.pipeline.counts import COUNTED, INCREMENTS, begun_at, counts_of_file, retold_after
from postroad.pipeline.errors import DamagedFileError, PipelineError
from postroad.trail import TrailDamageError, manifest_brokers
from postroad.trail.locations import location
from postroad.trail.manifest import (
    Change,
    Checkpoint,
    change_name,
    checkpoint_name,
    decoded,
    manifest_folder,
    numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

__all__ = ["FORMAT", "TrailChanges", "TrailStream", "added_between", "beginning", "heads", "told_before"]

FORMAT = "postroad_trail"


def heads(root: Location) -> dict[str, int]:
    """Return the number of the latest manifest of each broker, by its number as text: an offset of the stream."""
    found = {}
    for broker in manifest_brokers(root):
        changes, checkpoints = numbers(manifest_folder(root, broker))
        found[str(broker)] = max([*changes[-1:], *checkpoints[-1:], 0])
    return found


def added_between(root: Location, broker: int, after: int, through: int) -> list[FileEntry]:
    """Return the files that a broker's own commits added, from one manifest number to another.

    Raises:
        PipelineError: the manifests in between are deleted: the job was away for longer than the trail keeps them.
        DamagedFileError: one of them cannot be read.
    """
    found: list[FileEntry] = []
    for number in range(after + 1, through + 1):
        added = _added(root, broker, number)
        if added is None:
            path = manifest_folder(root, broker) / change_name(number)
            raise PipelineError(
                f"{path} is gone: the trail was followed up to manifest {after}, and what came next is no longer told "
                "apart; begin again with a new --out, or audit that time"
            )
        found += added
    return found


def _added(root: Location, broker: int, number: int) -> list[FileEntry] | None:
    """Return what the broker itself added with one manifest; None if the manifest is deleted."""
    path = manifest_folder(root, broker) / change_name(number)
    try:
        change = decoded(path.read_bytes(), Change, path, broker)
    except FileNotFoundError:
        return None
    except TrailDamageError as error:
        raise DamagedFileError(path, error.problem) from None
    return [entry for entry in change.added if entry.table in COUNTED] if change.run is not None else []


def told_before(root: Location, broker: int, through: int) -> list[FileEntry]:
    """Return the files that a broker's own commits added up to a manifest, as far back as manifests are kept.

    A journal only holds what was not committed long before the crash, so nothing in it was in a deleted manifest.
    """
    found: list[FileEntry] = []
    for number in range(through, 0, -1):
        added = _added(root, broker, number)
        if added is None:
            break
        found += added
    return found


def beginning(root: Location, broker: int, through: int) -> tuple[int, int]:
    """Return where to begin with a broker: after which manifest, and up to what time its record is left out.

    That is before the first manifest. If the first ones are deleted, it is after the oldest checkpoint that has all
    later ones. What a checkpoint sums up is not counted: compaction may have replaced some of it by journeys.
    """
    folder = manifest_folder(root, broker)
    changes, checkpoints = numbers(folder)
    for number in [0, *checkpoints]:
        if number > through or not set(changes).issuperset(range(number + 1, through + 1)):
            continue
        if number == 0:
            return 0, 0
        path = folder / checkpoint_name(number)
        try:
            found = decoded(path.read_bytes(), Checkpoint, path, broker)
        except (OSError, TrailDamageError):
            continue
        return number, max((run.through for run in found.runs), default=found.at)
    return 0, 0


@dataclass
class _NewFiles(InputPartition):
    """Some new files of one broker; for a replayed journal, also the earlier files to compare with.

    Attributes:
        broker: whose.
        files: the new ones.
        begun: if this is the beginning, up to what time the broker's record is left out.
    """

    broker: int
    files: tuple[tuple[FileEntry, tuple[FileEntry, ...] | None], ...]
    begun: int = 0


class TrailStream(DataSourceStreamReader):
    """Reads what brokers commit, from one set of manifest numbers to the next."""

    def __init__(self, options: dict[str, str]) -> None:
        self._root = location(options["path"])
        through = options.get("through")
        self._through: dict[str, int] | None = None if through is None else json.loads(through)

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first manifest of any broker."""
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Return the latest manifest of each broker, or the one to end with; new brokers begin at their first."""
        latest = heads(self._root) if self._through is None else self._through
        # The listing of a store may lag behind an earlier one.
        return {name: max(number, (start or {}).get(name, 0)) for name, number in latest.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one partition for each broker with new files."""
        found = []
        for name, through in end.items():
            broker, after, begun = int(name), start.get(name, 0), 0
            if not after:
                after, begun = beginning(self._root, broker, through)
            entries = added_between(self._root, broker, after, through)
            marks = {mark for entry in entries if (mark := retold_after(entry)) is not None}
            before = {mark: tuple(told_before(self._root, broker, mark)) for mark in marks}
            files = tuple((entry, before.get(retold_after(entry) or 0)) for entry in entries)
            if files or begun:
                found.append(_NewFiles(broker, files, begun))
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the counts of the files."""
        assert isinstance(partition, _NewFiles)
        if partition.begun:
            yield from begun_at(partition.broker, partition.begun).to_batches()
        for entry, before in partition.files:
            yield from counts_of_file(self._root, partition.broker, entry, before).to_batches()


class TrailChanges(DataSource):
    """`spark.readStream.format("postroad_trail").option("path", …)`, once registered."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(INCREMENTS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TrailStream(dict(self.options))
