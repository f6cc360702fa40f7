"""Asks a broker of a network for its status over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

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


# What a broker counts in 64 bits; a number beyond that is not a count, and cannot be divided by a time.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the core counts."""

    sessions_now: Count
    subscriptions_now: Count
    accepted: Count
    delivered: Count


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """Its links together."""

    planned_links_up: Count = 0


class RelayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that went over them."""

    held_now: Count = 0
    sent: Count = 0
    relayed: Count = 0


class RoutingReport(msgspec.Struct, frozen=True, kw_only=True):
    """What its strategy says about itself; None if it does not know such a thing."""

    parent: Count = 0
    planned_parent: Count | None = None
    reached: Count | None = None


class NetworkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's part in its network."""

    links: LinkReport
    relay: RelayReport
    routing: RoutingReport


class BrokerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a broker's status that is looked at here."""

    broker: int
    ready: bool
    statistics: Counts
    network: NetworkReport | None

    @property
    def links_up(self) -> int:
        """Its links that the plan has and that work; those that only failures call for do not count."""
        return 0 if self.network is None else self.network.links.planned_links_up

    @property
    def parents(self) -> tuple[int, int] | None:
        """Its parent now and the planned one, 0 for none; None if its strategy knows no parents."""
        routing = None if self.network is None else self.network.routing
        planned = None if routing is None else routing.planned_parent
        return None if routing is None or planned is None else (routing.parent, planned)

    @property
    def reached(self) -> int | None:
        """The other brokers within its reach; None if its strategy does not know."""
        return None if self.network is None else self.network.routing.reached

    @property
    def held(self) -> int:
        """Messages that wait for a way to another broker."""
        return 0 if self.network is None else self.network.relay.held_now

    @property
    def relayed(self) -> int:
        """Messages that it sent over its links."""
        return 0 if self.network is None else self.network.relay.sent + self.network.relay.relayed


async def ask(entry: BrokerEntry, access: AdminAccess) -> BrokerReport | None:
    """The report of a broker; None when it does not answer."""
    # What is looked at here needs no token on this machine.
    shown = access._replace(token="") if is_loopback(entry.admin_host) else access
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reply = await admin_reply(f"{entry.admin}/status", MOST_BYTES, shown)
        return msgspec.json.decode(reply.body, type=BrokerReport)
    # Another program may have the port, and respond with anything, also with brackets nested without end.
    except (OSError, HttpError, ValueError, RecursionError):
        return None
