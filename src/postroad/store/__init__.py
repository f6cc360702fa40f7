"""The store: an append-only log of rows, and cursors over it that survive crashes (`docs/durability.md`)."""

from __future__ import annotations

from postroad.store.cursors import NO_CEILING, Cursor, Taken
from postroad.store.disk import Disk, DiskCommit, Read, carry_out
from postroad.store.errors import DamageError, StoreError, StoreFullError, StoreWriteError
from postroad.store.files import FileDisk
from postroad.store.history import HistoryRows, next_rows
from postroad.store.log import Log
from postroad.store.places import runs_of
from postroad.store.recovery import Recovered, RecoveredCursor, recover
from postroad.store.settings import RetainedTopic, StoreSettings
from postroad.store.simulated import PowerFailure, SimulatedDisk
from postroad.store.statistics import StoreStatistics

__all__ = [
    "NO_CEILING",
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
    "SimulatedDisk",
    "StoreError",
    "StoreFullError",
    "StoreSettings",
    "StoreStatistics",
    "StoreWriteError",
    "Taken",
    "carry_out",
    "next_rows",
    "recover",
    "runs_of",
]
