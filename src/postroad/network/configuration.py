"""The settings of each broker of a plan, as files that `postroad broker --config` reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from postroad.topology.toml import toml_text
from postroad.trail.access import PRIVATE_FILE, make_folders

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.config import BrokerConfig

__all__ = ["config_text", "write_config"]


def write_config(path: Path, config: BrokerConfig) -> None:
    """Write a broker's settings, readable only by their owner: they may contain a secret."""
    make_folders(path.parent)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(config_text(config))


def config_text(config: BrokerConfig) -> str:
    """A broker's settings as TOML; `read_config` gives the same settings back."""
    return toml_text(msgspec.to_builtins(config))
