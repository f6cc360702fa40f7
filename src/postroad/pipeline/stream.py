"""The growing trail as a stream for Spark: offsets are numbers of manifests, rows are counts of what new files hold.

A broker's commit names the files it adds; compaction, retention and erasure only put files in the place of others, and
bear no run, so that the stream passes them over: nothing is counted twice. Files that a compaction took out after they
were committed are still there to be read, for the grace period of the trail.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from postroad.pipeline.counting import COUNTED, INCREMENTS, counts_of_file
from postroad.pipeline.errors import DamagedFileError, PipelineError
from postroad.trail import Ledger, TrailDamageError
from postroad.trail.manifest import Change, change_name, decoded, manifest_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from postroad.trail import FileEntry

__all__ = ["FORMAT", "TrailChanges", "TrailStream", "added_between"]

FORMAT = "postroad_trail"


def added_between(root: Path, broker: int, after: int, through: int) -> list[FileEntry]:
    """The files that a broker's own commits added, from one manifest number to another.

    Raises:
        PipelineError: the manifests in between are deleted: the job was away for longer than the trail keeps them.
        DamagedFileError: one of them cannot be read.
    """
    folder = manifest_folder(root, broker)
    found: list[FileEntry] = []
    for number in range(after + 1, through + 1):
        path = folder / change_name(number)
        try:
            change = decoded(path.read_bytes(), Change, path)
        except FileNotFoundError:
            raise PipelineError(
                f"{path} is gone: the trail was followed up to manifest {after}, and what came next is no longer told "
                "apart; begin again with a new --out, or audit that time"
            ) from None
        except TrailDamageError as error:
            raise DamagedFileError(path, error.problem) from None
        if change.run is not None:
            found += [entry for entry in change.added if entry.table in COUNTED]
    return found


@dataclass
class _Files(InputPartition):
    """Some new files of one broker."""

    broker: int
    entries: tuple[Any, ...]

    def __init__(self, broker: int, entries: Sequence[Any]) -> None:
        self.broker = broker
        self.entries = tuple(entries)


class TrailStream(DataSourceStreamReader):
    """Reads what brokers commit, from one set of manifest numbers to the next."""

    def __init__(self, options: dict[str, str]) -> None:
        self._root = Path(options["path"])

    def initialOffset(self) -> dict[str, int]:
        """Before the first manifest of any broker."""
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """The latest manifest of each broker. Brokers that join later begin at their first."""
        heads = {}
        for folder in sorted((self._root / "manifests").glob("broker=*")):
            broker = int(folder.name.partition("=")[2])
            heads[str(broker)] = Ledger(self._root, broker).head()
        return heads

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One for each broker with new files."""
        found = []
        for broker, through in end.items():
            entries = added_between(self._root, int(broker), start.get(broker, 0), through)
            if entries:
                found.append(_Files(int(broker), entries))
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The counts of the files."""
        assert isinstance(partition, _Files)
        for entry in partition.entries:
            yield from counts_of_file(self._root, partition.broker, entry).to_batches()


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
