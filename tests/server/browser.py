"""A real browser without a window: Chromium, told what to do over its own protocol for tools."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A machine that does ten other things may take a while for a page.
PATIENCE_SECONDS = 120.0
_LARGEST_ANSWER = 64 * 1024 * 1024


def chromium() -> str:
    """The browser's program; the test is left out where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here; as root: apt-get install -y --no-install-recommends chromium")
    return found


class Page:
    """One page of the browser."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self.problems: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Tell the browser to do something; complaints of the page are collected meanwhile."""
        self._number += 1
        await self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE_SECONDS))
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(f"{message['params']['entry']['text']} {message['params']['entry'].get('url', '')}")

    async def open(self, url: str) -> None:
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """What an expression of JavaScript gives."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression gives something that counts as true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            # Nothing tells when a page has changed.
            while not await self.run(f"Boolean(document.body && ({script}))"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def text(self, id: str) -> str:
        return str(await self.run(f"document.getElementById({id!r}).textContent"))

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            more = (
                {"text": "\r", "windowsVirtualKeyCode": 13}
                if key == "Enter"
                else {"text": key}
                if len(key) == 1
                else {}
            )
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **(more if kind == "keyDown" else {}))

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def resize(self, width: int, height: int, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)

    async def screenshot(self, path: Path, whole: bool = True) -> None:
        shown = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))  # noqa: ASYNC240


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A browser with one page, for as long as the context lasts."""
    program = chromium()
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _port(folder / "profile" / "DevToolsActivePort")
        page = json.loads(await _get(port, "/json/list"))[0]
        async with connect(page["webSocketDebuggerUrl"], max_size=_LARGEST_ANSWER) as socket:
            yield Page(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _port(file: Path) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(lines := _lines(file)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return int(lines[0])


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def _get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    size = int(head.partition("content-length:")[2].partition("\r\n")[0])
    body = (await reader.readexactly(size)).decode()
    writer.close()
    return body
