"""The server: the asyncio driver that moves bytes between sockets and the core."""

from __future__ import annotations

from postroad.server.config import BrokerConfig, ConfigError, read_config
from postroad.server.service import Service

__all__ = ["BrokerConfig", "ConfigError", "Service", "read_config"]
