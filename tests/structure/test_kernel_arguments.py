"""Kernels take many arrays by position, and arrays of one type can be swapped unnoticed: names tell.

Where a kernel with many parameters is called, an argument that is named like one of the parameters has to stand at that
parameter's place. So do the arrays of a bundle, which is passed with a star or made from arrays one by one.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from postroad.filters.ribbon_solver import SolverScratch
from postroad.matching.bundles import Chunks, Reading, Store
from tests.structure.repository import PACKAGE, files, name, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

# With fewer, a reader sees at once which is which.
MANY = 8

# Bundles by the attribute that holds them, and by their class: their fields are arguments one by one.
BUNDLES = {"store": Store._fields, "chunks": Chunks._fields, "scratch": SolverScratch._fields}
CLASSES = {"Store": Store._fields, "Chunks": Chunks._fields, "Reading": Reading._fields}

# Looked at: two sets of arrays go in, or a name is common to different things.
LOOKED_AT = {
    "src/postroad/matching/constraint_tests.py": {"at is given as base"},
    # One array, to write and to read.
    "src/postroad/matching/index.py": {"scratch is given as scratch_text"},
    "src/postroad/routing/seen_ids.py": {
        "heads is given as publishers",
        "heads is given as larger_heads",
        "blocks is given as larger_blocks",
        "bits is given as larger_bits",
    },
}


def is_kernel(node: ast.FunctionDef) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Name) and called.id in ("kernel", "device"):
            return True
    return False


def trees() -> dict[str, ast.Module]:
    return {name(path): parsed(path) for path in files(".py", PACKAGE)}


def parameters_of_kernels(modules: dict[str, ast.Module]) -> dict[tuple[str, str], list[list[str]]]:
    """(Module, name) of a kernel with many parameters -> its parameters; the module is "" for public kernels."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and is_kernel(node) and len(node.args.args) >= MANY:
                key = (module if node.name.startswith("_") else "", node.name)
                found.setdefault(key, []).append([one.arg for one in node.args.args])
    return found


def argument_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id.lstrip("_")
    return node.attr.lstrip("_") if isinstance(node, ast.Attribute) else None


def argument_names(call: ast.Call) -> list[str | None] | None:
    """The names of the arguments, bundles spread out; None if it is not known what a star brings."""
    found: list[str | None] = []
    for one in call.args:
        if isinstance(one, ast.Starred):
            fields = BUNDLES.get(argument_name(one.value) or "")
            if fields is None:
                return None
            found += fields
        else:
            found.append(argument_name(one))
    return found


def misplaced(call: ast.Call, parameters: list[str]) -> Iterator[str]:
    """The arguments that stand at another parameter's place than the one they are named like."""
    for place, given in enumerate(argument_names(call) or ()):
        if given in parameters and place < len(parameters) and parameters[place] != given:
            yield f"{given} is given as {parameters[place]}"


def offences(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    kernels = parameters_of_kernels(modules)
    kernels |= {("", each): [list(fields)] for each, fields in CLASSES.items()}
    found: dict[str, list[str]] = {}
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            key = (module if node.func.id.startswith("_") else "", node.func.id)
            # Of two kernels of one name, the call has to fit one.
            each = [list(misplaced(node, parameters)) for parameters in kernels.get(key, [])]
            if each and all(each):
                found.setdefault(module, []).extend(each[0])
    return found


def test_arguments_of_kernels_stand_at_the_places_of_their_names() -> None:
    found = {module: set(told) for module, told in offences(trees()).items()}
    assert found == LOOKED_AT


def test_there_are_kernels_with_many_parameters() -> None:
    assert len(parameters_of_kernels(trees())) > 10


def test_it_is_known_what_each_star_brings() -> None:
    modules = trees()
    kernels = {function for _, function in parameters_of_kernels(modules)}
    calls = [
        (module, node.func.id)
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kernels
        if argument_names(node) is None
    ]
    assert calls == []


def test_swapped_arrays_of_a_bundle_are_noticed() -> None:
    given = [*Store._fields, *Chunks._fields]
    kernel = f"@kernel('void()')\ndef put({', '.join(given)}):\n    pass\n"
    right = ast.parse(f"{kernel}put(*tables.store, *tables.chunks)\nStore({', '.join(Store._fields)})")
    swapped = ast.parse(f"{kernel}put(*tables.chunks, *tables.store)")
    remade = ast.parse(f"Store({', '.join(reversed(Store._fields))})")
    assert offences({"right": right}) == {}
    assert len(offences({"swapped": swapped})["swapped"]) == len(given)
    assert offences({"remade": remade})


def test_swapped_arguments_are_noticed() -> None:
    names = [f"array_{letter}" for letter in "abcdefgh"]
    kernel = f"@kernel('void()')\ndef put({', '.join(names)}):\n    pass\n"
    right = ast.parse(f"{kernel}put({', '.join(names)})")
    swapped = ast.parse(f"{kernel}put({', '.join([names[1], names[0], *names[2:]])})")
    assert offences({"right": right}) == {}
    assert len(offences({"swapped": swapped})["swapped"]) == 2
