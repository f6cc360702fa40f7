"""The strategy that a plan names, for one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.routing.cluster import Cluster
from postroad.routing.drp import Drp
from postroad.routing.flood import Flood
from postroad.routing.tree import Tree
from postroad.routing.window import FIXED_SECRET
from postroad.selectors import TopicPattern
from postroad.topology import Settings, Station

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.routing.contract import Interested, Strategy
    from postroad.routing.records import Seals
    from postroad.topology import Plan, Strategies

__all__ = ["make_strategy", "order_wait", "planned_strategy"]


def make_strategy(
    kind: Strategies,
    number: int,
    now: int,
    interested: Interested,
    *,
    station: Station | None = None,
    settings: Settings | None = None,
    custody: bool = False,
    seals: Seals | None = None,
    secret: int = FIXED_SECRET,
) -> Strategy:
    """One broker's way of routing.

    Args:
        kind: the strategy's name in plans.
        number: this broker.
        now: when it starts, in ms.
        interested: which brokers want each row of a batch (`drp`).
        station: its place (`tree`, `cluster`).
        settings: what the network agreed on.
        custody: nothing that was accepted may be lost with a broker in between.
        seals: signs and checks the records of brokers (`drp`); None where they are not signed.
        secret: 64 random bits for the hash of the window of ids, where ids are not trusted.
    """
    settings = settings or Settings()
    if custody:
        settings = msgspec.structs.replace(
            settings,
            # A copy of a broadcast ends where another one came first, and is then settled although that one is still
            # on its way. A set stays open until all its brokers have it.
            broadcast_threshold=1.0,
        )
    station = station or Station()
    if kind == "drp":
        return Drp(
            number,
            now,
            interested,
            broadcast_threshold=settings.broadcast_threshold,
            window=settings.window,
            secret=secret,
            refresh_ms=settings.refresh_ms,
            lifetime_ms=settings.lifetime_ms,
            seals=seals,
        )
    if kind == "flood":
        return Flood(number, now, window=settings.window, secret=secret)
    silence = settings.heartbeat_ms * settings.missed_heartbeats
    made = Tree if kind == "tree" else Cluster
    # Both ends of a lost link must have noticed, and as much again to attach; a parent is tried for two heart-beats.
    return made(
        number,
        now,
        station,
        _matcher,
        window=settings.window,
        secret=secret,
        grace_ms=2 * silence,
        patience_ms=2 * settings.heartbeat_ms,
    )


def order_wait(settings: Settings) -> int:
    """How long rows wait for earlier ones after ways have changed, in ms; 0 when order is not asked for.

    As long as a fail-over takes: a neighbour counts as dead after so many heart-beats, what it has not confirmed goes
    another way after one more, and one is for the way.
    """
    return (settings.missed_heartbeats + 2) * settings.heartbeat_ms if settings.order == "publisher" else 0


def planned_strategy(plan: Plan) -> Callable[[int, int, Interested], Strategy]:
    """Makes the strategy of any broker of a plan: from its number, the time, and which brokers want a row."""
    stations = plan.hierarchy().stations

    def make(number: int, now: int, interested: Interested) -> Strategy:
        return make_strategy(
            plan.strategy,
            number,
            now,
            interested,
            station=stations[number],
            settings=plan.settings,
            custody=plan.delivery == "custody",
        )

    return make


def _matcher(pattern: str) -> Callable[[str], bool]:
    return TopicPattern.parse(pattern).matches
