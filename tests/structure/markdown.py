"""Reading Markdown as far as the tests of the documents need it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w*)\s*$(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(?P<text>.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = FENCE.finditer(path.read_text("utf-8"))
    return [Block(match["language"], match["text"].removeprefix("\n")) for match in found]


def prose(path: Path) -> str:
    """A document without its fenced blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text("utf-8")))


def links(path: Path) -> list[str]:
    """The targets of a document's links."""
    return [match["target"] for match in LINK.finditer(prose(path))]


def anchors(path: Path) -> set[str]:
    """The fragments a link to this document may name: its headings, lower case, blanks as hyphens."""
    headings = (match["text"] for match in HEADING.finditer(FENCE.sub("", path.read_text("utf-8"))))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
