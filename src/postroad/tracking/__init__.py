"""Where messages went: recorders, histories, and the reconstruction of a journey. What to store, not where."""

from postroad.tracking.findings import Drop, Findings, Gap, Hit
from postroad.tracking.segments import (
    ADDENDUM,
    HERE,
    Aliases,
    Attachments,
    FilterSegment,
    HistoryKind,
    Latencies,
    LinkChanges,
    Lists,
    Names,
    Passages,
    Segment,
    Shed,
    Timings,
)

__all__ = [
    "ADDENDUM",
    "HERE",
    "Aliases",
    "Attachments",
    "Drop",
    "FilterSegment",
    "Findings",
    "Gap",
    "HistoryKind",
    "Hit",
    "Latencies",
    "LinkChanges",
    "Lists",
    "Names",
    "Passages",
    "Segment",
    "Shed",
    "Timings",
]
