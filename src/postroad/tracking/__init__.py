"""Where messages went: recorders, histories, and the reconstruction of a journey. What to store, not where."""

from __future__ import annotations

from postroad.tracking.answers import Answer, AnswerError, Subscriber, decode_answer, encode_answer
from postroad.tracking.chronicle import Chapter, Chronicle
from postroad.tracking.contract import Job, Recorder, TrackingRecorder, TrackingStatistics
from postroad.tracking.exact import ExactRecorder
from postroad.tracking.findings import Drop, Findings, Gap, Hit, merged
from postroad.tracking.latency import LATENCY_BUCKETS, LATENCY_GROWTH, LatencySketch, bucket_limits
from postroad.tracking.presence import Presence
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
    LogRecords,
    Names,
    Passages,
    Segment,
    Shed,
    Timings,
)
from postroad.tracking.telling import Told, journey_document, told
from postroad.tracking.verdicts import Verdict

__all__ = [
    "ADDENDUM",
    "HERE",
    "LATENCY_BUCKETS",
    "LATENCY_GROWTH",
    "Aliases",
    "Answer",
    "AnswerError",
    "Attachments",
    "Chapter",
    "Chronicle",
    "Drop",
    "ExactRecorder",
    "Exploration",
    "FilterSegment",
    "Findings",
    "Gap",
    "HistoryKind",
    "Hit",
    "Job",
    "Journey",
    "Latencies",
    "LatencySketch",
    "LinkChanges",
    "Lists",
    "LogRecords",
    "LostHop",
    "Names",
    "Passages",
    "Presence",
    "PrunedHop",
    "Reconstruction",
    "Recorder",
    "Segment",
    "Shed",
    "Stop",
    "Subscriber",
    "Timings",
    "Told",
    "TrackingRecorder",
    "TrackingStatistics",
    "Verdict",
    "bucket_limits",
    "decode_answer",
    "encode_answer",
    "journey_document",
    "merged",
    "told",
]
