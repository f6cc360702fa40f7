"""The recorder that keeps nothing, with the contract of tracking: messages are reported as they are handled."""

from __future__ import annotations

from postroad.tracking import Recorder

__all__ = ["NoRecorder", "Recorder"]


class NoRecorder(Recorder):
    """Keeps no record, and costs nothing: the methods of the contract do nothing."""
