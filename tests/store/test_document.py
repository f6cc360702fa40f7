"""docs/durability.md tells the truth: its settings are those of the code, and its example runs."""

from __future__ import annotations

import contextlib
import io
import itertools
import json

import msgspec

from postroad.store import StoreSettings
from postroad.store.file_disk import ENDING
from postroad.store.records import MAGIC, Kind
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

DOCUMENT = ROOT / "docs" / "durability.md"


def rows(heading: str) -> dict[str, str]:
    """First column -> second column of the table under a heading."""
    section = DOCUMENT.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|") for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    return {row[1].strip(" `"): row[2].strip() for row in cells}


def test_every_setting_has_a_row_with_its_default() -> None:
    told = rows("Limits, full and failing disks")
    settings = {name: f"`{json.dumps(value)}`" for name, value in msgspec.structs.asdict(StoreSettings()).items()}
    assert {name: value for name, value in told.items() if not name.startswith("setting")} == settings


def test_every_kind_of_record_has_a_row() -> None:
    told = rows("Files")
    assert {int(number): name for number, name in told.items() if number.isdecimal()} == {
        int(kind): kind.name.lower() for kind in Kind
    }
    text = DOCUMENT.read_text("utf-8")
    assert MAGIC.decode() in text
    assert f"000000000001{ENDING}" in text


def test_example_prints_what_the_page_says() -> None:
    ((example, shown),) = [
        (first.text, second.text)
        for first, second in itertools.pairwise(blocks(DOCUMENT))
        if first.language == "python" and second.language == "text"
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(DOCUMENT), "exec"), {})
    assert printed.getvalue() == shown
