"""The settings of a broker: what a file may say, how it is checked, and how the plan of a network becomes settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.config.network import (
    LinkTlsConfig,
    Member,
    Neighbouring,
    NetworkConfig,
    check_network,
    is_distant,
    is_loopback,
)

if TYPE_CHECKING:
    from postroad.config.broker import BrokerConfig, ConfigError, FrameConfig, TlsConfig, check_admin, read_config
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

# Imported when they are first asked for: they import the broker, and commands that only ask one do without it.
_LATER = {
    "BrokerConfig": "broker",
    "ConfigError": "broker",
    "Credentials": "plan",
    "FrameConfig": "broker",
    "RecorderName": "tracking",
    "TlsConfig": "broker",
    "TrackingConfig": "tracking",
    "broker_config": "plan",
    "changed_users": "users_file",
    "check_admin": "broker",
    "load_token": "users_file",
    "load_users": "users_file",
    "read_config": "broker",
    "save_users": "users_file",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
