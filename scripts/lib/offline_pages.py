"""Pages that load nothing from elsewhere: ends with 1 and names what a folder of HTML and CSS would load.

python scripts/lib/offline_pages.py FOLDER
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

# What a browser fetches by itself; a link that somebody may follow is none of it.
LOADING = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
# Links of a page to itself or its neighbours, which nobody fetches.
NOT_LOADED = {"author", "canonical", "index", "next", "prev", "search", "top"}
ELSEWHERE = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)
IN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:[a-z]+:)?//[^"')\s]+)""", re.IGNORECASE)


class Loads(HTMLParser):
    """What a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        target = given.get(LOADING.get(tag, ""), "") or ""
        if ELSEWHERE.match(target) and not (tag == "link" and given.get("rel") in NOT_LOADED):
            self.found.append(target)


def loaded_from_elsewhere(folder: Path) -> dict[str, list[str]]:
    """File -> the addresses that a browser would fetch for it."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".html":
            page = Loads()
            page.feed(path.read_text("utf-8"))
            loads = page.found
        elif path.suffix == ".css":
            loads = IN_CSS.findall(path.read_text("utf-8"))
        else:
            continue
        if loads:
            found[str(path.relative_to(folder))] = loads
    return found


def main() -> None:
    """Check the folder that the arguments name."""
    found = loaded_from_elsewhere(Path(sys.argv[1]))
    for name, loads in found.items():
        print(f"{name} loads from elsewhere: {', '.join(loads)}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
