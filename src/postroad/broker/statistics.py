"""What a broker counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries

__all__ = ["BrokerStatistics", "statistics_of"]


class BrokerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, except if a field says "now"."""

    sessions_now: int
    subscriptions_now: int
    waiting_messages_now: int
    waiting_bytes_now: int
    stored_messages_now: int
    durable_now: int
    durable_away_now: int
    queues_now: int
    consumers_now: int
    queued_messages_now: int
    outgoing_messages_now: int
    uninformed_brokers_now: int
    former_versions_now: int
    former_versions_dropped: int
    unstored_messages_now: int
    retained_messages_now: int
    retained_cut: int
    replays_now: int
    unacknowledged_now: int
    paused_publishers_now: int
    accepted: int
    delivered: int
    matched_nobody: int
    shed_queue_full: int
    shed_session_closed: int
    shed_expired: int
    shed_stored: int
    acknowledged: int
    refused: int
    redelivered: int
    dead_lettered: int
    ids_skewed: int
    resent: int
    publishers_away_now: int
    index_constraints_now: int
    index_bytes_now: int
    subscription_bytes_now: int
    matching_work_now: int
    unfinished_messages_now: int


def statistics_of(core: Broker, deliveries: Deliveries, unmatched: int, unfinished: int) -> BrokerStatistics:
    """Return what a broker has counted.

    Args:
        core: the broker.
        deliveries: what was delivered.
        unmatched: how many messages nobody wanted.
        unfinished: how many wait to be matched.
    """
    sessions = core.sessions()
    subscriptions = [each for session in sessions for each in session.subscriptions.values()]
    durable = [] if core.durables is None else core.durables.listed()
    away = [each for each in durable if not each.session.number]
    queues = [] if core.queues is None else core.queues.listed()
    standing = None if core.peers is None else core.peers.standing
    index = core.index.statistics()
    return BrokerStatistics(
        sessions_now=len(sessions),
        subscriptions_now=len(subscriptions),
        waiting_messages_now=sum(each.waiting.messages for each in subscriptions),
        stored_messages_now=sum(each.waiting.stored for each in [*subscriptions, *away]),
        retained_messages_now=0 if core.store is None else core.retentions.rows,
        retained_cut=0 if core.store is None else core.retentions.cut,
        replays_now=0 if core.replaying is None else len(core.replaying),
        durable_now=len(durable),
        durable_away_now=len(away),
        queues_now=len(queues),
        consumers_now=sum(len(each.consumers) for each in queues),
        queued_messages_now=sum(each.holder.waiting.stored for each in queues),
        outgoing_messages_now=0 if core.peers is None else core.peers.outgoing.messages,
        uninformed_brokers_now=0 if standing is None else len(standing.uninformed),
        former_versions_now=0 if core.durables is None else len(core.durables.formers),
        former_versions_dropped=0 if core.durables is None else core.durables.formers.dropped,
        unstored_messages_now=0 if core.store is None else core.store.backlog.messages,
        waiting_bytes_now=sum(each.waiting.bytes for each in subscriptions),
        unacknowledged_now=sum(len(each.unacknowledged) for each in subscriptions),
        paused_publishers_now=sum(session.paused for session in sessions),
        accepted=core.publications.accepted,
        delivered=deliveries.delivered,
        matched_nobody=unmatched,
        shed_queue_full=deliveries.shed_full,
        shed_session_closed=deliveries.shed_closed,
        shed_expired=deliveries.shed_expired,
        shed_stored=0 if core.store is None else core.store.shed,
        acknowledged=deliveries.acknowledgements.acknowledged,
        refused=deliveries.acknowledgements.refused,
        redelivered=0 if core.redeliveries is None else core.redeliveries.count,
        dead_lettered=0 if core.queues is None else core.queues.returns.dead_lettered,
        ids_skewed=core.publications.ids_skewed,
        resent=core.publications.resent,
        publishers_away_now=core.publications.away,
        index_constraints_now=index.constraints,
        index_bytes_now=index.bytes,
        subscription_bytes_now=core.budgets.bytes,
        matching_work_now=core.budgets.work,
        unfinished_messages_now=unfinished,
    )
