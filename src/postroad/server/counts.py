"""What the server counts besides the core's own counts."""

from __future__ import annotations

import msgspec

__all__ = ["ServerStatistics"]


class ServerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, except where a field says "now"."""

    connections_now: int
    connections: int
    connections_turned_away: int
    internal_errors: int
