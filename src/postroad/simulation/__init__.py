"""Simulation: many brokers in one process, in virtual time."""

from __future__ import annotations

from postroad.simulation.events import Timeline
from postroad.simulation.links import Direction, LinkQuality
from postroad.simulation.network import SimulatedNetwork

__all__ = ["Direction", "LinkQuality", "SimulatedNetwork", "Timeline"]
