"""A plain HTTP request."""

from __future__ import annotations

import asyncio


async def get(port: int, path: str, head: str = "Host: 127.0.0.1\r\n", method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    first, _, body = answer.partition("\r\n\r\n")
    assert f"Content-Length: {len(body.encode())}\r\n" in first
    return int(first.split(" ")[1]), body
