"""Errors of the lab."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["BrokenOffError", "LabError"]


class LabError(PostroadError):
    """An experiment or a workload cannot be run as requested; the text says why, and what to do."""


class BrokenOffError(LabError):
    """Ctrl-C or SIGTERM ended a run; what it has played is kept."""

    # Of the command, as after every Ctrl-C.
    exit_code = 130
