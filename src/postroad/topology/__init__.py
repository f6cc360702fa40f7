"""Topology: graphs, shapes and growth of networks, plans, and the shortest paths in them (`docs/routing.md`)."""

from __future__ import annotations

from postroad.topology.errors import PlanError, TopologyError
from postroad.topology.graph import DEFAULT_COST, LARGEST_BROKER, Graph
from postroad.topology.growth import power_law, waxman
from postroad.topology.hierarchy import Hierarchy, Station, cluster, tree
from postroad.topology.paths import UNREACHED, Routes, bit_words, routes
from postroad.topology.plan import (
    HIERARCHICAL,
    STRATEGY_NAMES,
    BrokerPlan,
    Delivery,
    LinkPlan,
    Plan,
    Settings,
    StrategyName,
)
from postroad.topology.shapes import line, ring, square_with_diagonal, star

__all__ = [
    "DEFAULT_COST",
    "HIERARCHICAL",
    "LARGEST_BROKER",
    "STRATEGY_NAMES",
    "UNREACHED",
    "BrokerPlan",
    "Delivery",
    "Graph",
    "Hierarchy",
    "LinkPlan",
    "Plan",
    "PlanError",
    "Routes",
    "Settings",
    "Station",
    "StrategyName",
    "TopologyError",
    "bit_words",
    "cluster",
    "line",
    "power_law",
    "ring",
    "routes",
    "square_with_diagonal",
    "star",
    "tree",
    "waxman",
]
