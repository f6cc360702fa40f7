"""What does not work as it should while a broker runs, in words for `/health`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker import Broker
    from postroad.server.counts import QuarantineStatus

__all__ = ["quarantines", "troubles"]

# Brokers that are named; the others are counted.
MAX_NAMED = 10


def troubles(record: str, store: str, core: Broker, now: int) -> list[str]:
    """Return what is wrong.

    Args:
        record: why the record is not kept; empty if it is.
        store: why the store takes nothing; empty if it does.
        core: the broker.
        now: the time in ms.
    """
    found = [f"{where}: {what}" for where, what in (("tracking", record), ("store", store)) if what]
    standing = None if core.peers is None else core.peers.standing
    late = [] if standing is None else standing.late(now)
    if late:
        found.append(
            f"durable subscriptions: {len(late)} brokers ({', '.join(map(str, late[:MAX_NAMED]))}) can be reached, and "
            "do not know what is wanted here; messages that they accept may be missed: check that all brokers have "
            "this version and the same network.brokers"
        )
    return found


def quarantines(barred: Iterable[QuarantineStatus]) -> list[str]:
    """Return which neighbours are in quarantine."""
    return [
        f"links: broker {one.neighbour} is in quarantine for {one.seconds_left:.0f} s: {one.reason}" for one in barred
    ]
