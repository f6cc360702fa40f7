"""The example of docs/testing.md does what the page says."""

from __future__ import annotations

import contextlib
import io

from tests.structure.markdown import blocks
from tests.structure.repository import ROOT


def test_the_example_prints_what_the_page_says() -> None:
    example, shown = blocks(ROOT / "docs" / "testing.md")[:2]
    assert (example.language, shown.language) == ("python", "text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example.text, "docs/testing.md", "exec"), {})
    assert out.getvalue() == shown.text
