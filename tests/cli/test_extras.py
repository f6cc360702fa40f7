"""Commands that need an extra say which one, at once and without a traceback."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from postroad.cli.extras import EXTRAS, what_to_install
from tests.cli.programs import here
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("scipy", ("capacity", "calibrate")),
        ("scipy", ("capacity", "fit", "--trail", ".")),
        ("scipy", ("capacity", "plan", "--from-trail", ".", "--p99", "50ms")),
        ("scipy", ("capacity", "figures")),
        ("matplotlib", ("capacity", "calibrate", "--report", "page.html")),
        ("pyspark", ("pipeline", "serve")),
        ("pyspark", ("warm", "--spark")),
    ],
)
def test_command_without_its_library_names_the_extra(
    module: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    told = here(monkeypatch, *words)
    assert told.code == 2
    assert told.err.endswith(
        f"the library {module}, which is not installed: pip install 'postroad[{EXTRAS[module]}]'\n"
    )


def test_module_of_no_extra_is_a_defect_and_not_explained_away() -> None:
    assert what_to_install(ModuleNotFoundError("No module named 'postroad.nowhere'", name="postroad.nowhere")) is None


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_extra_has_the_library_of_its_module(module: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    libraries = [re.split(r"[<>=\[]", each)[0] for each in project["optional-dependencies"][extra]]
    assert any(library.startswith(module.replace("_", "-")) for library in libraries)
