"""The limits of one broker, with their reasons. All can be set; all show in `statistics()`."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["Limits"]

# Zero would block everyone, or make them wait for ever.
Some = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one broker keeps at most.

    Attributes:
        queue_messages: messages that wait for one subscription. At 250 bytes a message a full queue is about as much
            as a socket buffer holds a few times over: enough for a pause, not for an outage.
        queue_bytes: the same in bytes, for large messages.
        spool_memory_bytes: what waits in memory for one subscription that spools, with the columns of the messages;
            what is more waits on disk. Some seconds of a busy publisher: disks are for outages, memory for bursts.
        session_queue_messages: messages that wait for all subscriptions of one session together: ten full queues, so
            that one client with thousands of subscriptions that stops reading does not use up the broker's memory.
        session_queue_bytes: the same in bytes; four full queues.
        unacknowledged: messages sent and not yet acknowledged, per subscription in a client mode. ActiveMQ's prefetch
            for topics is 32,766; a tenth of it bounds memory and still covers a round trip.
        sessions: connections at once; each costs a few kilobytes and a file descriptor.
        strangers: connections at once that have not said CONNECT, or said it wrongly; the oldest give way. As many as
            come within a second when a crowd of clients reconnects.
        connections_per_address: connections at once from one address, so that one machine cannot take all of
            `sessions`; raise it for a proxy that all clients come through.
        memory_bytes: what all clients together make the broker hold: unfinished frames, open transactions, queues, and
            what sockets have not taken. Some fifteen sessions with full queues, or a thousand with full sockets.
        subscriptions_per_session: one client cannot fill the index alone.
        session_subscription_bytes: what the subscriptions of one session are estimated to take: 15,000 ordinary ones,
            or 250 selectors of full length.
        subscription_bytes: the same for all sessions together: some 480,000 ordinary subscriptions. The broker uses it
            up only if 32 sessions use up theirs.
        session_matching_ms: about how long matching one message may take because of one session's subscriptions, when
            the message is the worst that could come: some 250 different LIKE patterns, or 5,000,000 equalities.
        matching_ms: the same for all sessions together. A single message is matched in one piece, so this is the
            longest that one message can hold up everything else.
        turn_ms: about how long matching and delivering the messages of one read may take before others get their turn.
            A few times what a busy read takes, so that batches are cut only when something is wrong with them.
        publishers_kept: publishers with ids of their own whose connection is lost and that may come back as the same.
            Each costs a few hundred bytes; as many as there can be connections, for the restart of a network between.
        drain_messages: how many queued messages a session gets per turn, so that one that catches up does not keep the
            others waiting.
    """

    queue_messages: Some = 10_000
    queue_bytes: Some = 16 * 1024 * 1024
    spool_memory_bytes: Some = 64 * 1024 * 1024
    session_queue_messages: Some = 100_000
    session_queue_bytes: Some = 64 * 1024 * 1024
    unacknowledged: Some = 3_000
    sessions: Some = 10_000
    strangers: Some = 1_000
    connections_per_address: Some = 1_000
    memory_bytes: Some = 1024 * 1024 * 1024
    subscriptions_per_session: Some = 10_000
    session_subscription_bytes: Some = 32 * 1024 * 1024
    subscription_bytes: Some = 1024 * 1024 * 1024
    session_matching_ms: Some = 250
    matching_ms: Some = 1_000
    turn_ms: Some = 50
    publishers_kept: Some = 10_000
    drain_messages: Some = 2_000
