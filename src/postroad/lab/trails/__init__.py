"""Trails of any size with known truth, to test and measure jobs."""

from __future__ import annotations

from postroad.lab.trails.scale import RECORDERS, Faults, Scale
from postroad.lab.trails.traffic import Slice, TrailTraffic
from postroad.lab.trails.truth import TRUTH, read_truth, sample_ids, truth_of
from postroad.lab.trails.writer import Written, alias_of, growing_trail, write_trail

__all__ = [
    "RECORDERS",
    "TRUTH",
    "Faults",
    "Scale",
    "Slice",
    "TrailTraffic",
    "Written",
    "alias_of",
    "growing_trail",
    "read_truth",
    "sample_ids",
    "truth_of",
    "write_trail",
]
