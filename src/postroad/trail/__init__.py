"""The record on disk: Parquet tables, the manifests that say what counts, and their readers and writers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.trail.batch_samples import batch_samples

if TYPE_CHECKING:
    from postroad.trail.arrow_setup import keep_pandas_out
    from postroad.trail.backlog import Backlog, BacklogStatistics, Done
    from postroad.trail.columns import DAY_MS, by_date, date_text, tabulate
    from postroad.trail.coverage import FOREVER, SET_BACK_MS, GapReason, Hole, Run, gaps_within
    from postroad.trail.durable_files import replace_file
    from postroad.trail.errors import (
        TrailConflictError,
        TrailDamageError,
        TrailError,
        TrailVersionError,
        TrailWriteError,
    )
    from postroad.trail.expected_brokers import note_brokers, noted_brokers
    from postroad.trail.file_reader import Reads, TrailFile, VerifiedFile
    from postroad.trail.files import FileEntry, Group, describe_file, file_path, origins_of, write_file
    from postroad.trail.filter_rows import ask_filters, filter_segment, matching_filters
    from postroad.trail.journal import Journal, JournalStatistics, journal_folder, read_segments, replay
    from postroad.trail.journal_remainder import Remainder, remainders
    from postroad.trail.ledger import Ledger
    from postroad.trail.lock_owner import LockOwner, lock_path, read_owner, trail_owners
    from postroad.trail.manifest import manifest_brokers
    from postroad.trail.manifest_fit import MISFIT, pin_fitting
    from postroad.trail.packed_lists import NUMBER_BYTES, pack_lists, pack_words, unpack, unpack_lists, unpack_words
    from postroad.trail.reader import DEFAULT_SKEW_MS, DEFAULT_TOLERANCE_MS, Trail
    from postroad.trail.retention import DEFAULT_GRACE_MS, Expired, expire, sweep, sweep_leftovers
    from postroad.trail.schemas import SCHEMAS, STANDING_TABLES, TABLES, VERSION, Table, metadata, table_named
    from postroad.trail.shipped_files import earlier_places
    from postroad.trail.snapshot import Pinned, pin
    from postroad.trail.standing_rows import STANDING, standing_holes
    from postroad.trail.writer import Prepared, TrailWriter

__all__ = [
    "DAY_MS",
    "DEFAULT_GRACE_MS",
    "DEFAULT_SKEW_MS",
    "DEFAULT_TOLERANCE_MS",
    "FOREVER",
    "MISFIT",
    "NUMBER_BYTES",
    "SCHEMAS",
    "SET_BACK_MS",
    "STANDING",
    "STANDING_TABLES",
    "TABLES",
    "VERSION",
    "Backlog",
    "BacklogStatistics",
    "Done",
    "Expired",
    "FileEntry",
    "GapReason",
    "Group",
    "Hole",
    "Journal",
    "JournalStatistics",
    "Ledger",
    "LockOwner",
    "Pinned",
    "Prepared",
    "Reads",
    "Remainder",
    "Run",
    "Table",
    "Trail",
    "TrailConflictError",
    "TrailDamageError",
    "TrailError",
    "TrailFile",
    "TrailVersionError",
    "TrailWriteError",
    "TrailWriter",
    "VerifiedFile",
    "ask_filters",
    "batch_samples",
    "by_date",
    "date_text",
    "describe_file",
    "earlier_places",
    "expire",
    "file_path",
    "filter_segment",
    "gaps_within",
    "journal_folder",
    "keep_pandas_out",
    "lock_path",
    "manifest_brokers",
    "matching_filters",
    "metadata",
    "note_brokers",
    "noted_brokers",
    "origins_of",
    "pack_lists",
    "pack_words",
    "pin",
    "pin_fitting",
    "read_owner",
    "read_segments",
    "remainders",
    "replace_file",
    "replay",
    "standing_holes",
    "sweep",
    "sweep_leftovers",
    "table_named",
    "tabulate",
    "trail_owners",
    "unpack",
    "unpack_lists",
    "unpack_words",
    "write_file",
]

# Imported when they are first used: readers of a trail need nothing that writes one.
_LATER = {
    "Backlog": "backlog",
    "BacklogStatistics": "backlog",
    "DAY_MS": "columns",
    "DEFAULT_GRACE_MS": "retention",
    "DEFAULT_SKEW_MS": "reader",
    "DEFAULT_TOLERANCE_MS": "reader",
    "Done": "backlog",
    "Expired": "retention",
    "FOREVER": "coverage",
    "FileEntry": "files",
    "GapReason": "coverage",
    "Group": "files",
    "Hole": "coverage",
    "Journal": "journal",
    "JournalStatistics": "journal",
    "Ledger": "ledger",
    "LockOwner": "lock_owner",
    "MISFIT": "manifest_fit",
    "NUMBER_BYTES": "packed_lists",
    "Pinned": "snapshot",
    "Prepared": "writer",
    "Reads": "file_reader",
    "Remainder": "journal_remainder",
    "Run": "coverage",
    "SCHEMAS": "schemas",
    "SET_BACK_MS": "coverage",
    "STANDING": "standing_rows",
    "STANDING_TABLES": "schemas",
    "TABLES": "schemas",
    "Table": "schemas",
    "Trail": "reader",
    "TrailConflictError": "errors",
    "TrailDamageError": "errors",
    "TrailError": "errors",
    "TrailFile": "file_reader",
    "TrailVersionError": "errors",
    "TrailWriteError": "errors",
    "TrailWriter": "writer",
    "VERSION": "schemas",
    "VerifiedFile": "file_reader",
    "ask_filters": "filter_rows",
    "by_date": "columns",
    "date_text": "columns",
    "describe_file": "files",
    "earlier_places": "shipped_files",
    "expire": "retention",
    "file_path": "files",
    "filter_segment": "filter_rows",
    "gaps_within": "coverage",
    "journal_folder": "journal",
    "keep_pandas_out": "arrow_setup",
    "lock_path": "lock_owner",
    "manifest_brokers": "manifest",
    "matching_filters": "filter_rows",
    "metadata": "schemas",
    "note_brokers": "expected_brokers",
    "noted_brokers": "expected_brokers",
    "origins_of": "files",
    "pack_lists": "packed_lists",
    "pack_words": "packed_lists",
    "pin": "snapshot",
    "pin_fitting": "manifest_fit",
    "read_owner": "lock_owner",
    "read_segments": "journal",
    "remainders": "journal_remainder",
    "replace_file": "durable_files",
    "replay": "journal",
    "standing_holes": "standing_rows",
    "sweep": "retention",
    "sweep_leftovers": "retention",
    "table_named": "schemas",
    "tabulate": "columns",
    "trail_owners": "lock_owner",
    "unpack": "packed_lists",
    "unpack_lists": "packed_lists",
    "unpack_words": "packed_lists",
    "write_file": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
