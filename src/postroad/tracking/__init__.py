"""Where messages went: recorders, histories, and the reconstruction of a journey. What to store, not where."""

from postroad.tracking.findings import Drop, Findings, Gap, Hit
from postroad.tracking.reconstruction import Exploration, Journey, LostHop, PrunedHop, Reconstruction, Stop
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
from postroad.tracking.verdicts import Verdict

__all__ = [
    "ADDENDUM",
    "HERE",
    "Aliases",
    "Attachments",
    "Drop",
    "Exploration",
    "FilterSegment",
    "Findings",
    "Gap",
    "HistoryKind",
    "Hit",
    "Journey",
    "Latencies",
    "LinkChanges",
    "Lists",
    "LostHop",
    "Names",
    "Passages",
    "PrunedHop",
    "Reconstruction",
    "Segment",
    "Shed",
    "Stop",
    "Timings",
    "Verdict",
]
