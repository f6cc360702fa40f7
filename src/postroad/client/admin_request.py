"""Requests to admin endpoints that ask for a token: it is shown over TLS, and proved without."""

from __future__ import annotations

import hmac
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from postroad.client.clock import wall_clock
from postroad.client.errors import StrangerError
from postroad.client.http_request import HttpReply, http_request
from postroad.protocols.admin_proof import PROOF_SCHEME, reply_proof, request_proof

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

__all__ = ["AdminAccess", "admin_reply"]

NONCE_BYTES = 16
STRANGER = (
    "the program that answers there does not know the token (which was not sent): another program has the port, or a "
    "broker with another admin_token_file or none"
)


class AdminAccess(NamedTuple):
    """What it takes to ask an admin endpoint.

    Attributes:
        token: what it asks for; empty for none.
        tls: how to check its certificate; None as the system does.
    """

    token: str = ""
    tls: ssl.SSLContext | None = None


async def admin_reply(url: str, most_bytes: int, access: AdminAccess, method: str = "GET") -> HttpReply:
    """Ask an admin endpoint for a page; the caller says how long it may take, with `asyncio.timeout`.

    Over TLS the endpoint has shown its certificate before it gets the token. Without TLS, both ends prove that they
    know the token (`protocols/admin_proof.py`).

    Raises:
        OSError: the address does not accept connections, or the connection broke.
        HttpError: the reply is not HTTP or too long.
        StrangerError: it comes from somebody who does not know the token.
    """
    if not access.token or url.startswith("https:"):
        headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        return await http_request(url, most_bytes, method, headers, access.tls)
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    proofs: list[str] = []

    def proved(address: str) -> Mapping[str, str]:
        nonce = secrets.token_hex(NONCE_BYTES)
        proofs.append(request_proof(access.token, address, method, target, wall_clock(), nonce))
        return {"Authorization": f"{PROOF_SCHEME} {proofs[-1]}"}

    reply = await http_request(url, most_bytes, method, proved)
    expected = reply_proof(access.token, proofs[0], reply.status, reply.body)
    # A refusal tells nothing, and a broker that has another token can prove nothing.
    if reply.status != HTTPStatus.UNAUTHORIZED and not hmac.compare_digest(expected.encode(), reply.proof.encode()):
        raise StrangerError(STRANGER)
    return reply
