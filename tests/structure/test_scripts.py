"""The scripts of this repository call only what there is."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file())
FUNCTION = re.compile(r"^(\w+)\(\) \{", re.M)
# A line that is one word, or a word and plain arguments: a command, or a function of lib/setup.sh.
COMMAND = re.compile(r"^([a-z_]+)(?: [\w ]*)?$", re.M)
SHELL = {"cd", "check", "done", "esac", "exec", "exit", "export", "fi", "for", "shift", "set", "then", "else"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_shell_that_parses(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_calls_functions_that_exist(script: Path) -> None:
    shared = (ROOT / "scripts" / "lib" / "setup.sh").read_text("utf-8")
    text = script.read_text("utf-8")
    known = {*FUNCTION.findall(shared), *FUNCTION.findall(text), *SHELL}
    assert set(COMMAND.findall(text)) <= known
