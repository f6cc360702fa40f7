"""The site of the documents, by Sphinx: `scripts/docs`.

The pages are those of the repository, read from its root, so that their links work here as they do there. The menu
follows from the lists in docs/index.md.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from postroad import __version__

project = "Postroad"
release = version = __version__
copyright = "the authors of Postroad"
language = "en"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]

# The fragments that links name are those that code forges make of headings.
myst_heading_anchors = 4
nitpicky = True
highlight_language = "none"
# Blocks such as `vector` and `refused` are read by tests; they have no colours.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"Postroad {release}"
html_copy_source = False
html_show_sphinx = False

# Pages whose lists say what belongs where.
INDEXES = ("docs/index", "docs/decisions/README", "docs/lab/README")
LINK = re.compile(r"\]\(([^)#\s]+)\.md\)")


def add_menu(_: Any, page: str, source: list[str]) -> None:
    """Put a table of contents, which only the menu shows, behind the lists of an index."""
    if page not in INDEXES:
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        folder = posixpath.dirname(page)
        targets = [posixpath.normpath(posixpath.join("/", folder, target)) for target in LINK.findall(section)]
        if page != root_doc:
            targets = [target for target in targets if posixpath.dirname(target) == f"/{folder}"]
        if not targets:
            continue
        caption = section.partition("\n")[0] if page == root_doc and not section.startswith("#") else ""
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        source[0] += "\n".join(["", "```{toctree}", *options, "", *dict.fromkeys(targets), "```", ""])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_menu)
