"""What a broker counts."""

from __future__ import annotations

import msgspec

__all__ = ["BrokerStatistics"]


class BrokerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, except where a field says "now"."""

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
    retained_messages_now: int
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
