"""Asks a broker of a network for its status over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.client import HttpError, admin_reply
from postroad.config import is_loopback

if TYPE_CHECKING:
    from postroad.client import AdminAccess
    from postroad.network.state import BrokerEntry

__all__ = ["BrokerReport", "ask"]

# A broker that is busy answers between two batches; one that does not in this time counts as hung.
ANSWER_SECONDS = 3.0
# A status lists up to 10,000 subscriptions with some 300 bytes each.
MOST_BYTES = 16 * 1024 * 1024


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the core counts."""

    sessions_now: int
    subscriptions_now: int
    accepted: int
    delivered: int


class NetworkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's part in its network."""

    links: dict[str, Any]
    relay: dict[str, Any]
    routing: dict[str, Any]


class BrokerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a broker's status that is looked at here."""

    broker: int
    ready: bool
    statistics: Counts
    network: NetworkReport | None

    @property
    def links_up(self) -> int:
        """Its links that the plan has and that work; those that only failures call for do not count."""
        return 0 if self.network is None else int(self.network.links.get("planned_links_up", 0))

    @property
    def parents(self) -> tuple[int, int] | None:
        """Its parent now and the planned one, 0 for none; None where its strategy knows no parents."""
        routing = {} if self.network is None else self.network.routing
        return (int(routing["parent"]), int(routing["planned_parent"])) if "planned_parent" in routing else None

    @property
    def reached(self) -> int | None:
        """The other brokers within its reach; None where its strategy does not know."""
        found = None if self.network is None else self.network.routing.get("reached")
        return None if found is None else int(found)

    @property
    def held(self) -> int:
        """Messages that wait for a way to another broker."""
        return 0 if self.network is None else int(self.network.relay.get("held_now", 0))

    @property
    def relayed(self) -> int:
        """Messages that it sent over its links."""
        if self.network is None:
            return 0
        return int(self.network.relay.get("sent", 0)) + int(self.network.relay.get("relayed", 0))


async def ask(entry: BrokerEntry, access: AdminAccess) -> BrokerReport | None:
    """The report of a broker; None when it does not answer."""
    # What is looked at here needs no token on this machine.
    shown = access._replace(token="") if is_loopback(entry.admin_host) else access
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reply = await admin_reply(f"{entry.admin}/status", MOST_BYTES, shown)
        return msgspec.json.decode(reply.body, type=BrokerReport)
    # Another program may have the port, and respond with anything.
    except (OSError, HttpError, ValueError):
        return None
