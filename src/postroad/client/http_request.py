"""One request over HTTP/1.1, for directories, status pages and admin endpoints: a connection, a request, a reply.

The program at the address may send anything, so the size of a reply is bounded before it is read.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from postroad.client.errors import HttpError
from postroad.protocols.admin_proof import PROOF_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DEFAULT_PORTS", "HttpReply", "http_request"]

DEFAULT_PORTS = {"http": 80, "https": 443}
# Status line and headers; a proxy may add some to the few of a broker.
MOST_HEAD_BYTES = 64 * 1024


class HttpReply(NamedTuple):
    """What came back; `proof` is its header of that name (`protocols/admin_proof.py`), empty without."""

    status: int
    reason: str
    body: bytes
    proof: str = ""


async def http_request(
    url: str,
    most_bytes: int,
    method: str = "GET",
    headers: Mapping[str, str] | Callable[[str], Mapping[str, str]] | None = None,
    tls: ssl.SSLContext | None = None,
    body: bytes = b"",
) -> HttpReply:
    """Ask for a page; the caller says how long it may take, with `asyncio.timeout`.

    Args:
        url: `http://host:port/path`, or `https://…`. most_bytes: that the body of the reply may have. method: of the
        request. headers: besides those that every request has; or a function that returns them for host and port of the
        other end as the
            connection has them.
        tls: how to check the certificate of an `https` address; by default as the system does.
        body: of the request.

    Raises:
        OSError: the address does not accept connections, or the connection broke.
        HttpError: the address is not valid, or the reply is not HTTP or too long.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        # As the system will do it: a name with an empty or an overlong part is an error of another kind there.
        (parts.hostname or "").encode("idna")
    except (ValueError, KeyError) as error:
        raise HttpError(f"{url!r} is not an address of HTTP ({error})") from None
    secure = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure, limit=MOST_HEAD_BYTES)
    try:
        query = f"?{parts.query}" if parts.query else ""
        lines = [f"{method} {parts.path or '/'}{query} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        more = headers(_address(writer)) if callable(headers) else headers
        lines += [f"{name}: {value}" for name, value in (more or {}).items()]
        lines += [f"Content-Length: {len(body)}"] if body else []
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return await _reply(reader, most_bytes)
    except asyncio.IncompleteReadError:
        raise ConnectionError("the reply ends too early") from None
    except (asyncio.LimitOverrunError, ValueError) as error:
        raise HttpError(f"the reply is not HTTP ({error})") from None
    finally:
        # The reply is read, or nobody wants it any more: there is nothing to wait for.
        writer.transport.abort()


def _address(writer: asyncio.StreamWriter) -> str:
    """Where a connection ends there."""
    name = writer.get_extra_info("peername")
    if name is None:
        raise ConnectionError("the connection broke")
    return f"{name[0]} {name[1]}"


async def _reply(reader: asyncio.StreamReader, most_bytes: int) -> HttpReply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise HttpError(f"the reply is not HTTP/1.1: it begins with {first[:20]!r}")
    status, _, reason = rest.partition(" ")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader, most_bytes)
    elif "content-length" in fields:
        body = await reader.readexactly(_within(int(fields["content-length"]), most_bytes))
    else:
        body = await reader.read(most_bytes + 1)
        while more := await reader.read(_within(len(body), most_bytes) + 1):
            body += more
    return HttpReply(int(status), reason, body, fields.get(PROOF_HEADER.lower(), ""))


async def _chunks(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += (await reader.readexactly(_within(len(body) + size, most_bytes) - len(body) + 2))[:-2]
    return body


def _within(size: int, most_bytes: int) -> int:
    if not 0 <= size <= most_bytes:
        raise HttpError(f"the reply has {size:,} bytes, and {most_bytes:,} are read at most")
    return size
