"""The pages that are made from the code are those that the code makes now."""

from __future__ import annotations

import pytest

from tests.documents.references import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_code_makes_now(name: str) -> None:
    made = PAGES[name]()
    assert made == (FOLDER / name).read_text("utf-8"), "write it anew: python -m tests.documents.references"


def test_every_page_of_the_folder_is_made_from_the_code() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)
