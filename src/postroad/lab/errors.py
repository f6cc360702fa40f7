"""Errors of the lab."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["LabError"]


class LabError(PostroadError):
    """An experiment or a workload cannot be run as requested; the text says why, and what to do."""
