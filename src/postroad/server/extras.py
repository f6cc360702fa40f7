"""Optional libraries: used if installed; otherwise an error names the extra to install."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from postroad.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig

__all__ = ["check_extras", "has", "loop_factory"]


def has(module: str) -> bool:
    """Whether a library is installed."""
    return find_spec(module) is not None


def check_extras(config: BrokerConfig) -> None:
    """Refuse settings that need a library which is not there.

    Raises:
        ConfigError: names the setting and the extra.
    """
    needed = [
        (config.websocket_port is not None, "websocket_port", "websockets", "websocket"),
        (config.network is not None and config.network.key is not None, "network.key", "cryptography", "security"),
        (config.event_loop == "uvloop", 'event_loop = "uvloop"', "uvloop", "fast"),
    ]
    for wanted, setting, module, extra in needed:
        if wanted and not has(module):
            raise ConfigError(
                f"{setting} needs the library {module}, which is not installed: pip install 'postroad[{extra}]'"
            )


def loop_factory(config: BrokerConfig) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop that the settings ask for."""
    if config.event_loop != "asyncio" and has("uvloop"):
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop
