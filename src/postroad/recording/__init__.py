"""The live record of a broker: from its recorder to the trail, and the answers about messages."""

from __future__ import annotations

# First: it loads pyarrow in its own way, which others below load too.
from postroad.recording import arrow as _arrow  # noqa: F401
from postroad.recording.age_clock import AgeClock
from postroad.recording.inquiry import Inquiry
from postroad.recording.lock import DirectoryLock, LockedError
from postroad.recording.record import LiveRecord, make_record
from postroad.recording.samples import Sampler
from postroad.recording.trail_answers import TrailAnswers, trail_root

__all__ = [
    "AgeClock",
    "DirectoryLock",
    "Inquiry",
    "LiveRecord",
    "LockedError",
    "Sampler",
    "TrailAnswers",
    "make_record",
    "trail_root",
]
