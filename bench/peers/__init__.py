"""The brokers that the load test starts: Postroad, others to compare it with, and two yardsticks."""

from __future__ import annotations

from bench.peers.activemq import ACTIVEMQ, ACTIVEMQ_ALWAYS, ACTIVEMQ_INTERVAL
from bench.peers.echo import ECHO
from bench.peers.mosquitto import MOSQUITTO
from bench.peers.nats import JETSTREAM, NATS
from bench.peers.postroad import POSTROAD
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.relay import RELAY

__all__ = [
    "ACTIVEMQ",
    "ACTIVEMQ_ALWAYS",
    "ACTIVEMQ_INTERVAL",
    "ECHO",
    "JETSTREAM",
    "MOSQUITTO",
    "NATS",
    "POSTROAD",
    "RABBITMQ",
    "RELAY",
]
