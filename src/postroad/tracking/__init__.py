"""Where messages went: recorders, histories, and the reconstruction of a journey. What to store, not where."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.tracking.journey_spans import TraceContext, journey_spans

if TYPE_CHECKING:
    from postroad.tracking.answers import Answer, AnswerError, NamedSubscription, decode_answer, encode_answer
    from postroad.tracking.bloom_recorder import BloomRecorder
    from postroad.tracking.chronicle import Chapter, Chronicle
    from postroad.tracking.contract import Job, Recorder, TrackingRecorder, TrackingStatistics
    from postroad.tracking.exact_recorder import ExactRecorder
    from postroad.tracking.filter_merge import merge_filters
    from postroad.tracking.filter_probe import (
        FilterEvidence,
        covers,
        evidence_of,
        key_times,
        probe,
        without_superseded,
    )
    from postroad.tracking.filter_shape import shape_of
    from postroad.tracking.findings import Drop, Findings, Gap, Hit, merged
    from postroad.tracking.history import NUMBERED, HistoryName
    from postroad.tracking.journey_documents import NamedJourney, journey_document, with_names
    from postroad.tracking.latency import LATENCY_BUCKETS, LATENCY_GROWTH, LatencySketch, bucket_limits
    from postroad.tracking.log_recorder import LogRecorder
    from postroad.tracking.presence import GOES_ON, Presence, Stays
    from postroad.tracking.reconstruction import Exploration, Journey, LostHop, OpenHop, PrunedHop, Reconstruction, Stop
    from postroad.tracking.sealed_recorder import SealedRecorder
    from postroad.tracking.segments import (
        ADDENDUM,
        BATCHES_PER_SAMPLE,
        HERE,
        LEFT_OUT,
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
    "LEFT_OUT",
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
    "NamedJourney",
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
    "TraceContext",
    "TrackingError",
    "TrackingRecorder",
    "TrackingStatistics",
    "Verdict",
    "bucket_limits",
    "covers",
    "decode_answer",
    "encode_answer",
    "evidence_of",
    "journey_document",
    "journey_spans",
    "key_times",
    "merge_filters",
    "merged",
    "probe",
    "shape_of",
    "with_names",
    "without_superseded",
]

# Imported when they are first used: readers of a trail need no recorders.
_LATER = {
    "ADDENDUM": "segments",
    "Aliases": "segments",
    "Answer": "answers",
    "AnswerError": "answers",
    "BATCHES_PER_SAMPLE": "segments",
    "BatchCost": "segments",
    "BloomRecorder": "bloom_recorder",
    "Chapter": "chronicle",
    "Chronicle": "chronicle",
    "Drop": "findings",
    "ExactRecorder": "exact_recorder",
    "Exploration": "reconstruction",
    "FilterEvidence": "filter_probe",
    "FilterSegment": "segments",
    "Findings": "findings",
    "GOES_ON": "presence",
    "Gap": "findings",
    "HERE": "segments",
    "HistoryKind": "segments",
    "HistoryName": "history",
    "HistorySettings": "settings",
    "Hit": "findings",
    "Job": "contract",
    "Journey": "reconstruction",
    "LATENCY_BUCKETS": "latency",
    "LATENCY_GROWTH": "latency",
    "LEFT_OUT": "segments",
    "Latencies": "segments",
    "LatencySketch": "latency",
    "LinkChanges": "segments",
    "Lists": "segments",
    "LogRecorder": "log_recorder",
    "LogRecords": "segments",
    "LostHop": "reconstruction",
    "NUMBERED": "history",
    "NamedJourney": "journey_documents",
    "NamedSubscription": "answers",
    "Names": "segments",
    "OpenHop": "reconstruction",
    "PassageRuns": "segments",
    "Passages": "segments",
    "Presence": "presence",
    "PrunedHop": "reconstruction",
    "Reconstruction": "reconstruction",
    "Recorder": "contract",
    "Repeated": "segments",
    "SealedRecorder": "sealed_recorder",
    "Segment": "segments",
    "Shared": "segments",
    "Shed": "segments",
    "Stays": "presence",
    "Stop": "reconstruction",
    "SubscriptionChanges": "segments",
    "Timings": "segments",
    "TrackingError": "settings",
    "TrackingRecorder": "contract",
    "TrackingStatistics": "contract",
    "Verdict": "verdicts",
    "bucket_limits": "latency",
    "covers": "filter_probe",
    "decode_answer": "answers",
    "encode_answer": "answers",
    "evidence_of": "filter_probe",
    "journey_document": "journey_documents",
    "key_times": "filter_probe",
    "merge_filters": "filter_merge",
    "merged": "findings",
    "probe": "filter_probe",
    "shape_of": "filter_shape",
    "with_names": "journey_documents",
    "without_superseded": "filter_probe",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
