"""Where a server is: `stomp://host:port`, or `stomps://host:port` for TLS."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from postroad.client.errors import ClientError

__all__ = ["DEFAULT_SERVER", "Address", "parse_address"]

# The ports that brokers customarily listen on for STOMP, plain and over TLS.
_PORTS = {"stomp": 61613, "stomps": 61614}

DEFAULT_SERVER = "stomp://127.0.0.1:61613"


class Address(NamedTuple):
    """A host, a port, and whether to speak TLS there."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'stomps' if self.tls else 'stomp'}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        ClientError: it is not one; the error shows how one is written.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        # As the system will do it: a name with an empty or an overlong part is an error of another kind there.
        (host or "").encode("idna")
    except ValueError as error:
        raise ClientError(f"server {text!r}: {error}; write it like {DEFAULT_SERVER}") from None
    if parts.username is not None or parts.password is not None:
        # Not shown: it would put a passcode into logs.
        raise ClientError("an address holds no login and passcode; give them apart from it")
    if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise ClientError(f"server {text!r}: write it like {DEFAULT_SERVER}, or stomps://… for TLS")
    return Address(host, _PORTS[parts.scheme] if port is None else port, parts.scheme == "stomps")
