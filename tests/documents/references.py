"""Write the pages that are made from the code: `python -m tests.documents.references`."""

from __future__ import annotations

from tests.documents.commands_reference import commands_reference
from tests.documents.settings_reference import plan_reference, settings_reference
from tests.structure.repository import ROOT

FOLDER = ROOT / "docs" / "reference"
PAGES = {"settings.md": settings_reference, "plan.md": plan_reference, "commands.md": commands_reference}


def write_pages() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    write_pages()
