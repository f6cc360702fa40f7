"""The core of one broker, without I/O."""

from __future__ import annotations

from postroad.broker.advertised_interest import scheme_of
from postroad.broker.channel_items import ChannelError
from postroad.broker.consumers import ConsumerTerms
from postroad.broker.core import Broker
from postroad.broker.errors import BrokerError
from postroad.broker.given_ids import DEFAULT_SKEW_TOLERANCE_MS, AssigningPublisher, IdAdmission
from postroad.broker.limits import Limits
from postroad.broker.named_queues import NamedQueue
from postroad.broker.no_recorder import NoRecorder, Recorder
from postroad.broker.numbers import PublisherNumbers, SubscriptionNumbers
from postroad.broker.outbox import Delivery, Outbox, Sending
from postroad.broker.outgoing_queue import OutgoingQueue
from postroad.broker.peers import PacketHead, passed_on, read_packet
from postroad.broker.queue_homes import queue_home
from postroad.broker.queue_packets import PacketLinks, QueuePackets
from postroad.broker.redeliveries import QueueSettings
from postroad.broker.relay import Relay, RelayStatistics
from postroad.broker.replays import ReplayStart
from postroad.broker.retentions import is_retention, retained_topic
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.settlements import Acknowledgement, Settlement, settlements
from postroad.broker.statistics import BrokerStatistics
from postroad.broker.strategies import make_strategy, make_unicast, order_wait, planned_strategy

__all__ = [
    "DEFAULT_SKEW_TOLERANCE_MS",
    "AckMode",
    "Acknowledgement",
    "AssigningPublisher",
    "Broker",
    "BrokerError",
    "BrokerStatistics",
    "ChannelError",
    "ConsumerTerms",
    "Delivery",
    "IdAdmission",
    "Limits",
    "NamedQueue",
    "NoRecorder",
    "Outbox",
    "OutgoingQueue",
    "OverflowPolicy",
    "PacketHead",
    "PacketLinks",
    "PublisherNumbers",
    "QueuePackets",
    "QueueSettings",
    "Recorder",
    "Relay",
    "RelayStatistics",
    "ReplayStart",
    "Sending",
    "Session",
    "Settlement",
    "Subscription",
    "SubscriptionNumbers",
    "is_retention",
    "make_strategy",
    "make_unicast",
    "order_wait",
    "passed_on",
    "planned_strategy",
    "queue_home",
    "read_packet",
    "retained_topic",
    "scheme_of",
    "settlements",
]
