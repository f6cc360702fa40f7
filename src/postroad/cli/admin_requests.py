"""Requests to the admin endpoint of a running broker, or to the directory of a network."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.errors import PostroadError

if TYPE_CHECKING:
    import ssl

    from postroad.client import HttpReply

__all__ = [
    "AdminAddress",
    "AdminAuthority",
    "NotThereError",
    "TokenFile",
    "admin_base",
    "admin_request",
    "check_token_stays_secret",
    "read_token",
    "trusting",
]

AdminAddress = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="ADDRESS",
        envvar="POSTROAD_ADMIN",
        help="The broker's admin address; https://HOST:PORT where it speaks TLS.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="POSTROAD_ADMIN_TOKEN_FILE", help="The token of the broker's admin endpoint, if it asks."),
]
AdminAuthority = Annotated[
    Path | None,
    typer.Option(
        "--admin-ca",
        metavar="FILE",
        envvar="POSTROAD_ADMIN_CA",
        help="Who vouches for the certificate of the admin endpoint; by default whom the system trusts.",
    ),
]

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


def admin_base(address: str) -> str:
    """The address of an admin endpoint with its scheme."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def admin_request(
    base: str, path: str, token: str = "", method: str = "GET", authority: Path | None = None
) -> dict[str, Any]:
    """The JSON that a page answers.

    Args:
        base: the address of the admin endpoint.
        path: the page.
        token: what the endpoint asks for; empty for none.
        method: GET or DELETE.
        authority: a PEM file: who vouches for its certificate; None for whom the system trusts.

    Raises:
        NotThereError: there is no such page.
        PostroadError: there is no answer, or the request is refused.
    """
    import asyncio

    import msgspec

    from postroad.client import HttpError, http_request

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    trusted = None if authority is None else trusting(authority)
    check_token_stays_secret(base, token)

    async def ask() -> HttpReply:
        async with asyncio.timeout(ASK_SECONDS):
            return await http_request(base + path, MOST_BYTES, method, headers, trusted)

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


def trusting(authority: Path) -> ssl.SSLContext:
    """How to check the certificate of an endpoint that this authority vouches for.

    Raises:
        PostroadError: the file cannot be read, or holds no certificate.
    """
    import ssl

    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ValueError) as error:
        raise PostroadError(f"--admin-ca {authority}: cannot be read ({error}); it is a PEM file") from None


def check_token_stays_secret(base: str, token: str) -> None:
    """Refuse to send a token to another machine without TLS.

    Raises:
        PostroadError: it would be.
    """
    from urllib.parse import urlsplit

    from postroad.config import is_loopback

    if token and base.startswith("http://") and not is_loopback(urlsplit(base).hostname or ""):
        raise PostroadError(f"{base}: the token would be read on the way; write https:// for another machine")
