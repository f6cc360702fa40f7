"""Makes the routing strategy that a plan names, for one broker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.routing import Cluster, Drp, Flood, Tree, UnicastRoutes
from postroad.routing.seen_ids import FIXED_SECRET
from postroad.selectors import TopicPattern
from postroad.topology import Settings, Station

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.routing import Strategy
    from postroad.routing.link_state_records import Seals
    from postroad.topology import Plan, StrategyName

__all__ = ["make_strategy", "make_unicast", "order_wait", "planned_strategy"]


def make_strategy(
    kind: StrategyName,
    number: int,
    now: int,
    *,
    station: Station | None = None,
    settings: Settings | None = None,
    custody: bool = False,
    seals: Seals | None = None,
    secret: int = FIXED_SECRET,
) -> Strategy:
    """Make one broker's routing strategy.

    Args:
        kind: the strategy's name in plans.
        number: this broker.
        now: when it starts, in ms.
        station: its place (`tree`, `cluster`).
        settings: what the network agreed on.
        custody: nothing that was accepted may be lost with a broker on the way.
        seals: signs and checks the records of brokers (`drp`); None if they are not signed.
        secret: 64 random bits for the hash of the window of ids, if ids are not trusted.
    """
    settings = settings or Settings()
    if custody:
        settings = msgspec.structs.replace(
            settings,
            # A copy of a broadcast ends where another one came first, and is then settled although that one is still
            # under way. A set stays open until all its brokers have it.
            broadcast_threshold=1.0,
        )
    return _KINDS[kind].make(_Wish(number, now, station or Station(), settings, seals, secret))


def make_unicast(
    kind: StrategyName, number: int, now: int, *, settings: Settings | None = None, seals: Seals | None = None
) -> UnicastRoutes | None:
    """Make one broker's routes to single brokers; None for a strategy that has them itself.

    Args:
        kind: the strategy's name in plans.
        number: this broker.
        now: when it starts, in ms.
        settings: what the network agreed on.
        seals: signs and checks the records of brokers; None if they are not signed.
    """
    if _KINDS[kind].keeps_link_state:
        return None
    settings = settings or Settings()
    return UnicastRoutes(number, now, refresh_ms=settings.refresh_ms, lifetime_ms=settings.lifetime_ms, seals=seals)


class _Wish(NamedTuple):
    """What a strategy may be made from."""

    number: int
    now: int
    station: Station
    settings: Settings
    seals: Seals | None
    secret: int


def _drp(wish: _Wish) -> Strategy:
    settings = wish.settings
    return Drp(
        wish.number,
        wish.now,
        broadcast_threshold=settings.broadcast_threshold,
        window=settings.window,
        secret=wish.secret,
        refresh_ms=settings.refresh_ms,
        lifetime_ms=settings.lifetime_ms,
        seals=wish.seals,
    )


def _flood(wish: _Wish) -> Strategy:
    return Flood(wish.number, wish.now, window=wish.settings.window, secret=wish.secret)


def _hierarchical(made: type[Tree | Cluster], wish: _Wish) -> Strategy:
    settings = wish.settings
    silence = settings.heartbeat_ms * settings.missed_heartbeats
    # Both ends of a lost link must have noticed, plus the same time to attach; a parent is tried for two heart-beats.
    return made(
        wish.number,
        wish.now,
        wish.station,
        _matcher,
        window=settings.window,
        secret=wish.secret,
        grace_ms=2 * silence,
        patience_ms=2 * settings.heartbeat_ms,
    )


class _Kind(NamedTuple):
    """How a strategy is made, and whether it knows the routes to single brokers by itself."""

    make: Callable[[_Wish], Strategy]
    keeps_link_state: bool = False


# One row per strategy; `topology.StrategyName` lists the names.
_KINDS: dict[StrategyName, _Kind] = {
    "drp": _Kind(_drp, keeps_link_state=True),
    "flood": _Kind(_flood),
    "tree": _Kind(partial(_hierarchical, Tree)),
    "cluster": _Kind(partial(_hierarchical, Cluster)),
}


def order_wait(settings: Settings) -> int:
    """Return how long rows wait for earlier ones after routes have changed, in ms; 0 if order is not asked for.

    As long as a fail-over takes: a neighbour counts as dead after some missed heart-beats; what it has not confirmed
    goes another way after one more; and one is for the journey.
    """
    return (settings.missed_heartbeats + 2) * settings.heartbeat_ms if settings.order == "publisher" else 0


def planned_strategy(plan: Plan) -> Callable[[int, int], Strategy]:
    """Return a function that makes the strategy of any broker of a plan from its number and the time."""
    stations = plan.hierarchy().stations

    def make(number: int, now: int) -> Strategy:
        return make_strategy(
            plan.strategy,
            number,
            now,
            station=stations[number],
            settings=plan.settings,
            custody=plan.delivery == "custody",
        )

    return make


def _matcher(pattern: str) -> Callable[[str], bool]:
    return TopicPattern.parse(pattern).matches
