"""The example of docs/client.md does what the page says, against a broker in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from typing import TYPE_CHECKING

from postroad.client import DEFAULT_SERVER
from tests.client.serving import address, broker
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def broker_in_a_thread(path: Path) -> Iterator[str]:
    found: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with broker(path) as service:
            found.append(address(service))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        stop.set()
        thread.join()


def test_first_example_prints_what_the_page_says(tmp_path: Path) -> None:
    example, shown = blocks(ROOT / "docs" / "client.md")[:2]
    assert (example.language, shown.language) == ("python", "text")
    assert DEFAULT_SERVER in example.text
    out = io.StringIO()
    with broker_in_a_thread(tmp_path) as server, contextlib.redirect_stdout(out):
        exec(compile(example.text.replace(DEFAULT_SERVER, server), "docs/client.md", "exec"), {})
    assert out.getvalue() == shown.text
