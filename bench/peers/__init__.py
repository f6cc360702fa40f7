"""The brokers that the load test starts: Postroad, others to compare it with, and two yardsticks."""

from __future__ import annotations

from bench.peers.activemq import ACTIVEMQ
from bench.peers.echo import ECHO
from bench.peers.mosquitto import MOSQUITTO
from bench.peers.nats import NATS
from bench.peers.postroad import POSTROAD
from bench.peers.relay import RELAY

__all__ = ["ACTIVEMQ", "ECHO", "MOSQUITTO", "NATS", "POSTROAD", "RELAY"]
