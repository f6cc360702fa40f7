"""A room's `__init__` is its door. What other rooms import past it is stated here, with the reason: inner contracts.

A module of kernels or of constants is imported by itself, so that machine code depends on the sources it is made of and
not on a whole room; a module that needs a library which a plain install does not bring is imported where it is needed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from tests.structure.repository import PACKAGE, files, parsed, rooms

if TYPE_CHECKING:
    from pathlib import Path

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
        "scenarios.recorded_trail",
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
        "message_prefix",
        "numbers",
        "topics",
        "values",
    },
    "pipeline": {
        "erasure",
        "java_options",
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
        "websocket",
    },
    "recording": {
        "disk",
        "writer",
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
        "tree",
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
        "coverage",
        "durable_files",
        "evidence",
        "files",
        "journal",
        "locations",
        "manifest",
        "manifest_needs",
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
            for module in imported_modules(node):
                _, room, *inner = module.split(".")
                if inner and room in known and room != own:
                    found[room].add(".".join(inner))
    return dict(found)


def imported_modules(node: ast.ImportFrom) -> list[str]:
    """The modules that names come from; for `from postroad.messages import faults` that is the module `faults`."""
    assert node.module is not None
    folder = PACKAGE.joinpath(*node.module.split(".")[1:])
    if not folder.is_dir():
        return [node.module]
    offered = names_offered(folder / "__init__.py")
    inner = [one.name for one in node.names if one.name not in offered and (folder / f"{one.name}.py").is_file()]
    return [f"{node.module}.{one}" for one in inner] + [node.module] * (len(inner) < len(node.names))


@cache
def names_offered(door: Path) -> frozenset[str]:
    """`__all__` of a module; a function may have the name of the module that holds it."""
    for node in parsed(door).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets
        ):
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def test_rooms_are_entered_by_their_doors_or_by_inner_contracts() -> None:
    assert past_the_door() == INNER, "offer it in the room's __init__, or state it here"
