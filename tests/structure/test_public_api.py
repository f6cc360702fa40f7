"""What a room offers is decided, listed and reviewed, not a by-product of its modules."""

from __future__ import annotations

import importlib

import pytest

from tests.structure.public_api import public_names
from tests.structure.repository import ROOT, offering

LIST = ROOT / "tests" / "structure" / "public_api.txt"


@pytest.mark.parametrize("module", offering())
def test_module_offers_only_names_it_has(module: str) -> None:
    offered = importlib.import_module(module)
    assert [name for name in offered.__all__ if not hasattr(offered, name)] == []


@pytest.mark.parametrize("module", offering())
def test_module_offers_each_name_once_and_no_private_one(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("_")] == []


def test_public_names_are_the_listed_ones() -> None:
    assert public_names() == LIST.read_text("utf-8").splitlines(), "see tests/structure/public_api.py"
