"""Connections that have not proved who they are: so many are kept, and a new one takes the place of an old one.

Whoever is turned away at a full door is as likely the neighbour that everybody waits for as the stranger who fills it.
So nobody is turned away: the oldest of the address with the most connections goes. Addresses from which neighbours come
have places of their own, which no other address can take.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_STRANGERS", "Strangers", "crowd_of"]

# Each may hold a file and a kilobyte for as long as a handshake may take; and as many from neighbours' addresses.
MOST_STRANGERS = 64
# Who has one address of IPv6 has all of its network.
_IPV6_PREFIX = 64

Key = TypeVar("Key")


class Strangers(Generic[Key]):
    """Who is at the door.

    Args:
        neighbours: addresses from which neighbours come, as far as they are known; names are left out.
        most: places for neighbours' addresses, and places for all others.
    """

    def __init__(self, neighbours: Iterable[str] = (), most: int = MOST_STRANGERS) -> None:
        self._reserved = {crowd_of(address) for address in neighbours}
        self._most = most
        self._waiting: tuple[dict[Key, str], dict[Key, str]] = ({}, {})

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def admit(self, key: Key, address: str) -> Key | None:
        """A connection came; returns the one that has to go for it, if any."""
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
        """A connection is gone, or has proved who it is."""
        for waiting in self._waiting:
            waiting.pop(key, None)

    def reserve(self, address: str) -> None:
        """A neighbour came from here, and may do so again."""
        self._reserved.add(crowd_of(address))


def crowd_of(address: str) -> str:
    """What an address is counted as: itself, or its network where one host has many."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(read, ipaddress.IPv6Address):
        if read.ipv4_mapped is not None:
            return str(read.ipv4_mapped)
        return str(ipaddress.ip_network((read, _IPV6_PREFIX), strict=False))
    return str(read)
