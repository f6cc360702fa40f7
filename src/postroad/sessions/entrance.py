"""Who may connect: how many from one address, and how many strangers at once. No sockets here.

A connection is a *stranger* until its CONNECT is answered, and also after a refusal before that. Strangers have places
of their own, so they never take those of clients (`limits.sessions`). When all places are taken, a newcomer takes the
place of the oldest stranger: of its own address, if that holds more than a quarter of the places, else of any address.
So an address that opens silent connections only ever cuts off itself.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from postroad.broker import Limits

__all__ = ["Arrival", "Entrance", "address_of"]

Key = TypeVar("Key")

# The share of all places for strangers that one address may hold before it displaces its own instead of others.
FAIR_PART = 4
# A household or a server gets this many bits of IPv6 addresses, and can use all of them.
_IPV6_PREFIX = 64


def address_of(peer: object) -> str:
    """Return the address that limits count by: an IPv4 address, or the 64-bit network of an IPv6 address."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


class Arrival(NamedTuple, Generic[Key]):
    """What to do about a new connection.

    Attributes:
        refusal: why it is not admitted; empty if it is.
        evicted: strangers whose place it takes.
    """

    refusal: str
    evicted: list[Key]


class Entrance(Generic[Key]):
    """The connections of one broker, from the moment they are accepted until they are closed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Addresses by connection, oldest first.
        self._addresses: dict[Key, str] = {}
        self._per_address: Counter[str] = Counter()
        self._strangers: dict[Key, None] = {}
        self._strangers_by_address: dict[str, dict[Key, None]] = {}
        self.refused = self.evicted = 0

    def take_limits(self, limits: Limits) -> None:
        """Use new limits for connections from now on."""
        self._limits = limits

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, key: Key) -> bool:
        return key in self._addresses

    @property
    def strangers(self) -> list[Key]:
        """Return those without a session, oldest first."""
        return list(self._strangers)

    @property
    def stranger_count(self) -> int:
        """Return how many have no session."""
        return len(self._strangers)

    @property
    def stranger_limit(self) -> int:
        """Return how many there may be."""
        return self._limits.strangers

    def arrive(self, key: Key, address: str) -> Arrival[Key]:
        """Take a connection that was accepted; unless it is refused, it is a stranger now."""
        most = self._limits.connections_per_address
        if self._per_address[address] >= most:
            self.refused += 1
            return Arrival(
                f"there are {most:,} connections from this address, the limit (limits.connections_per_address)", []
            )
        evicted = self._make_room(address)
        self._addresses[key] = address
        self._per_address[address] += 1
        self._strangers[key] = None
        self._strangers_by_address.setdefault(address, {})[key] = None
        return Arrival("", evicted)

    def _make_room(self, address: str) -> list[Key]:
        evicted = []
        while len(self._strangers) >= self._limits.strangers:
            own = self._strangers_by_address.get(address, {})
            oldest = next(iter(own if FAIR_PART * len(own) > self._limits.strangers else self._strangers))
            self.leave(oldest)
            self.evicted += 1
            evicted.append(oldest)
        return evicted

    @property
    def is_full(self) -> bool:
        """Return whether there is no room for another client."""
        return len(self._addresses) - len(self._strangers) >= self._limits.sessions

    def connect(self, key: Key) -> str:
        """Give a stranger a place as a client; return why not, or an empty text."""
        if self.is_full:
            self.refused += 1
            return (
                f"this broker has {self._limits.sessions:,} connections, its limit (limits.sessions); try another one"
            )
        self._forget_stranger(key)
        return ""

    def leave(self, key: Key) -> None:
        """Remove a connection that is gone or cut off; a second call does no harm."""
        self._forget_stranger(key)
        address = self._addresses.pop(key, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def _forget_stranger(self, key: Key) -> None:
        if key not in self._strangers:
            return
        del self._strangers[key]
        address = self._addresses[key]
        own = self._strangers_by_address[address]
        del own[key]
        if not own:
            del self._strangers_by_address[address]
