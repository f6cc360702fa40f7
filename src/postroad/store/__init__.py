"""The store: an append-only log of rows, and cursors over it that survive crashes (`docs/durability.md`)."""

from __future__ import annotations

from postroad.store.cursors import MAX_TRIES, NO_CEILING, Cursor, Taken
from postroad.store.disk import Disk, DiskCommit, Read, carry_out
from postroad.store.errors import DamageError, StoreError, StoreFullError, StoreReadError, StoreWriteError
from postroad.store.file_disk import FileDisk
from postroad.store.log import Log
from postroad.store.payloads import rows_of_payload, rows_payload, stored_bytes
from postroad.store.recovery import Recovered, RecoveredCursor, recover
from postroad.store.retained_rows import HistoryRows, next_rows
from postroad.store.room import TIGHT_BYTES, UNLIMITED
from postroad.store.row_sets import NO_RUNS, ROW_BITS, RowSet, Runs, first_places, intersect, runs_of, subtract
from postroad.store.settings import RetainedTopic, StoreSettings
from postroad.store.simulated_disk import PowerFailure, SimulatedDisk
from postroad.store.statistics import StoreStatistics

__all__ = [
    "MAX_TRIES",
    "NO_CEILING",
    "NO_RUNS",
    "ROW_BITS",
    "TIGHT_BYTES",
    "UNLIMITED",
    "Cursor",
    "DamageError",
    "Disk",
    "DiskCommit",
    "FileDisk",
    "HistoryRows",
    "Log",
    "PowerFailure",
    "Read",
    "Recovered",
    "RecoveredCursor",
    "RetainedTopic",
    "RowSet",
    "Runs",
    "SimulatedDisk",
    "StoreError",
    "StoreFullError",
    "StoreReadError",
    "StoreSettings",
    "StoreStatistics",
    "StoreWriteError",
    "Taken",
    "carry_out",
    "first_places",
    "intersect",
    "next_rows",
    "recover",
    "rows_of_payload",
    "rows_payload",
    "runs_of",
    "stored_bytes",
    "subtract",
]
