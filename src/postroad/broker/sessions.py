"""Sessions and their subscriptions.

A session has a number and a principal, and lives as long as its connection. Subscriptions and queues belong to the
session; what a durable subscription keeps belongs to the store, and outlives both.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from postroad.broker.queues import Load, WaitingQueue

if TYPE_CHECKING:
    from postroad.broker.confirmations import Confirmations
    from postroad.broker.durables import DurableTerms
    from postroad.broker.given_ids import AssigningPublisher
    from postroad.broker.guest_consumers import Guest
    from postroad.broker.named_queues import NamedQueue
    from postroad.broker.outgoing_queue import OutgoingQueue
    from postroad.broker.remote_consumers import RemoteConsumer
    from postroad.messages import Batch, IdGenerator
    from postroad.store import Cursor

__all__ = ["NO_PREFETCH", "AckMode", "OverflowPolicy", "Session", "Subscription"]

# The prefetch of a client that has not asked for one: more than any other limit lets through.
NO_PREFETCH = 2**62


class AckMode(Enum):
    """When a delivery counts as finished."""

    AUTO = "auto"  # when it is written to the socket
    CLIENT = "client"  # when the client acknowledges it or a later one
    INDIVIDUAL = "client-individual"  # when the client acknowledges it


class OverflowPolicy(Enum):
    """What happens when a subscription's queue is full."""

    SPOOL = "spool"  # what does not fit in memory waits on disk; when that is full too, publishers are paused
    DROP_OLDEST = "drop-oldest"  # the oldest waiting messages are shed
    PUSH_BACK = "push-back"  # publishers connected to this broker are paused
    DISCONNECT = "disconnect"  # the subscriber's session is closed


class Subscription:
    """One subscription of a session.

    Attributes:
        number: unique at this broker, even after a restart; records use it.
        session: the session it belongs to.
        key: the client's own name for it, unique in its session.
        selector: the text of its selector, as the policy let it pass.
        waiting: messages that matched and are not sent yet.
        bytes: its estimated memory; counts for the limits of its session and of the broker.
        work: what it added to the work that a message can cost.
        unacknowledged: ids (as 128-bit integers) that were sent and wait for an acknowledgement, oldest first, with
            their place in the store, or -1 if they are not stored.
        cursor: its rows in the store; None if it has none.
        durable: the name under which it outlives its session; None if it does not.
        queue: the queue that it consumes, or stands for; None for a subscription to topics.
        outgoing: the outgoing queue that it stands for; None for none.
        remote: the queue of another broker that it consumes; None for one of this broker, or topics.
        guest: the client of another broker that uses it to consume; None for a client of this broker.
        recorded: the number in the record: its own, or that of its queue.
        blocked: the next rows are not in memory, or not safe yet.
        stores: matching messages always wait in the store: permanently, or until none of its history waits there.
        retains: it stands for a retained topic; what it stores is not delivered.
        has_history: it began in the past, with what a retained topic kept.
        replays: its history is being read, and comes before what it already has in the store.
        prefetch: how many unacknowledged messages its client wants at most; `limits.unacknowledged` holds besides.
        pushes_back: numbers of the sessions that it keeps from publishing.
        shed_reported: how much of `shed` was logged.
    """

    __slots__ = (
        "ack_mode",
        "acknowledged",
        "blocked",
        "bytes",
        "cursor",
        "delivered",
        "durable",
        "expired",
        "guest",
        "has_history",
        "key",
        "number",
        "outgoing",
        "policy",
        "prefetch",
        "pushes_back",
        "queue",
        "recorded",
        "refused",
        "remote",
        "replays",
        "retains",
        "selector",
        "session",
        "shed",
        "shed_reported",
        "slot",
        "stores",
        "topic",
        "unacknowledged",
        "waiting",
        "work",
    )

    def __init__(
        self, number: int, session: Session, key: str, topic: str, ack_mode: AckMode, policy: OverflowPolicy
    ) -> None:
        self.number = number
        self.session = session
        self.key = key
        self.topic = topic
        self.selector = ""
        self.ack_mode = ack_mode
        self.policy = policy
        self.slot = -1
        self.bytes = 0
        self.work = 0
        self.waiting = WaitingQueue(session.waiting)
        self.unacknowledged: dict[int, int] = {}
        self.cursor: Cursor | None = None
        self.durable: DurableTerms | None = None
        self.queue: NamedQueue | None = None
        self.outgoing: OutgoingQueue | None = None
        self.remote: RemoteConsumer | None = None
        self.guest: Guest | None = None
        self.recorded = number
        self.blocked = False
        self.prefetch = NO_PREFETCH
        self.stores = self.retains = self.has_history = self.replays = False
        self.delivered = 0
        self.acknowledged = 0
        self.refused = 0
        self.shed = 0
        self.shed_reported = 0
        self.expired = 0
        self.pushes_back: set[int] = set()


class Session:
    """One client of the broker.

    Args:
        number: unique while the broker runs.
        principal: who it is.
        together: what waits for all sessions of the broker.

    Attributes:
        congested: the driver cannot write any more at the moment; matching messages have to wait.
        publisher: stamps the ids of what the session publishes; made when it first publishes.
        assigning: the publisher it is, if it gives its messages their ids itself.
        pushed_back_by: numbers of the full subscriptions that keep this session from publishing.
        full_links: numbers of the neighbours whose full links keep it from publishing.
        waiting: what waits for all its subscriptions together.
        must_acknowledge: how many of its subscriptions push back and continue only when it acknowledges.
        unfinished: some of what it published waits for its turn to be matched.
        unstored: why something that it published could not be stored as needed; empty if all was.
        confirmations: what it waits for at other brokers; None if it has never asked one for something.
        subscription_bytes: the estimated memory of its subscriptions.
        matching_work: what its subscriptions added to the work that a message can cost (`SubscriptionIndex.work`).
    """

    __slots__ = (
        "accepted",
        "assigning",
        "confirmations",
        "congested",
        "full_links",
        "matching_work",
        "must_acknowledge",
        "number",
        "principal",
        "publisher",
        "pushed_back_by",
        "subscription_bytes",
        "subscriptions",
        "unfinished",
        "unstored",
        "waiting",
    )

    def __init__(self, number: int, principal: str, together: Load | None = None) -> None:
        self.number = number
        self.principal = principal
        self.subscriptions: dict[str, Subscription] = {}
        self.waiting = Load(together)
        self.congested = False
        self.publisher: IdGenerator | None = None
        self.assigning: AssigningPublisher | None = None
        self.accepted = 0
        self.pushed_back_by: set[int] = set()
        self.full_links: set[int] = set()
        self.must_acknowledge = 0
        self.unfinished = False
        self.unstored = ""
        self.subscription_bytes = 0
        self.matching_work = 0
        self.confirmations: Confirmations | None = None

    def lost(self, batch: Batch, reason: str) -> None:
        """Note that rows of a batch could not be stored as needed: the client may send the whole batch again."""
        self.unstored = reason
        if self.assigning is not None:
            self.assigning.lost(int(batch.ids[0, 1]))

    @property
    def paused(self) -> bool:
        """Return whether anything keeps it from publishing."""
        return bool(self.unfinished or self.pushed_back_by or self.full_links)
