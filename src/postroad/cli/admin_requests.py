"""Requests to the admin endpoint of a running broker, or to the directory of a network."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NotThereError", "admin_request", "read_token"]

# Longer than the broker at the other end gives its own questions.
ASK_SECONDS = 65.0


class NotThereError(PostroadError):
    """Whoever answers has no such page."""


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
    """The JSON that a page answers.

    Raises:
        NotThereError: there is no such page.
        PostroadError: nobody answers, or the request is refused.
    """
    import http.client
    import json
    import urllib.error
    import urllib.request

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(base + path, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=ASK_SECONDS) as answer:
            document: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        kind = NotThereError if error.code == HTTPStatus.NOT_FOUND else PostroadError
        raise kind(f"{base}: {error.read().decode(errors='replace').strip()}") from None
    # Whatever listens at the address may say anything.
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PostroadError(
            f"{base}: no answer ({error}); give the admin address of a running broker, such as 127.0.0.1:8161"
        ) from None
    return document
