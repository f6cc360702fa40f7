"""Files for operators: they name commands, options and settings that there are."""

from __future__ import annotations

import configparser
import shlex
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from postroad.cli.doctor import OTHER_FILES
from tests.cli.programs import here
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

DEPLOY = ROOT / "examples" / "deploy"


def unit() -> configparser.SectionProxy:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "postroad.service")
    return found["Service"]


def commands() -> list[list[str]]:
    lines = [unit()["ExecStartPre"], unit()["ExecStart"]]
    image = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    (last,) = [line for line in image if line.startswith("CMD")]
    return [shlex.split(line)[1:] for line in lines] + [shlex.split(last.strip("CMD []").replace(",", " "))]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_take_the_options_that_they_are_given(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, words[0], "--help")
    assert told.code == 0
    assert [word for word in words if word.startswith("--") and word not in told.out] == []


def test_unit_has_open_files_for_the_default_limits() -> None:
    limits = Limits()
    assert int(unit()["LimitNOFILE"]) >= limits.sessions + limits.strangers + OTHER_FILES
