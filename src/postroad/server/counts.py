"""What the server counts besides the core's own counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from postroad.server.clients import Clients
    from postroad.sessions import Audit

__all__ = ["LinkStatistics", "QuarantineStatus", "ServerStatistics", "server_counts"]


class ServerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, except where a field says "now".

    Attributes:
        connections_now, connections: accepted and not closed; accepted.
        connections_turned_away: refused for `connections_per_address` or `sessions`.
        strangers_now: connections without an answered CONNECT.
        strangers_evicted: those that gave their place to others.
        held_bytes_now: what counts for `memory_bytes`, or a little more.
        received_bytes, sent_bytes: over the connections of clients, without what TLS adds.
        connections_relieved: cut off because `memory_bytes` was used up.
        logins_refused: wrong logins or passcodes.
        logins_delayed: not looked at, because others from the address were wrong or too many are being checked.
        subscriptions_refused, publications_refused: by a policy, or because they are not valid.
        origins_refused: web pages that may not connect.
        admin_requests_refused: without the token that they need.
        internal_errors: defects that closed a connection.
    """

    connections_now: int
    connections: int
    connections_turned_away: int
    strangers_now: int
    strangers_evicted: int
    held_bytes_now: int
    received_bytes: int
    sent_bytes: int
    connections_relieved: int
    logins_refused: int
    logins_delayed: int
    subscriptions_refused: int
    publications_refused: int
    origins_refused: int
    admin_requests_refused: int
    internal_errors: int


def server_counts(clients: Clients, audit: Audit) -> ServerStatistics:
    """What is counted of connections, by now."""
    return ServerStatistics(
        connections_now=len(clients),
        connections=clients.opened_count,
        connections_turned_away=clients.entrance.refused,
        strangers_now=clients.entrance.stranger_count,
        strangers_evicted=clients.entrance.evicted,
        held_bytes_now=clients.holdings.total,
        received_bytes=clients.received_bytes,
        sent_bytes=clients.sent_bytes,
        connections_relieved=clients.relieved_count,
        logins_refused=audit.counts["login refused"],
        logins_delayed=audit.counts["login delayed"],
        subscriptions_refused=audit.counts["subscription refused"],
        publications_refused=audit.counts["publication refused"],
        origins_refused=audit.counts["origin refused"],
        admin_requests_refused=audit.counts["admin request refused"],
        internal_errors=clients.internal_errors,
    )


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One link. Counts since the start, except where a field says "now".

    Attributes:
        neighbour: the broker at the other end.
        up_now: whether it works.
        crowded_now: local publishers wait for room. sent_messages, sent_frames: given to the link.
        resent_frames: sent again after a cut.
        returned_frames: taken back, to take another route.
        shed_messages: did not fit.
        held_messages_now, held_frames_now, held_bytes_now: kept until the neighbour has them (custody: is done with
            them).
        sent_bytes, received_bytes: over its connections, without what TLS adds.
        received_frames: came from the neighbour.
        repeated_frames: came although they had come before.
        unsettled_frames_now: came, and this broker is not done with them.
        restarts: how often the neighbour came back as another process.
        refusals: what the neighbour sent that is not believed.
        quarantines: how often its link was closed for that, and kept closed.
        quarantined_now: whether it is.
    """

    neighbour: int
    up_now: bool
    crowded_now: bool
    sent_messages: int
    sent_frames: int
    resent_frames: int
    returned_frames: int
    shed_messages: int
    held_messages_now: int
    held_frames_now: int
    held_bytes_now: int
    sent_bytes: int
    received_bytes: int
    received_frames: int
    repeated_frames: int
    unsettled_frames_now: int
    restarts: int
    refusals: int
    quarantines: int
    quarantined_now: bool


class QuarantineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A neighbour that is kept out because of what it sent."""

    neighbour: int
    seconds_left: float
    reason: str
