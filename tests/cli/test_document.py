"""The sessions of docs/cli.md that need no broker show what the program prints."""

from __future__ import annotations

import shlex
import tomllib
from typing import TYPE_CHECKING

import msgspec

from postroad.config import BrokerConfig
from tests.cli.programs import here
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = blocks(ROOT / "docs" / "cli.md")


def sessions() -> list[tuple[list[str], str]]:
    """Each command of the page's console blocks, and what it shows."""
    parts = [part for block in PAGE if block.language == "console" for part in block.text.split("$ postroad ")[1:]]
    return [(shlex.split(command), shown) for command, _, shown in (part.partition("\n") for part in parts)]


def test_sessions_show_what_the_program_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(sessions()) >= 6
    for arguments, shown in sessions():
        outcome = here(monkeypatch, *arguments)
        # Lines of a table end in blanks, which no page has.
        printed = [line.rstrip() for line in (outcome.out + outcome.err).splitlines()]
        assert printed == shown.splitlines(), arguments


def test_example_of_a_configuration_is_one() -> None:
    (example,) = [block.text for block in PAGE if block.language == "toml"]
    config = msgspec.convert(tomllib.loads(example), BrokerConfig)
    assert (config.admin_port, config.limits.queue_messages) == (8161, 50_000)


def test_each_command_is_listed_once() -> None:
    lines = (ROOT / "docs" / "cli.md").read_text("utf-8").splitlines()
    listed = [line.split("|")[1].strip() for line in lines if line.startswith("| `postroad ")]
    assert len(listed) >= 9
    assert sorted(listed) == sorted(set(listed))
