"""Tables of results in a job's `--out`: which exist, and which of their files count."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.arrow_tables import CURRENT
from postroad.pipeline.errors import DamagedFileError
from postroad.trail.locations import StoredPath, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.trail.locations import Location

__all__ = ["REPORTS", "ReportFile", "report_files"]

# What jobs write; see docs/pipeline.md. `follow` rewrites `links`, `capacity` and `alerts` again and again.
REPORTS = (
    "trace",
    "accuracy",
    "balance",
    "reconciliation",
    "storage",
    "service_times",
    "latencies",
    "match",
    "links",
    "capacity",
    "alerts",
)


class ReportFile(NamedTuple):
    """A file of a report.

    Attributes:
        place: where it is.
        path: relative to the folder of its table; may contain values of columns (`date=2026-01-31/…`).
        data: its bytes.
    """

    place: Location
    path: str
    data: bytes

    @property
    def digest(self) -> str:
        """Return a name for the content: the same for the same rows at the same path, and different otherwise."""
        return hashlib.sha256(f"{self._folders()}\n".encode() + self.data).hexdigest()[:32]

    def _folders(self) -> list[tuple[str, str]]:
        found = []
        for part in self.path.split("/")[:-1]:
            name, _, value = part.partition("=")
            found.append((name, value))
        return found

    def rows(self) -> Any:
        """Return its rows, with the columns from its path; all columns may be null.

        Raises:
            DamagedFileError: it cannot be read.
        """
        try:
            rows = pq.ParquetFile(pa.BufferReader(self.data), page_checksum_verification=True).read()
        except (OSError, pa.ArrowException) as error:
            raise DamagedFileError(self.place, f"cannot be read: {error}") from error
        for name, value in self._folders():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), rows.num_rows))
        return rows.cast(pa.schema([field.with_nullable(True).remove_metadata() for field in rows.schema]))


def report_files(out: Location, name: str) -> Iterator[ReportFile]:
    """Yield the files of a result table that count; none if no job wrote one.

    Raises:
        DamagedFileError: it cannot be read.
    """
    folder = out / name
    try:
        for place in sorted(_listed(folder)):
            yield ReportFile(place, relative(place, folder), place.read_bytes())
    except OSError as error:
        raise DamagedFileError(folder, f"cannot be read: {error}; publish again when no job writes it") from error


def _listed(folder: Location) -> list[Any]:
    if isinstance(folder, StoredPath):
        try:
            names = msgspec.json.decode((folder / CURRENT).read_bytes(), type=list[str])
        except FileNotFoundError:
            return []
        except msgspec.MsgspecError as error:
            raise DamagedFileError(folder / CURRENT, error) from error
        return [folder / one for one in names]
    return [one for one in folder.rglob("*.parquet") if not one.name.startswith((".", "_"))]
