"""The directories of a broker, and who can look into them and into the files that hold its secrets."""

from __future__ import annotations

import logging
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.config import ConfigError
from postroad.recording import trail_root
from postroad.trail.access import AccessError, claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.config import BrokerConfig

__all__ = ["claim_directories", "exposed_secrets", "file_exposure", "secret_files", "warn_of_exposed_secrets"]

log = logging.getLogger("postroad.server")


def claim_directories(config: BrokerConfig) -> None:
    """Make the directories of data and trail, for the owner alone or for the group of the settings.

    Faults of existing directories are logged. A directory that cannot be made is reported by the part that needs it
    first: numbers are needed at once, a trail may come back.

    Raises:
        ConfigError: the group cannot be given the directories.
    """
    for folder in (Path(config.data), trail_root(config)):
        if folder == trail_root(config) and config.tracking.recorder == "none":
            continue
        try:
            with suppress(OSError):
                complaint = claim(folder, config.group)
                if complaint:
                    log.warning("directory open to others", extra={"directory": str(folder), "problem": complaint})
        except AccessError as error:
            raise ConfigError(f"group: {error}") from error


def exposed_secrets(config: BrokerConfig, path: Path | None = None) -> list[str]:
    """Which files with secrets others than their owner and its group can read, or others than the owner can change.

    Args:
        config: the settings.
        path: the file that they were read from, if any.
    """
    return [
        f"{file} holds {what}, and {who}; mend it with: chmod {mend} {file}"
        for file, what in secret_files(config, path)
        for who, mend in [file_exposure(file)]
        if who
    ]


def secret_files(config: BrokerConfig, path: Path | None = None) -> Iterator[tuple[Path, str]]:
    """The files with secrets that these settings name, each with what it holds."""
    if path is not None and config.network is not None and config.network.secret is not None:
        yield path, "the secret of the network (network.secret)"
    if config.users_file is not None:
        yield Path(config.users_file), "hashed passcodes (users_file)"
    if config.admin_token_file is not None:
        yield Path(config.admin_token_file), "a token (admin_token_file)"
    network = config.network
    keys = {
        "tls.key": config.tls and config.tls.key,
        "admin_tls.key": config.admin_tls and config.admin_tls.key,
        "network.key": network and network.key,
        "network.tls.key": network and network.tls and network.tls.key,
    }
    for name, key in keys.items():
        if key:
            yield Path(key), f"a private key ({name})"


def file_exposure(path: Path) -> tuple[str, str]:
    """Who can do what to a file that should not, and what to take from them; empty where all is well."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "", ""  # its user reports it
    if mode & stat.S_IROTH:
        return "everybody on this machine can read it", "g-w,o="
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others than its owner can change it", "go-w"
    return "", ""


def warn_of_exposed_secrets(config: BrokerConfig, path: Path | None = None) -> None:
    """Log a warning for each file with secrets that others can read or change."""
    for problem in exposed_secrets(config, path):
        log.warning("secrets open to others", extra={"problem": problem})
