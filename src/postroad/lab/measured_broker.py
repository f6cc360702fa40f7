"""The broker that a measurement starts: its settings, its command, and the address that it prints when it is ready."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["broker_command", "broker_settings", "stomp_address"]

_READY = re.compile(r'"stomp": "stomp://([^:"]+):(\d+)"')
# Measurements let one session have as many subscriptions as a whole broker has otherwise.
SUBSCRIPTIONS_PER_SESSION = 1_000_000


def broker_settings(number: int, folder: Path) -> str:
    """Return settings as TOML: any free port, data and trail in a folder, the record written every second."""
    # JSON strings are valid TOML strings.
    return (
        f'number = {number}\nport = 0\ndata = {json.dumps(str(folder / f"data-{number}"))}\nlog_level = "warning"\n'
        f"[tracking]\ntrail = {json.dumps(str(folder / 'trail'))}\npersist_seconds = 1\n"
        f"[limits]\nsubscriptions_per_session = {SUBSCRIPTIONS_PER_SESSION}\n"
    )


def broker_command(config: Path) -> list[str]:
    """Return the command that runs a broker with a file of settings, in this Python."""
    return [
        sys.executable,
        "-P",
        "-c",
        "from postroad.cli import main; main()",
        "broker",
        "--config",
        str(config),
        "--json",
    ]


def stomp_address(line: str) -> tuple[str, int] | None:
    """Return host and port from the line that a broker prints when clients can connect; None for another line."""
    ready = _READY.search(line)
    return None if ready is None else (ready[1], int(ready[2]))
