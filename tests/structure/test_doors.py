"""A room's `__init__` is its door. What other rooms import past it is stated here, with the reason: inner contracts.

A module of kernels or of constants is imported by itself, so that machine code depends on the sources it is made of and
not on a whole room; a module that needs a library which a plain install does not bring is imported where it is needed.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.structure.repository import PACKAGE, files, parsed, rooms

# Room -> its modules that other rooms may import by name.
INNER: dict[str, set[str]] = {
    "broker": {
        "consignments",
        "interests",
        "numbers",
        "questions",
        "queues",
    },
    "capacity": {
        "report",
    },
    "client": {
        "send_frames",
    },
    "config": {
        "mistakes",
    },
    "filters": {
        "bloom",
        "hashes",
        "positions",
    },
    "lab": {
        "calibration",
        "experiments",
        "replay",
        "report",
        "run_folder",
        "runs",
        "scenarios",
        "scenarios.recorded",
        "service_costs",
        "trails",
    },
    "matching": {
        "cover",
        "encoding",
        "table_hash",
    },
    "messages": {
        "characters",
        "checks",
        "columns",
        "envelope",
        "faults",
        "fields",
        "headers",
        "id_columns",
        "identity",
        "limits",
        "numbers",
        "scanner",
        "topics",
        "values",
    },
    "pipeline": {
        "erasure",
        "java_options",
        "jobs",
        "jobs.audit",
        "jobs.compact",
        "jobs.follow",
        "jobs.match",
        "jobs.publish",
        "jobs.storage",
        "jobs.timings",
        "jobs.trace",
        "output",
        "session",
        "sources",
        "warm_server",
    },
    "protocols": {
        "admin_proof",
        "link",
        "link.frames",
        "link.limits",
        "stomp",
        "stomp.columns",
        "stomp.id_headers",
        "stomp.limits",
    },
    "recording": {
        "disk",
    },
    "routing": {
        "control_frames",
        "destinations",
        "envelopes",
        "link_state_records",
        "origins",
        "seen_ids",
    },
    "selectors": {
        "constraints",
        "like",
        "limits",
        "normal_form",
    },
    "server": {
        "directories",
        "extras",
        "http",
        "logs",
        "process",
    },
    "sessions": {
        "contract",
        "stomp",
    },
    "store": {
        "row_sets",
    },
    "testing": {
        "real_network",
    },
    "topology": {
        "graph",
        "toml",
    },
    "tracking": {
        "filter_shape",
        "history",
        "history_seal",
        "journaled_recorder",
        "reasons",
        "verdicts",
        "witnessed_links",
    },
    "trail": {
        "access",
        "backlog",
        "coverage",
        "durable_files",
        "evidence",
        "files",
        "journal",
        "journal_remainder",
        "locations",
        "manifest",
        "paths",
        "read_ahead",
        "shipper",
        "spots",
        "stored_trail",
    },
}


def past_the_door() -> dict[str, set[str]]:
    """Room -> modules of it that other rooms import by name."""
    found: dict[str, set[str]] = defaultdict(set)
    known = set(rooms())
    for path in files(".py", PACKAGE):
        own = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(parsed(path)):
            if not (isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("postroad.")):
                continue
            _, room, *inner = node.module.split(".")
            if inner and room in known and room != own:
                found[room].add(".".join(inner))
    return dict(found)


def test_rooms_are_entered_by_their_doors_or_by_inner_contracts() -> None:
    assert past_the_door() == INNER, "offer it in the room's __init__, or state it here"
