"""What a store counts."""

from __future__ import annotations

import msgspec

__all__ = ["StoreStatistics"]


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, except where a field says "now"; rows count once per cursor, except when appended."""

    cursors_now: int
    spools_now: int
    waiting_rows_now: int
    in_flight_rows_now: int
    segments_now: int
    bytes_now: int
    memory_bytes_now: int
    appended_rows: int
    settled_rows: int
    written_bytes: int
    commits: int
    syncs: int
    failures: int
    moved_records: int
    damaged_records: int
    lost_rows: int
