"""Testing: a network of brokers inside a test, in virtual time or over real sockets (`docs/testing.md`)."""

from __future__ import annotations

from postroad.testing.network_contract import BrokerNetwork, NotSettled
from postroad.testing.networks import Clock, broker_network

__all__ = ["BrokerNetwork", "Clock", "NotSettled", "broker_network"]
