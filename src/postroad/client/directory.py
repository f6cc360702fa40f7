"""The servers to connect to: one given address, or those that a directory returns."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from postroad.client.address import Address, parse_address
from postroad.client.errors import ClientError, ConnectionLost, HttpError
from postroad.client.http_request import DEFAULT_PORTS, http_request

if TYPE_CHECKING:
    import ssl

__all__ = ["DirectoryOfServers", "OneServer", "Servers"]

# A hundred addresses of a few dozen bytes each.
MOST_BYTES = 64 * 1024


class Servers(Protocol):
    """Knows which servers to try."""

    async def addresses(self) -> list[Address]:
        """The servers to try now, in order.

        Raises:
            ConnectionLost: no broker is known.
        """


class OneServer:
    """Always the same server."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def addresses(self) -> list[Address]:
        """The one."""
        return [self._address]

    def __str__(self) -> str:
        return str(self._address)


class _Answer(msgspec.Struct):
    brokers: list[str]


class DirectoryOfServers:
    """A directory, as `postroad network up` runs one: asked at each connection, so that dead servers drop out.

    A client that asked for TLS, by a context or by an `https` directory, gets TLS or nothing: addresses without it are
    never used, whatever the directory says.

    Args:
        url: `http://host:port`, or `https://…`.
        timeout: seconds that it may take to answer.
        tls: how to check its certificate, and those of the brokers.

    Raises:
        ClientError: the address is not valid.
    """

    def __init__(self, url: str, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._tls = tls
        try:
            parts = urlsplit(self._url)
            parts.port  # noqa: B018 - raises for a port that is not one
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            raise ClientError(f"directory {url!r}: {error}; write it like http://127.0.0.1:8160") from None
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.path or parts.query or parts.username:
            raise ClientError(f"directory {url!r}: write it like http://127.0.0.1:8160")
        self._needs_tls = tls is not None or parts.scheme == "https"

    async def addresses(self) -> list[Address]:
        """Ask for some live servers; each client gets another one first."""
        try:
            async with asyncio.timeout(self._timeout):
                reply = await http_request(f"{self._url}/brokers", MOST_BYTES, tls=self._tls)
        except (OSError, HttpError) as error:
            raise ConnectionLost(f"directory {self._url}: cannot be asked ({error or 'no answer'})") from error
        if reply.status != HTTPStatus.OK:
            raise ConnectionLost(f"directory {self._url}: cannot be asked (it answered {reply.status} {reply.reason})")
        try:
            named = msgspec.json.decode(reply.body, type=_Answer).brokers
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise ClientError(f"directory {self._url}: the answer to GET /brokers is not a list of brokers") from None
        if not named:
            raise ConnectionLost(f"directory {self._url}: no broker is up")
        found = [parse_address(address) for address in named]
        if not self._needs_tls:
            return found
        secure = [address for address in found if address.tls]
        if not secure:
            raise ClientError(
                f"directory {self._url}: names only brokers without TLS ({found[0]}), and this client was asked to use "
                "TLS; give the brokers certificates, or connect without a TLS context to an http directory"
            )
        return secure

    def __str__(self) -> str:
        return self._url
