"""Workloads for networks of brokers: declared, seeded, and measured (`docs/lab.md`)."""

from __future__ import annotations

from postroad.lab.scenarios.content import ContentScenario, FewNamesScenario
from postroad.lab.scenarios.scenario import Publications, Replication, Scenario, Subscriber, Truth
from postroad.lab.scenarios.topics import FilterGridScenario, FloodScenario, TrackedScenario
from postroad.lab.scenarios.workload_file import SCENARIOS, DescribedScenario, read_workload, scenario_of

__all__ = [
    "SCENARIOS",
    "ContentScenario",
    "DescribedScenario",
    "FewNamesScenario",
    "FilterGridScenario",
    "FloodScenario",
    "Publications",
    "Replication",
    "Scenario",
    "Subscriber",
    "TrackedScenario",
    "Truth",
    "read_workload",
    "scenario_of",
]
