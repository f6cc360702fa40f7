"""The settings of a broker: what a file may say, how it is checked, and how the plan of a network becomes settings."""

from __future__ import annotations

from postroad.config.broker import BrokerConfig, ConfigError, FrameConfig, TlsConfig, check_admin, read_config
from postroad.config.network import (
    LinkTlsConfig,
    Member,
    Neighbouring,
    NetworkConfig,
    check_network,
    is_distant,
    is_loopback,
)
from postroad.config.plan import Credentials, broker_config
from postroad.config.tracking import RecorderName, TrackingConfig
from postroad.config.users_file import changed_users, load_token, load_users, save_users

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "Credentials",
    "FrameConfig",
    "LinkTlsConfig",
    "Member",
    "Neighbouring",
    "NetworkConfig",
    "RecorderName",
    "TlsConfig",
    "TrackingConfig",
    "broker_config",
    "changed_users",
    "check_admin",
    "check_network",
    "is_distant",
    "is_loopback",
    "load_token",
    "load_users",
    "read_config",
    "save_users",
]
