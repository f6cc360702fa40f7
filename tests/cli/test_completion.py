"""Shells complete what comes next: each that is installed is asked, all for the script that they read."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, get_args

import pytest

from postroad.config.tracking import RecorderName
from postroad.topology import STRATEGY_NAMES
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

# A bound for a shell that hangs.
PATIENCE_SECONDS = 120
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
    assert completed(programs, "postroad", "network", "plan", "square", "--strategy", "") == list(STRATEGY_NAMES)
    assert completed(programs, "postroad", "broker", "--log-level", "w") == ["warning"]
    assert completed(programs, "postroad", "network", "up", "p.toml", "--recorder", "") == list(get_args(RecorderName))


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_choices(programs: Path) -> None:
    def offered(line: str) -> list[str]:
        asked = subprocess.run(
            ["fish", "--no-config", "-c", f"postroad completion fish | source; complete -C '{line}'"],
            env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return [found.partition("\t")[0] for found in asked.stdout.splitlines()]

    assert offered("postroad sub") == ["subscribe", "subscriptions"]
    assert offered("postroad subscribe quotes --re") == ["--reconnect"]
    assert offered("postroad network plan s") == ["square", "star"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_what_is_typed_at_a_terminal(programs: Path) -> None:
    terminal, other_end = pty.openpty()
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
        "ZDOTDIR": str(programs),
    }
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env=environment,
        start_new_session=True,
    ) as shell:
        os.close(other_end)
        try:
            begin = 'autoload -Uz compinit; compinit -u -D; eval "$(postroad completion zsh)"; echo rea""dy\n'
            os.write(terminal, begin.encode())
            printed_until(terminal, b"ready\r")
            os.write(terminal, b"postroad sub\t")
            printed_until(terminal, b"postroad subscri")
            # Ctrl-U: the line is begun anew.
            os.write(terminal, b"\x15postroad network plan s\t\t")
            printed_until(terminal, b"square  star")
        finally:
            shell.kill()
            os.close(terminal)


def printed_until(terminal: int, wanted: bytes) -> None:
    """Read what a terminal shows until it shows this."""
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_SECONDS)
        assert ready, seen
        seen += os.read(terminal, 65_536)


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
