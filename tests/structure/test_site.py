"""The site: every page is in its menu, and what a page would load from elsewhere is found."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from tests.structure.markdown import links
from tests.structure.repository import ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
# Lists of their own, which the index names.
LISTS = ("decisions", "lab")


def test_every_page_is_in_the_index() -> None:
    listed = {(DOCS / target).resolve() for target in links(DOCS / "index.md") if target.endswith(".md")}
    pages = {path for path in files(".md", DOCS) if path.parent.name not in LISTS or path.name == "README.md"}
    assert pages - {DOCS / "index.md"} == {page for page in listed if page.is_relative_to(DOCS)}


def test_every_page_of_a_list_is_in_it() -> None:
    for folder in LISTS:
        listed = {target for target in links(DOCS / folder / "README.md") if "/" not in target}
        assert {path.name for path in (DOCS / folder).glob("*.md")} - {"README.md"} == listed


def offline_pages() -> Any:
    spec = importlib.util.spec_from_file_location("offline_pages", ROOT / "scripts" / "lib" / "offline_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<a href="https://example.org">read</a><link rel="canonical" href="https://example.org/"><script src="a.js">'
    )
    (tmp_path / "bad.html").write_text('<link rel="stylesheet" href="//fonts.example/x.css"><img src="http://a/b.png">')
    (tmp_path / "bad.css").write_text('@import "https://a/b.css"; .x { background: url(img/c.png) }')
    assert offline_pages().loaded_from_elsewhere(tmp_path) == {
        "bad.css": ["https://a/b.css"],
        "bad.html": ["//fonts.example/x.css", "http://a/b.png"],
    }
