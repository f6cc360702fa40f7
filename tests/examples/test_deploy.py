"""Files for operators: they name commands, options and settings that there are."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from postroad.cli.doctor import OTHER_FILES
from tests.cli.programs import here
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd here")
    # The program and its user are there only after an installation.
    text = (DEPLOY / "postroad.service").read_text("utf-8").replace("/opt/postroad/bin/postroad", sys.executable)
    for key in ("User", "Group"):
        text = text.replace(f"{key}=postroad\n", "")
    copy = tmp_path / "postroad.service"
    copy.write_text(text)
    told = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True, check=False, timeout=120)
    complaints = [line for line in told.stderr.splitlines() if "postroad.service" in line]
    assert complaints == []


def test_unit_leaves_what_brokers_need() -> None:
    service = unit()
    # Kernels are linked into memory that is written first; folders of a group have the bit that hands it on.
    assert {"MemoryDenyWriteExecute", "RestrictSUIDSGID"}.isdisjoint(service)
    assert {"AF_INET", "AF_INET6"} <= set(service["RestrictAddressFamilies"].split())
    # The only places that it can write to.
    assert (service["StateDirectory"], service["CacheDirectory"]) == ("postroad", "postroad")
