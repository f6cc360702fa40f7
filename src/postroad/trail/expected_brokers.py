"""The brokers that a trail should contain by the plan of the network, besides those that brokers mention themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from postroad.trail.durable_files import replace_file
from postroad.trail.errors import TrailDamageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from postroad.trail.locations import Location

__all__ = ["note_brokers", "noted_brokers", "noted_name"]

_FILE = "brokers.json"
_SHIPPED = "shipped"


def note_brokers(root: Path, brokers: Iterable[int]) -> None:
    """Add brokers to those that a trail should hold.

    Raises:
        TrailWriteError: the disk does not take it.
    """
    known: set[int] = set()
    with suppress(TrailDamageError):
        known = noted_brokers(root)
    wanted = known | set(brokers)
    if wanted != known:
        replace_file(root / _FILE, msgspec.json.encode(sorted(wanted)) + b"\n")


def noted_brokers(root: Location) -> set[int]:
    """The brokers that a trail should hold; none if they are not known.

    Raises:
        TrailDamageError: the file that says so cannot be read.
    """
    path: Location = root / _FILE
    try:
        found = _listed(path)
        for path in (root / _SHIPPED).glob("brokers-*.json"):
            found |= _listed(path)
    except (OSError, msgspec.MsgspecError) as error:
        raise TrailDamageError(path, f"is not a list of brokers: {error}") from error
    return found


def noted_name(broker: int) -> str:
    """Where a broker that ships its trail puts this list, beside those of others."""
    return f"{_SHIPPED}/brokers-{broker}.json"


def _listed(path: Location) -> set[int]:
    try:
        return set(msgspec.json.decode(path.read_bytes(), type=list[int]))
    except FileNotFoundError:
        return set()
