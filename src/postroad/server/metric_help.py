"""What each metric counts, in a sentence, for the HELP line that Prometheus shows."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["CAPACITY", "HELP", "help_text"]

# Fields of `CapacityStatus`, what follows their names in metrics, and what they are.
CAPACITY = (
    ("utilisation", "_ratio", "Share used of what batches of any size could carry."),
    ("load", "_ratio", "Messages per second as a share of the limit."),
    ("predicted_p99_wait_seconds", "", "What 99 % of messages wait at most, by the model."),
    ("measured_p99_wait_seconds", "", "What 99 % of probes of the event loop waited at most."),
    ("limit_seconds", "", "Time until the limit is reached at the growth of the last fortnight."),
)

HELP = MappingProxyType(
    {
        "build_info": "Always 1; the label `version` is the version of Postroad.",
        "ready": "1 when clients can connect.",
        "brokers_reached": "Other brokers within reach.",
        "tracking_trouble": "1 while the record cannot be written as it should; /health says why.",
        "store_trouble": "1 while the store cannot be written as it should; /health says why.",
        "delivery_latency_seconds": (
            "From the time in a message's id until it was written to a client's socket here; of a sample, "
            "taken from the first scrape on."
        ),
        # The core.
        "sessions_now": "Sessions of clients.",
        "subscriptions_now": "Subscriptions, durable ones without a client too.",
        "waiting_messages_now": "Messages that wait in memory for subscribers.",
        "waiting_bytes_now": "Bytes of messages that wait in memory for subscribers.",
        "stored_messages_now": "Messages that wait on disk for subscribers.",
        "durable_now": "Durable subscriptions.",
        "durable_away_now": "Durable subscriptions whose client is not connected.",
        "queues_now": "Queues.",
        "consumers_now": "Consumers of queues.",
        "queued_messages_now": "Messages in queues.",
        "outgoing_messages_now": "Messages for queues and durable subscriptions of other brokers that wait here.",
        "uninformed_brokers_now": "Other brokers that do not know yet what durable subscriptions here want.",
        "unstored_messages_now": "Messages of neighbours that wait until the store has room.",
        "retained_messages_now": "Messages that topics retain.",
        "former_versions_now": "What durable subscriptions wanted before, kept for what other brokers accepted then.",
        "former_versions_dropped": "Former versions of durable subscriptions dropped because there was no room.",
        "retained_cut": "Retained messages let go before their time, because there was no room.",
        "replays_now": "Subscriptions that still read what was retained.",
        "unacknowledged_now": "Deliveries that wait for their acknowledgement.",
        "paused_publishers_now": "Publishers that are not read from, because a queue or a link is full.",
        "accepted": "Messages accepted from clients.",
        "delivered": "Deliveries written to the sockets of clients.",
        "matched_nobody": "Messages accepted that nobody wanted.",
        "shed_queue_full": "Messages shed because the queue of a subscription was full.",
        "shed_session_closed": "Messages shed because their subscriber's session ended.",
        "shed_expired": "Messages shed because they had expired.",
        "shed_stored": "Stored messages that were given up.",
        "acknowledged": "Deliveries acknowledged.",
        "refused": "Deliveries refused by their subscribers (NACK).",
        "redelivered": "Deliveries made once more.",
        "dead_lettered": "Messages moved to dead-letter queues.",
        "ids_skewed": "Messages whose id was further from the clock here than tolerated.",
        "resent": "Messages that a publisher sent again and that had entered before.",
        "publishers_away_now": "Publishers that are known and not connected.",
        "index_constraints_now": "Constraints in the subscription index.",
        "index_bytes_now": "Bytes of the subscription index.",
        "subscription_bytes_now": "Bytes that subscriptions take.",
        "matching_work_now": "Nanoseconds that matching one message can take at most, by the index's own estimate.",
        "unfinished_messages_now": "Messages accepted whose matching is not done yet.",
        # The server.
        "connections_now": "Connections of clients.",
        "connections": "Connections accepted.",
        "connections_turned_away": "Connections refused for connections_per_address or sessions.",
        "strangers_now": "Connections without an answered CONNECT.",
        "strangers_evicted": "Connections without an answered CONNECT that gave their place to others.",
        "held_bytes_now": "Bytes held for clients, which count for memory_bytes.",
        "received_bytes": "Bytes read from clients, without what TLS adds.",
        "sent_bytes": "Bytes written to clients, without what TLS adds.",
        "connections_relieved": "Connections cut off because memory_bytes was used up.",
        "logins_refused": "Logins refused as wrong.",
        "logins_delayed": "Logins not looked at, because others were wrong or too many were being checked.",
        "subscriptions_refused": "Subscriptions refused, by a policy or as not valid.",
        "publications_refused": "Publications refused, by a policy or as not valid.",
        "origins_refused": "Web pages that were not allowed to connect.",
        "admin_requests_refused": "Requests of the admin endpoint without the right token.",
        "internal_errors": "Defects that closed a connection.",
        # Between brokers.
        "relay_sent": "Messages that entered here and were sent to other brokers.",
        "relay_relayed": "Messages that arrived from other brokers and were relayed to others.",
        "relay_duplicates": "Copies that came a second time and were dropped.",
        "relay_maybe_duplicates": "Messages delivered that may have been delivered before.",
        "relay_exhausted": "Messages dropped at their hop limit.",
        "relay_unreachable": "Messages given up because no way to a broker was found in time.",
        "relay_shed_link_full": "Messages shed because a link was full.",
        "relay_held_now": "Messages that wait for a way to another broker.",
        "relay_held_bytes_now": "Bytes of messages that wait for a way to another broker.",
        "link_up_now": "1 while the link works.",
        "link_crowded_now": "1 while local publishers wait for room in the link.",
        "link_sent_messages": "Messages written to the link.",
        "link_shed_messages": "Messages that did not fit into the link.",
        "link_held_messages_now": "Messages kept until the neighbour has them, or is done with them.",
        "link_held_bytes_now": "Bytes kept until the neighbour has them, or is done with them.",
        "link_sent_bytes": "Bytes written to the link, without what TLS adds.",
        "link_received_bytes": "Bytes read from the link, without what TLS adds.",
        "link_restarts": "How often the neighbour came back as another process.",
        "link_refusals": "What the neighbour sent that is not believed.",
        "link_quarantines": "How often the link was closed for that, and kept closed.",
        "link_quarantined_now": "1 while the neighbour is kept out.",
    }
)


def help_text(name: str) -> str:
    """What a metric counts; for those that explain themselves, their name in words."""
    found = HELP.get(name)
    if found is not None:
        return found
    words = name.removesuffix("_now").replace("_", " ").capitalize()
    return f"{words}, now." if name.endswith("_now") else f"{words}, since the start."
