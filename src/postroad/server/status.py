"""What a broker says about itself, for people and programs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

import postroad

if TYPE_CHECKING:
    from postroad.broker import BrokerStatistics, Limits, Session, Subscription
    from postroad.server.capacity_watch import CapacityStatus
    from postroad.server.counts import LinkStatistics, QuarantineStatus, ServerStatistics
    from postroad.server.service import Service

__all__ = ["NetworkStatus", "SessionStatus", "Status", "SubscriptionStatus", "status", "without_people"]

# The answer stays within some megabytes, and its making within some tens of milliseconds; the counts are of all,
# whatever is left out here.
MOST_SESSIONS = 1_000
MOST_SUBSCRIPTIONS = 2_000
# Of their ids, topics and selectors: a selector may have 32 KiB.
MOST_TEXT = 1024 * 1024

_STARTED = time.monotonic()


class SubscriptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription. Counts since it began."""

    number: int
    key: str
    topic: str
    selector: str
    ack: str
    overflow: str
    waiting_messages_now: int
    waiting_bytes_now: int
    unacknowledged_now: int
    delivered: int
    acknowledged: int
    refused: int
    shed: int
    expired: int


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    number: int
    principal: str
    address: str
    protocol: str
    congested: bool
    paused: bool
    accepted: int
    subscriptions: list[SubscriptionStatus]


class NetworkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's part in its network.

    Attributes:
        name: of the network.
        strategy: how messages find their way.
        delivery: what a crash may lose.
        links: counts of the links together.
        neighbours: and of each.
        quarantined: neighbours that are kept out because of what they sent.
        relay: counts of the messages that went over them.
        routing: what the strategy says about itself; with `drp`, `reached` counts the other brokers within reach.
    """

    name: str
    strategy: str
    delivery: str
    links: dict[str, int]
    neighbours: list[LinkStatistics]
    quarantined: list[QuarantineStatus]
    relay: dict[str, int]
    routing: dict[str, int]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One broker. `left_out` counts the sessions and subscriptions that are not listed; `time` is by its clock."""

    version: str
    broker: int
    time: int
    ready: bool
    process_seconds: float
    statistics: BrokerStatistics
    server: ServerStatistics
    limits: Limits
    sessions: list[SessionStatus]
    left_out: dict[str, int]
    network: NetworkStatus | None
    tracking: dict[str, int | str] | None
    store: dict[str, int | str] | None
    capacity: CapacityStatus


def status(service: Service) -> Status:
    """The state of a broker now."""
    core = service.dispatcher.core
    statistics = core.statistics()
    sessions: list[SessionStatus] = []
    listed, texts = 0, 0
    for session in core.sessions()[:MOST_SESSIONS]:
        shown = []
        for each in session.subscriptions.values():
            texts += len(each.key) + len(each.topic) + len(each.selector)
            if listed == MOST_SUBSCRIPTIONS or texts > MOST_TEXT:
                break
            shown.append(_subscription(each))
            listed += 1
        sessions.append(_session(session, service.clients.connection_of(session.number), shown))
    return Status(
        version=postroad.__version__,
        broker=core.number,
        time=service.dispatcher.clock(),
        ready=service.is_ready,
        process_seconds=round(time.monotonic() - _STARTED, 3),
        statistics=statistics,
        server=service.server_statistics(),
        limits=core.limits,
        sessions=sessions,
        left_out={
            "sessions": statistics.sessions_now - len(sessions),
            "subscriptions": statistics.subscriptions_now - listed,
        },
        network=_network(service),
        tracking=_tracking(service),
        store=_store(service),
        capacity=service.capacity.status,
    )


def without_people(status: Status) -> Status:
    """The same without sessions, whose principals and subscriptions are not public; they are counted."""
    subscriptions = sum(len(session.subscriptions) for session in status.sessions)
    left_out = {
        "sessions": status.left_out["sessions"] + len(status.sessions),
        "subscriptions": status.left_out["subscriptions"] + subscriptions,
    }
    return msgspec.structs.replace(status, sessions=[], left_out=left_out)


def _tracking(service: Service) -> dict[str, int | str] | None:
    tracking = service.tracking
    if tracking is None:
        return None
    troubles = {"trouble": tracking.trouble, "ship_trouble": tracking.ship_trouble}
    return {**troubles, **{name: int(count) for name, count in tracking.statistics().items()}}


def _store(service: Service) -> dict[str, int | str] | None:
    log = service.storage.log
    if log is None:
        return None
    return {"trouble": log.trouble, **msgspec.structs.asdict(log.statistics())}


def _network(service: Service) -> NetworkStatus | None:
    config, links, relay = service.config.network, service.links, service.dispatcher.core.relay
    if config is None or links is None or relay is None:
        return None
    return NetworkStatus(
        name=config.name,
        strategy=config.strategy,
        delivery=config.delivery,
        links=links.statistics(),
        neighbours=links.neighbours(),
        quarantined=links.quarantined(),
        relay=relay.statistics()._asdict(),
        routing=relay.routing_statistics(),
    )


def _session(session: Session, connection: tuple[str, str], shown: list[SubscriptionStatus]) -> SessionStatus:
    address, protocol = connection
    return SessionStatus(
        number=session.number,
        principal=session.principal,
        address=address,
        protocol=protocol,
        congested=session.congested,
        paused=session.paused,
        accepted=session.accepted,
        subscriptions=shown,
    )


def _subscription(subscription: Subscription) -> SubscriptionStatus:
    return SubscriptionStatus(
        number=subscription.number,
        key=subscription.key,
        topic=subscription.topic,
        selector=subscription.selector,
        ack=subscription.ack_mode.value,
        overflow=subscription.policy.value,
        waiting_messages_now=subscription.waiting.messages,
        waiting_bytes_now=subscription.waiting.bytes,
        unacknowledged_now=len(subscription.unacknowledged),
        delivered=subscription.delivered,
        acknowledged=subscription.acknowledged,
        refused=subscription.refused,
        shed=subscription.shed,
        expired=subscription.expired,
    )
