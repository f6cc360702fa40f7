"""A release says the same of itself everywhere: one version, and extras that hold what they promise."""

from __future__ import annotations

import re
import tomllib

from postroad import __version__
from tests.structure.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# For those who work on Postroad.
OF_DEVELOPERS = {"bench", "dev", "docs", "fuzz"}


def test_version_is_written_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT


def test_changelog_begins_with_what_is_not_released_and_then_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", headings[1])


def test_extra_all_has_every_extra_of_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = re.fullmatch(r"postroad\[(.+)\]", everything)
    assert named is not None
    assert set(named[1].split(",")) == set(extras) - OF_DEVELOPERS - {"all"}


def test_every_extra_of_users_is_in_the_document() -> None:
    text = (ROOT / "docs" / "howto" / "install.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(set(PROJECT["optional-dependencies"]) - OF_DEVELOPERS)
