"""The table of rooms in docs/design.md and the import contracts in pyproject.toml say the same."""

from __future__ import annotations

import ast
import tomllib
from functools import cache

import pytest

from tests.structure.repository import PACKAGE, ROOT, foundations, rooms
from tests.structure.rooms_table import may_import, table

# Contracts on something else than who may import whom; each is named in pyproject.toml with its reason.
OTHER_CONTRACTS = {"numba comes in through kernels alone", "the package knows neither its tests nor its benchmarks"}


@cache
def contracts() -> dict[str, set[str]]:
    """Module -> the modules of ours it must not import, as pyproject.toml has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    found: dict[str, set[str]] = {}
    for contract in settings["contracts"]:
        if contract["name"] in OTHER_CONTRACTS:
            continue
        assert contract["type"] == "forbidden", contract["name"]
        assert set(contract) == {"name", "type", "source_modules", "forbidden_modules"}, contract["name"]
        (source,) = contract["source_modules"]
        found[source] = set(contract["forbidden_modules"])
    return found


def as_toml(source: str, forbidden: set[str]) -> str:
    listed = ", ".join(f'"{module}"' for module in sorted(forbidden))
    return f'source_modules = ["{source}"]\nforbidden_modules = [{listed}]'


@pytest.mark.parametrize("room", rooms())
def test_every_room_has_a_row_in_the_design(room: str) -> None:
    assert room in table(), f"src/postroad/{room} is not in the table of rooms in docs/design.md: add it, or move it"


@pytest.mark.parametrize("room", rooms())
def test_every_room_has_the_contract_of_its_row(room: str) -> None:
    forbidden = {f"postroad.{other}" for other in set(rooms()) - may_import(room) - {room}}
    source = f"postroad.{room}"
    assert contracts().get(source, set()) == forbidden, "the contract should say:\n" + as_toml(source, forbidden)


@pytest.mark.parametrize("module", foundations())
def test_foundations_import_nothing_of_ours(module: str) -> None:
    forbidden = {f"postroad.{other}" for other in {*rooms(), *foundations()} - {module}}
    source = f"postroad.{module}"
    assert contracts().get(source) == forbidden, "the contract should say:\n" + as_toml(source, forbidden)


def test_no_contract_speaks_of_a_room_that_is_gone() -> None:
    known = {f"postroad.{module}" for module in {*rooms(), *foundations()}}
    assert set(contracts()) <= known


def test_numba_contract_covers_everything_but_kernels() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (contract,) = [one for one in settings["contracts"] if one["name"] == "numba comes in through kernels alone"]
    expected = {f"postroad.{module}" for module in {*rooms(), *foundations()} - {"kernels"}}
    assert set(contract["source_modules"]) == expected


def test_package_itself_imports_no_room() -> None:
    # Whoever imports a room imports the package first: an import here would reach every room from every other.
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
