"""Where messages went: recorders, histories, and the reconstruction of a journey. What to store, not where."""

from __future__ import annotations

from postroad.tracking.answers import Answer, AnswerError, NamedSubscription, decode_answer, encode_answer
from postroad.tracking.bloom_recorder import BloomRecorder
from postroad.tracking.chronicle import Chapter, Chronicle
from postroad.tracking.contract import Job, Recorder, TrackingRecorder, TrackingStatistics
from postroad.tracking.exact_recorder import ExactRecorder
from postroad.tracking.filter_merge import merge_filters
from postroad.tracking.filter_probe import (
    FilterEvidence,
    covers,
    error_rate,
    evidence_of,
    key_times,
    probe,
    without_superseded,
)
from postroad.tracking.filter_shape import shape_of
from postroad.tracking.findings import Drop, Findings, Gap, Hit, merged
from postroad.tracking.history import NUMBERED, HistoryName
from postroad.tracking.journey_documents import Told, journey_document, told
from postroad.tracking.journey_spans import TraceContext, journey_spans
from postroad.tracking.latency import LATENCY_BUCKETS, LATENCY_GROWTH, LatencySketch, bucket_limits
from postroad.tracking.log_recorder import LogRecorder
from postroad.tracking.presence import GOES_ON, Presence, Stays
from postroad.tracking.reconstruction import Exploration, Journey, LostHop, OpenHop, PrunedHop, Reconstruction, Stop
from postroad.tracking.sealed_recorder import SealedRecorder
from postroad.tracking.segments import (
    ADDENDUM,
    BATCHES_PER_SAMPLE,
    HERE,
    Aliases,
    BatchCost,
    FilterSegment,
    HistoryKind,
    Latencies,
    LinkChanges,
    Lists,
    LogRecords,
    Names,
    PassageRuns,
    Passages,
    Repeated,
    Segment,
    Shared,
    Shed,
    SubscriptionChanges,
    Timings,
)
from postroad.tracking.settings import HistorySettings, TrackingError
from postroad.tracking.verdicts import Verdict

__all__ = [
    "ADDENDUM",
    "BATCHES_PER_SAMPLE",
    "GOES_ON",
    "HERE",
    "LATENCY_BUCKETS",
    "LATENCY_GROWTH",
    "NUMBERED",
    "Aliases",
    "Answer",
    "AnswerError",
    "BatchCost",
    "BloomRecorder",
    "Chapter",
    "Chronicle",
    "Drop",
    "ExactRecorder",
    "Exploration",
    "FilterEvidence",
    "FilterSegment",
    "Findings",
    "Gap",
    "HistoryKind",
    "HistoryName",
    "HistorySettings",
    "Hit",
    "Job",
    "Journey",
    "Latencies",
    "LatencySketch",
    "LinkChanges",
    "Lists",
    "LogRecorder",
    "LogRecords",
    "LostHop",
    "NamedSubscription",
    "Names",
    "OpenHop",
    "PassageRuns",
    "Passages",
    "Presence",
    "PrunedHop",
    "Reconstruction",
    "Recorder",
    "Repeated",
    "SealedRecorder",
    "Segment",
    "Shared",
    "Shed",
    "Stays",
    "Stop",
    "SubscriptionChanges",
    "Timings",
    "Told",
    "TraceContext",
    "TrackingError",
    "TrackingRecorder",
    "TrackingStatistics",
    "Verdict",
    "bucket_limits",
    "covers",
    "decode_answer",
    "encode_answer",
    "error_rate",
    "evidence_of",
    "journey_document",
    "journey_spans",
    "key_times",
    "merge_filters",
    "merged",
    "probe",
    "shape_of",
    "told",
    "without_superseded",
]
