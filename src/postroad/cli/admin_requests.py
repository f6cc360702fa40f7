"""Requests to the admin endpoint of a running broker, or to the directory of a network."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.client import HttpReply

__all__ = ["NotThereError", "admin_request", "read_token"]

# Longer than the broker at the other end gives its own questions.
ASK_SECONDS = 65.0
# A status lists up to 10,000 subscriptions with some 300 bytes each.
MOST_BYTES = 16 << 20


class NotThereError(PostroadError):
    """The other end has no such page."""


def read_token(path: Path | None) -> str:
    """The token in a file; empty without a file.

    Raises:
        PostroadError: it cannot be read.
    """
    if path is None:
        return ""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PostroadError(f"--admin-token-file {path}: cannot be read ({error})") from None


def admin_request(base: str, path: str, token: str = "", method: str = "GET") -> dict[str, Any]:
    """The JSON of a page.

    Raises:
        NotThereError: there is no such page.
        PostroadError: there is no answer, or the request is refused.
    """
    import asyncio

    import msgspec

    from postroad.client import HttpError, http_request

    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def ask() -> HttpReply:
        async with asyncio.timeout(ASK_SECONDS):
            return await http_request(base + path, MOST_BYTES, method, headers)

    try:
        reply = asyncio.run(ask())
        if reply.status != HTTPStatus.OK:
            kind = NotThereError if reply.status == HTTPStatus.NOT_FOUND else PostroadError
            raise kind(f"{base}: {reply.body.decode(errors='replace').strip()}")
        return msgspec.json.decode(reply.body, type=dict[str, Any])
    # Whatever listens at the address may say anything.
    except (OSError, HttpError, ValueError) as error:
        raise PostroadError(
            f"{base}: no answer ({error}); give the admin address of a running broker, such as 127.0.0.1:8161"
        ) from None
