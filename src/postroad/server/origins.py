"""Which web pages may connect over WebSocket. A browser says in `Origin` which page connects; programs send none.

Without this check any page that a person on this network opens could talk to the broker with that person's rights
of way. By default a page may connect if it was loaded from the broker's own host, whatever the port. Where the name of
that host proves nothing, because a page's owner can make any of its names lead to any address, more is required: over
TLS the browser has checked the certificate; without TLS the host has to be an address, or a name of this machine.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ANY_ORIGIN", "allows_origin"]

ANY_ORIGIN = "*"
_LOCAL_NAMES = ("localhost",)


def allows_origin(origin: str | None, host: str, listed: Collection[str], tls: bool) -> bool:
    """Whether a page may connect.

    Args:
        origin: the header `Origin`; None if there is none.
        host: the header `Host`: what the client calls this broker.
        listed: the origins of the settings.
        tls: whether the connection is over TLS.
    """
    if origin is None or ANY_ORIGIN in listed or origin in listed:
        return True
    page, ours = _name(origin), _name(f"//{host}")
    if page is None or page != ours:
        return False
    return tls or page in _LOCAL_NAMES or _is_address(page)


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
