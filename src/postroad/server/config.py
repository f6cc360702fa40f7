"""The settings of a broker: a TOML file, checked as a whole; an error names the place and what would do."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import msgspec

from postroad.broker import Limits
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BrokerConfig", "ConfigError", "read_config"]


class ConfigError(PostroadError):
    """The settings are not usable."""


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker.

    Attributes:
        number: its number in the plan; part of every message id, never given to another broker.
        host: the address to listen on. Only this machine can connect by default.
        port: the port for STOMP over TCP; 0 takes a free one.
        data: the directory for what must survive a restart.
        users: login -> passcode; empty lets everybody in.
        limits: what the broker keeps at most.
    """

    number: int = 1
    host: str = "127.0.0.1"
    port: int = 61613
    data: str = "postroad-data"
    users: dict[str, str] = {}
    limits: Limits = msgspec.field(default_factory=Limits)


def read_config(path: Path) -> BrokerConfig:
    """Read a TOML file.

    Raises:
        ConfigError: it cannot be read, is no TOML, or a setting is not known or not of its type.
    """
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    try:
        return msgspec.convert(settings, BrokerConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; the settings are {', '.join(BrokerConfig.__struct_fields__)}") from error
