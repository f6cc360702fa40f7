"""The store: an append-only log of rows, and cursors over it that survive crashes (`docs/durability.md`)."""

from __future__ import annotations

from postroad.store.cursors import Cursor, Taken
from postroad.store.disk import Disk, DiskCommit, Read, carry_out
from postroad.store.errors import DamageError, StoreError, StoreFullError, StoreWriteError
from postroad.store.files import FileDisk
from postroad.store.log import Log
from postroad.store.recovery import Recovered, RecoveredCursor, recover
from postroad.store.settings import StoreSettings
from postroad.store.simulated import PowerFailure, SimulatedDisk
from postroad.store.statistics import StoreStatistics

__all__ = [
    "Cursor",
    "DamageError",
    "Disk",
    "DiskCommit",
    "FileDisk",
    "Log",
    "PowerFailure",
    "Read",
    "Recovered",
    "RecoveredCursor",
    "SimulatedDisk",
    "StoreError",
    "StoreFullError",
    "StoreSettings",
    "StoreStatistics",
    "StoreWriteError",
    "Taken",
    "carry_out",
    "recover",
]
