"""Pages of other brokers' admin endpoints, for the console."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from postroad.client import AdminAccess, HttpError, admin_reply
from postroad.config import is_loopback

if TYPE_CHECKING:
    import ssl

__all__ = ["AdminClient"]

# A status lists up to 10,000 subscriptions with some 400 bytes each.
MOST_BYTES = 16 * 1024 * 1024
SECURE = "https://"
PLAIN = "http://"


class AdminClient(NamedTuple):
    """Asks other brokers.

    Attributes:
        token: what their admin endpoints ask for; empty for none. It is sent over TLS only, and proved without.
        tls: how to check the certificates of those that speak TLS; None as the system does.
    """

    token: str = ""
    tls: ssl.SSLContext | None = None

    async def page(self, address: str, path: str) -> Any:
        """Return the JSON of a page; the caller limits the time, with `asyncio.timeout`.

        Args:
            address: `host:port`, or `https://host:port`.
            path: the page.

        Raises:
            OSError: nobody answers there, or the certificate is not signed by a trusted authority.
            HttpError: the reply is not the page of a broker that knows the token.
            ValueError: the address is not valid, or the page is not JSON.
        """
        scheme = SECURE if address.startswith(SECURE) else PLAIN
        host, _, port = address.removeprefix(SECURE).removeprefix(PLAIN).rpartition(":")
        host = host.strip("[]")
        if self.token and scheme == PLAIN and not is_loopback(host):
            raise HttpError(f"{address}: its answers could be read on the network path; write https://")
        url = f"{scheme}{f'[{host}]' if ':' in host else host}:{int(port)}{path}"
        reply = await admin_reply(url, MOST_BYTES, AdminAccess(self.token, self.tls))
        # Only a page is proved: a program that does not know the token can still send a refusal.
        if reply.status != HTTPStatus.OK:
            raise HttpError(f"{address}: {reply.status} {reply.reason}")
        return msgspec.json.decode(reply.body)
