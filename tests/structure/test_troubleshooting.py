"""The messages that docs/troubleshooting.md explains are messages of the code."""

from __future__ import annotations

import ast
import re

from tests.structure.repository import PACKAGE, ROOT, files, parsed

PAGE = ROOT / "docs" / "troubleshooting.md"
GAP = "…"


def headings() -> list[str]:
    """The messages that stand as code in headings."""
    found = re.findall(r"^### (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [text.strip() for heading in found for _, text in re.findall(r"(`{1,2})(.+?)\1(?=,|$)", heading)]


def text_of(node: ast.AST) -> str:
    """A text as the program may print it; what it fills in is a gap."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return ""


def texts_of_the_code() -> set[str]:
    """All texts, but for docstrings, which nobody sees."""
    found: set[str] = set()
    for path in files(".py", PACKAGE):
        tree = parsed(path)
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found |= {text_of(node) for node in ast.walk(tree) if id(node) not in statements}
    return {re.sub(r"\{\w*\}", GAP, text) for text in found}


def is_message(heading: str, texts: set[str]) -> bool:
    """Whether the parts between gaps stand in one text, in this order."""
    parts = [re.escape(part.strip()) for part in heading.split(GAP) if part.strip()]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    return any(pattern.search(text) for text in texts)


def test_every_message_of_the_page_is_one_of_the_code() -> None:
    texts = texts_of_the_code()
    assert len(headings()) > 20
    assert [heading for heading in headings() if not is_message(heading, texts)] == []


def test_a_message_that_is_not_in_the_code_is_noticed() -> None:
    texts = {"… needs the library …, which is not installed", "broker"}
    assert is_message("… needs the library …, which is not", texts)
    assert not is_message("… needs the program …, which is not", texts)
    assert not is_message("which is not installed … needs", texts)
