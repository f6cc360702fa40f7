"""Routing: which links a message takes. Link state, and strategies with one contract (`docs/routing.md`)."""

from __future__ import annotations

from postroad.routing.cluster import Cluster
from postroad.routing.contract import Delta, InterestChange, Parcel, Reaction, Routed, Strategy
from postroad.routing.control_frames import (
    Attach,
    Detach,
    Digest,
    Frame,
    Interest,
    InterestDelta,
    LinkRecord,
    StepDown,
    Topics,
    decode_frame,
    encode_frame,
)
from postroad.routing.destinations import Destinations
from postroad.routing.drp import Drp
from postroad.routing.errors import RoutingError
from postroad.routing.flood import Flood
from postroad.routing.link_state import LinkState
from postroad.routing.partition import partition
from postroad.routing.seen_ids import SeenIds
from postroad.routing.tree import Tree
from postroad.routing.unicast import UnicastRoutes

__all__ = [
    "Attach",
    "Cluster",
    "Delta",
    "Destinations",
    "Detach",
    "Digest",
    "Drp",
    "Flood",
    "Frame",
    "Interest",
    "InterestChange",
    "InterestDelta",
    "LinkRecord",
    "LinkState",
    "Parcel",
    "Reaction",
    "Routed",
    "RoutingError",
    "SeenIds",
    "StepDown",
    "Strategy",
    "Topics",
    "Tree",
    "UnicastRoutes",
    "decode_frame",
    "encode_frame",
    "partition",
]
