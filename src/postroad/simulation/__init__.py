"""Simulation: many brokers in one process, in virtual time."""

from __future__ import annotations

from postroad.simulation.events import Timeline
from postroad.simulation.host import Host, Observer
from postroad.simulation.links import Direction, LinkQuality
from postroad.simulation.network import SimulatedNetwork
from postroad.simulation.service import ServiceTimes

__all__ = ["Direction", "Host", "LinkQuality", "Observer", "ServiceTimes", "SimulatedNetwork", "Timeline"]
