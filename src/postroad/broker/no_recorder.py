"""The recorder that keeps nothing. The contract is that of tracking: what happens to messages is told as it happens."""

from __future__ import annotations

from postroad.tracking import Recorder

__all__ = ["NoRecorder", "Recorder"]


class NoRecorder(Recorder):
    """Keeps no record, and costs nothing: the methods of the contract do nothing."""
