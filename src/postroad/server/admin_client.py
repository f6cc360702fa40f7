"""Pages of other brokers' admin endpoints, for the console. The token is shown over TLS, and proved without."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from postroad.config import is_loopback
from postroad.errors import PostroadError
from postroad.protocols.admin_proof import PROOF_HEADER, PROOF_SCHEME, reply_proof, request_proof
from postroad.sessions import wall_clock

if TYPE_CHECKING:
    import ssl

__all__ = ["AdminClient", "AdminClientError"]

# A status lists up to 10,000 subscriptions with some 400 bytes each.
MOST_BYTES = 16 * 1024 * 1024
NONCE_BYTES = 16
SECURE = "https://"


class AdminClientError(PostroadError):
    """What answers is not a broker of the network."""


class AdminClient(NamedTuple):
    """Asks other brokers.

    Attributes:
        token: what their admin endpoints ask for; empty for none.
        tls: how to check the certificates of those that speak TLS; None as the system does.
    """

    token: str = ""
    tls: ssl.SSLContext | None = None

    async def page(self, address: str, path: str) -> Any:
        """The JSON of a page; the caller says how long it may take, with `asyncio.timeout`.

        Args:
            address: `host:port`, or `https://host:port`.
            path: the page.

        Raises:
            OSError: nobody answers there, or the certificate is not signed by a trusted authority.
            AdminClientError: it is not a broker that knows the token.
            ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError: it does not answer as a broker does.
        """
        is_secure = address.startswith(SECURE)
        host, _, port = address.removeprefix(SECURE).removeprefix("http://").rpartition(":")
        host = host.strip("[]")
        if self.token and not is_secure and not is_loopback(host):
            raise AdminClientError(f"{address}: its answers could be read on the network path; write https://")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=(self.tls or True) if is_secure else None)
        try:
            name = writer.get_extra_info("peername")
            proof = "" if is_secure or not self.token else self._proof(f"{name[0]} {name[1]}", path)
            shown = f"{PROOF_SCHEME} {proof}" if proof else f"Bearer {self.token}" if self.token else ""
            authorization = f"Authorization: {shown}\r\n" if shown else ""
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {_shown(host)}\r\n{authorization}\r\n".encode("ascii"))
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            size = int(_field(head, "Content-Length"))
            body = await reader.readexactly(min(size, MOST_BYTES))
        finally:
            # The reply is read, or nobody wants it any more: there is nothing to wait for.
            writer.transport.abort()
        if proof:
            expected = reply_proof(self.token, proof, int(head.split(" ", 2)[1]), body)
            if not hmac.compare_digest(expected.encode(), _field(head, PROOF_HEADER).encode()):
                raise AdminClientError(f"{address}: the program that answers there does not know the token")
        return msgspec.json.decode(body)

    def _proof(self, address: str, path: str) -> str:
        return request_proof(self.token, address, "GET", path, wall_clock(), secrets.token_hex(NONCE_BYTES))


def _field(head: str, name: str) -> str:
    """The value of a header; empty without."""
    wanted = f"{name.lower()}:"
    lines = head.split("\r\n")
    return next((line[len(wanted) :].strip() for line in lines if line.lower().startswith(wanted)), "")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
