"""Files that settings name and that a reload reads again: which of them have other contents now."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.config import BrokerConfig

__all__ = ["file_digests"]


def file_digests(config: BrokerConfig) -> dict[str, bytes]:
    """Return a digest of each file by the setting that names it; empty bytes for one that cannot be read."""
    return {setting: _digest(Path(file)) for setting, file in _named(config)}


def _named(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yield settings, as the settings file names them, and their files."""
    network = config.network
    found: list[tuple[str, object, tuple[str, ...]]] = [
        ("", config, ("users_file", "admin_token_file")),
        ("tls.", config.tls, ("certificate", "key", "client_ca")),
        ("admin_tls.", config.admin_tls, ("certificate", "key", "client_ca")),
        ("network.", network, ("admins_ca",)),
        ("network.tls.", None if network is None else network.tls, ("certificate", "key", "ca")),
    ]
    for section, part, names in found:
        for name in names:
            file = getattr(part, name, None)
            if file is not None:
                yield f"{section}{name}", file


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""
