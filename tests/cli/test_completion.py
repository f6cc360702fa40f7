"""Shells complete what comes next: bash itself is asked, the others for the script that they read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

# Sources the script as ~/.bashrc does, and calls what it registered as Tab would.
ASK_BASH = """
set -eu
eval "$(postroad completion bash)"
function_name=$(complete -p postroad | sed -E 's/.*-F ([^ ]+).*/\\1/')
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$function_name postroad "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `postroad` in it."""
    program = tmp_path / "postroad"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from postroad.cli import main; main()' \"$@\"\n")
    program.chmod(0o700)
    return tmp_path


def completed(programs: Path, *words: str) -> list[str]:
    """What bash offers when Tab is pressed behind these words."""
    asked = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", ASK_BASH, "bash", *words],
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stderr == ""
    return asked.stdout.split()


def test_bash_completes_commands_options_and_choices(programs: Path) -> None:
    assert completed(programs, "postroad", "sub") == ["subscribe", "subscriptions"]
    assert "--reconnect" in completed(programs, "postroad", "subscribe", "quotes.>", "--re")
    assert completed(programs, "postroad", "network", "plan", "s") == ["star", "square"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_program_and_asks_it(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "completion", shell)
    assert (told.code, told.err) == (0, "")
    assert f"_POSTROAD_COMPLETE=complete_{shell}" in told.out
    if interpreter := shutil.which(shell):
        subprocess.run([interpreter, "-n"], input=told.out, text=True, check=True)


def test_shell_that_is_not_known_is_refused_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "completion", "csh")
    assert told.code == 2
    assert "bash" in told.err
    assert "zsh" in told.err
