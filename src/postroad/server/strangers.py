"""Connections that have not proved who they are: a bounded number; at the limit a new one replaces an old one.

Refusing new connections at the limit would keep out the awaited neighbour as likely as the attacker. So new ones are
always admitted, and the oldest connection of the address with the most of them is closed. Addresses of neighbours have
their own places, which no other address can take.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_STRANGERS", "Strangers", "crowd_of"]

# Each may hold a file and a kilobyte for as long as a handshake may take. Neighbours' addresses have as many again.
MOST_STRANGERS = 64
# A client with one IPv6 address has its whole network.
_IPV6_PREFIX = 64

Key = TypeVar("Key")


class Strangers(Generic[Key]):
    """The connections that have not proved who they are.

    Args:
        neighbours: known addresses of neighbours; names do not count.
        most: places for neighbours' addresses, and places for all others.
    """

    def __init__(self, neighbours: Iterable[str] = (), most: int = MOST_STRANGERS) -> None:
        self._reserved = {crowd_of(address) for address in neighbours}
        self._most = most
        self._waiting: tuple[dict[Key, str], dict[Key, str]] = ({}, {})

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def admit(self, key: Key, address: str) -> Key | None:
        """Admit a connection; returns the one to close for it, if any."""
        crowd = crowd_of(address)
        waiting = self._waiting[crowd in self._reserved]
        evicted = None
        if len(waiting) >= self._most:
            largest, _ = Counter(waiting.values()).most_common(1)[0]
            evicted = next(one for one, its in waiting.items() if its == largest)
            del waiting[evicted]
        waiting[key] = crowd
        return evicted

    def leave(self, key: Key) -> None:
        """Remove a connection that is closed or has proved who it is."""
        for waiting in self._waiting:
            waiting.pop(key, None)

    def reserve(self, address: str) -> None:
        """Remember the address of a neighbour."""
        self._reserved.add(crowd_of(address))


def crowd_of(address: str) -> str:
    """What an address counts as: itself, or its network where one host has many addresses."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(read, ipaddress.IPv6Address):
        if read.ipv4_mapped is not None:
            return str(read.ipv4_mapped)
        return str(ipaddress.ip_network((read, _IPV6_PREFIX), strict=False))
    return str(read)
