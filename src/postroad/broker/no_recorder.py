"""The recorder that keeps nothing."""

from __future__ import annotations

from postroad.tracking import Recorder

__all__ = ["NoRecorder", "Recorder"]


class NoRecorder(Recorder):
    """Keeps no record and costs nothing: the methods of the contract do nothing."""
