"""What an experiment observed, event by event, as Parquet: the raw tables that Spark summarises.

| table | one row is |
| --- | --- |
| `accepted` | a message that a broker accepted, with how many clients and brokers want it |
| `delivered` | a copy that a subscriber got; `place` counts them in the order in which they came |
| `links` | what went over one direction of a link since the sample before |
| `brokers` | what a broker's processor did since the sample before |
| `measures` | a figure that the experiment measured itself |

Times are microseconds from the beginning of the publishing. The same run writes the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from postroad.messages.id_columns import id_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["RAW_SCHEMAS", "LinkSample", "RawEvents"]

_ID = [("origin", pa.int64()), ("time", pa.int64()), ("publisher", pa.int64()), ("counter", pa.int32())]
RAW_SCHEMAS: dict[str, pa.Schema] = {
    "accepted": pa.schema(
        [
            ("at", pa.int64()),
            ("broker", pa.int32()),
            ("client", pa.int32()),
            *_ID,
            ("wanted", pa.int32()),
            ("wanted_brokers", pa.int32()),
        ]
    ),
    "delivered": pa.schema(
        [("place", pa.int64()), ("at", pa.int64()), ("broker", pa.int32()), ("subscriber", pa.int32()), *_ID]
    ),
    "links": pa.schema(
        [
            ("at", pa.int64()),
            ("source", pa.int32()),
            ("target", pa.int32()),
            ("messages", pa.int64()),
            ("data_bytes", pa.int64()),
            ("control_bytes", pa.int64()),
            ("control_frames", pa.int64()),
            ("busy_us", pa.int64()),
            ("held_bytes", pa.int64()),
        ]
    ),
    "brokers": pa.schema(
        [("at", pa.int64()), ("broker", pa.int32()), ("busy_us", pa.int64()), ("waiting", pa.int64())]
    ),
    "measures": pa.schema([("name", pa.string()), ("value", pa.float64()), ("unit", pa.string())]),
}


class LinkSample(NamedTuple):
    """One direction of a link, counted from the beginning; the fields are those of `links`."""

    messages: int = 0
    data_bytes: int = 0
    control_bytes: int = 0
    control_frames: int = 0
    busy_us: int = 0


class RawEvents:
    """Collects events in memory, and writes them as one file for each table."""

    def __init__(self) -> None:
        self._accepted: list[tuple[NDArray[np.int64], ...]] = []
        self._accepted_ids: list[NDArray[np.uint64]] = []
        self._delivered: list[tuple[int, int, int, int]] = []
        self._delivered_ids: list[NDArray[np.uint64]] = []
        self._samples: dict[str, list[tuple[int, ...]]] = {"links": [], "brokers": []}
        self._last: dict[tuple[int, int], LinkSample] = {}
        self._last_busy: dict[int, int] = {}
        self._measures: list[tuple[str, float, str]] = []

    def accepted(
        self,
        at: NDArray[np.int64],
        broker: int,
        clients: NDArray[np.int32],
        ids: NDArray[np.uint64],
        wanted: NDArray[np.int32],
        wanted_brokers: NDArray[np.int32],
    ) -> None:
        """Add messages that a broker accepted; all arrays have a line for each."""
        whole = np.int64
        columns = (at, np.full(len(at), broker), clients, wanted, wanted_brokers)
        self._accepted.append(tuple(column.astype(whole) for column in columns))
        self._accepted_ids.append(ids.copy())

    def delivered(self, at: int, broker: int, subscriber: int, ids: NDArray[np.uint64]) -> None:
        """Add copies that a subscriber got at one time."""
        self._delivered.append((len(ids), at, broker, subscriber))
        self._delivered_ids.append(ids)

    def link(self, at: int, ends: tuple[int, int], so_far: LinkSample, held_bytes: int) -> None:
        """Add a sample of one direction of a link; only what came since the previous one is written."""
        before = self._last.get(ends, LinkSample())
        self._last[ends] = so_far
        since = tuple(now - then for now, then in zip(so_far, before, strict=True))
        if any(since) or held_bytes:
            self._samples["links"].append((at, *ends, *since, held_bytes))

    def skip_links(self, ends: tuple[int, int], so_far: LinkSample) -> None:
        """Ignore what a link carried until now: it belongs to the start."""
        self._last[ends] = so_far

    def broker(self, at: int, broker: int, busy_us: int, waiting: int) -> None:
        """Add a sample of a broker's processor."""
        since = busy_us - self._last_busy.get(broker, 0)
        self._last_busy[broker] = busy_us
        if since or waiting:
            self._samples["brokers"].append((at, broker, since, waiting))

    def measure(self, name: str, value: float, unit: str = "") -> None:
        """Add a figure that the experiment measured itself."""
        self._measures.append((name, float(value), unit))

    @property
    def last_delivery(self) -> int:
        """Return when the last copy arrived so far, in microseconds."""
        return max((at for _, at, _, _ in self._delivered), default=0)

    def tables(self) -> dict[str, pa.Table]:
        """Return all tables."""
        found = {
            "accepted": self._accepted_columns(),
            "delivered": self._delivered_columns(),
            **{name: _transposed(name, rows) for name, rows in self._samples.items()},
            "measures": _transposed("measures", self._measures),
        }
        return {
            name: pa.table(
                [pa.array(columns[field.name], field.type) for field in RAW_SCHEMAS[name]], schema=RAW_SCHEMAS[name]
            )
            for name, columns in found.items()
        }

    def write(self, folder: Path) -> None:
        """Write all tables to an existing directory.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        for name, table in self.tables().items():
            parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")

    def _accepted_columns(self) -> Mapping[str, Any]:
        names = ("at", "broker", "client", "wanted", "wanted_brokers")
        columns = [np.concatenate(parts) for parts in zip(*self._accepted, strict=True)] or [_NOTHING] * len(names)
        return dict(zip(names, columns, strict=True)) | _id_columns(self._accepted_ids)

    def _delivered_columns(self) -> Mapping[str, Any]:
        rows = np.array(self._delivered, np.int64).reshape(-1, 4)
        at, broker, subscriber = (np.repeat(rows[:, place], rows[:, 0]) for place in (1, 2, 3))
        columns = {"place": np.arange(len(at)), "at": at, "broker": broker, "subscriber": subscriber}
        return columns | _id_columns(self._delivered_ids)


_NOTHING = np.zeros(0, np.int64)


def _id_columns(parts: list[NDArray[np.uint64]]) -> dict[str, Any]:
    """Return the halves of ids as the columns of the trail."""
    ids = np.concatenate(parts) if parts else np.zeros((0, 2), np.uint64)
    return dict(zip(("origin", "time", "publisher", "counter"), id_fields(ids), strict=True))


def _transposed(table: str, rows: list[tuple[Any, ...]]) -> Mapping[str, Any]:
    names = RAW_SCHEMAS[table].names
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {name: [] for name in names}
