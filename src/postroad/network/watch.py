"""Polls the brokers of a network, and compares each status with the one before."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.client import AdminAccess
from postroad.network.processes import is_alive
from postroad.network.status_request import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from postroad.network.state import BrokerEntry
    from postroad.network.status_request import BrokerReport

__all__ = ["BrokerView", "Condition", "NetworkWatch", "missing"]

# Brokers that are asked at once: each takes a connection, and one answer at a time is read anyway.
ASKED_AT_ONCE = 32


class Condition(StrEnum):
    """What a broker is seen to be."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    SILENT = "silent"
    DEAD = "dead"


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """One broker as it was seen last.

    Attributes:
        broker: its number.
        address: where clients connect.
        admin: the address of its admin endpoint.
        pid: its process; None before it is started.
        condition: `degraded` means that clients can connect, and some links are down or the parent is not the planned
            one.
        links_up: links that the plan has and that work.
        links_planned: links that the plan has.
        reached: the other brokers within reach; None if the broker does not respond.
        parent: the broker it is attached to, 0 for none; None if the strategy has no parents.
        planned_parent: whom the plan attaches it to, in the same way.
        sessions: clients.
        subscriptions: theirs.
        accepted: messages from clients since the start.
        delivered: messages to clients.
        relayed: messages to other brokers.
        held: messages that wait for a way to another broker.
        in_per_second: accepted, recently.
        out_per_second: delivered and relayed, recently.
        restarts: how often it died and was started again.
        given_up: it died too often, and is started no more.
    """

    broker: int
    address: str
    admin: str
    pid: int | None
    condition: Condition
    links_up: int = 0
    links_planned: int = 0
    reached: int | None = None
    parent: int | None = None
    planned_parent: int | None = None
    sessions: int = 0
    subscriptions: int = 0
    accepted: int = 0
    delivered: int = 0
    relayed: int = 0
    held: int = 0
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    restarts: int = 0
    given_up: bool = False


class NetworkWatch:
    """Asks the brokers of a network.

    Args:
        clock: seconds that only go forward.
        access: reads what it takes to ask them, before each look: their token may change.
    """

    def __init__(self, clock: Callable[[], float], access: Callable[[], AdminAccess] = AdminAccess) -> None:
        self._clock = clock
        self._access = access
        self._last: dict[int, tuple[float, int, int]] = {}
        self._seen: set[int] = set()

    async def look(self, entries: Iterable[BrokerEntry]) -> list[BrokerView]:
        """Ask all of them, now; returns in their order."""
        turns = asyncio.Semaphore(ASKED_AT_ONCE)
        access = self._access()

        async def one(entry: BrokerEntry) -> BrokerView:
            async with turns:
                report = await ask(entry, access)
            return self._view(entry, report if report is not None and report.broker == entry.number else None)

        return list(await asyncio.gather(*(one(entry) for entry in entries)))

    def _view(self, entry: BrokerEntry, report: BrokerReport | None) -> BrokerView:
        given: dict[str, Any] = {
            "broker": entry.number,
            "address": entry.address,
            "admin": entry.admin,
            "pid": None if entry.process is None else entry.process.pid,
            "links_planned": entry.links,
            "restarts": entry.restarts,
            "given_up": entry.given_up,
        }
        if report is None:
            return BrokerView(condition=self._silence(entry), **given)
        self._seen.add(entry.number)
        condition = Condition.STARTING if not report.ready else Condition.READY
        parent, planned_parent = report.parents or (None, None)
        if report.ready and (report.links_up < entry.links or parent != planned_parent):
            condition = Condition.DEGRADED
        counts = report.statistics
        incoming, outgoing = counts.accepted, counts.delivered + report.relayed
        in_rate, out_rate = self._rates(entry.number, incoming, outgoing)
        return BrokerView(
            condition=condition,
            links_up=report.links_up,
            reached=report.reached,
            parent=parent,
            planned_parent=planned_parent,
            sessions=counts.sessions_now,
            subscriptions=counts.subscriptions_now,
            accepted=counts.accepted,
            delivered=counts.delivered,
            relayed=report.relayed,
            held=report.held,
            in_per_second=in_rate,
            out_per_second=out_rate,
            **given,
        )

    def _silence(self, entry: BrokerEntry) -> Condition:
        if entry.process is None or not is_alive(entry.process):
            return Condition.DEAD
        return Condition.SILENT if entry.number in self._seen else Condition.STARTING

    def _rates(self, broker: int, incoming: int, outgoing: int) -> tuple[float, float]:
        now = self._clock()
        then, was_in, was_out = self._last.get(broker, (now, incoming, outgoing))
        self._last[broker] = (now, incoming, outgoing)
        # A broker that was started again counts from 0.
        if now <= then or incoming < was_in or outgoing < was_out:
            return 0.0, 0.0
        return (incoming - was_in) / (now - then), (outgoing - was_out) / (now - then)


def missing(views: Sequence[BrokerView]) -> list[str]:
    """What keeps a network from being up: every broker is ready, as the plan has it, and knows every other broker."""
    found = []
    for view in views:
        if view.condition is Condition.DEGRADED:
            found.append(f"broker {view.broker}: degraded ({'; '.join(_deviations(view))})")
        elif view.condition is not Condition.READY:
            found.append(f"broker {view.broker}: {view.condition}")
        elif view.reached is not None and view.reached < len(views) - 1:
            found.append(f"broker {view.broker}: knows {view.reached} of {len(views) - 1} others")
    return found


def _deviations(view: BrokerView) -> list[str]:
    """How a broker differs from the plan."""
    found = []
    if view.links_up < view.links_planned:
        found.append(f"{view.links_up} of {view.links_planned} links")
    if view.parent != view.planned_parent:
        found.append(f"its parent is {view.parent or 'none'}, planned is {view.planned_parent or 'none'}")
    return found
