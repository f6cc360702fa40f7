"""Tests use what is public: no private names of the package, and no names of other test modules."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.structure.repository import ROOT, files, name, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

# Private by their names, and public by their documentation: of named tuples, of `os` and of `sys`.
PUBLIC = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}


# Private attributes that tests use, because there is no public way: they make something fail that does not fail by
# itself, or look at a table that no statistic shows. The list should only get shorter.
WHITE_BOX: dict[str, set[str]] = {
    "tests/broker/test_remote_durable_edges.py": {"_of"},
    "tests/broker/test_replay_failures.py": {"_turns"},
    "tests/broker/test_turn_bytes.py": {"_turns"},
    "tests/cli/test_imports.py": {"_runtime_param"},
    "tests/conftest.py": {"_hypothesis_internal_use_settings"},
    "tests/matching/test_hostile.py": {"_interner", "_tables"},
    "tests/network/test_rolling_restart.py": {"_entries", "_rolling", "_stop"},
    "tests/protocols/link/lossy.py": {"_held"},
    "tests/routing/test_cluster.py": {"_parents"},
    "tests/routing/test_seen_ids.py": {"_origins"},
    "tests/server/test_capacity_watch.py": {"_late", "_seconds"},
    "tests/server/test_links.py": {"_dialler", "_tasks"},
    "tests/simulation/test_agreement.py": {"_exact"},
    "tests/store/test_log.py": {"_catalog"},
    "tests/tracking/test_id_runs.py": {"_open"},
    "tests/trail/test_breaks.py": {"_commit"},
}


def modules_of_tests() -> list[tuple[str, ast.Module]]:
    return [(name(path), parsed(path)) for path in files(".py", ROOT / "tests")]


def is_private(identifier: str) -> bool:
    return identifier.startswith("_") and not identifier.startswith("__") and identifier not in PUBLIC


def private_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("postroad"):
            yield from (f"{node.module}.{one.name}" for one in node.names if is_private(one.name))


def private_attributes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.attr


def is_own(node: ast.expr) -> bool:
    """Whether a test module's own class uses its attributes, or those of its base."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "super")


def imports_of_tests(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_"):
            yield node.module or ""


def test_tests_import_no_private_names() -> None:
    found = {module: set(private_imports(tree)) for module, tree in modules_of_tests()}
    assert {module: names for module, names in found.items() if names} == {}


def test_tests_reach_into_no_other_private_attributes() -> None:
    found = {module: set(private_attributes(tree)) for module, tree in modules_of_tests()}
    assert {module: names for module, names in found.items() if names} == WHITE_BOX


def test_tests_import_nothing_from_test_modules() -> None:
    found = {module: set(imports_of_tests(tree)) for module, tree in modules_of_tests()}
    assert {module: names for module, names in found.items() if names} == {}
