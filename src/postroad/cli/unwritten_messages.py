"""Messages that may not be in the trail yet: when they will be, and which brokers can be asked meanwhile."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import MessageId
    from postroad.trail import LockOwner

__all__ = ["UnwrittenMessage", "not_all_is_written", "unwritten"]

# If a trail does not say how often its brokers write: the default of `persist_seconds`.
DEFAULT_PERSIST_SECONDS = 60.0
# A busy disk takes a little longer.
SLACK_SECONDS = 5.0
# Brokers to ask about a message; the trail may still name one that was killed.
MOST_ASKED = 3


class UnwrittenMessage(NamedTuple):
    """A message that is too recent to count as missing from its trail.

    Attributes:
        message: its id.
        written: when it will be there, in Unix seconds.
        admins: the admin addresses of brokers that write to the trail; that of its origin first.
        runs: whether a broker on this machine writes to the trail now.
    """

    message: MessageId
    written: float
    admins: list[str]
    runs: bool

    def asked_of_brokers(self, explore: str, request: Callable[[str, str], dict[str, Any]]) -> dict[str, Any] | None:
        """Return what a running broker says about it; None, with a line on stderr, if none knows it or can be asked.

        Args:
            explore: whom brokers ask next.
            request: requests a page of an admin endpoint, by its address.
        """
        refusal = ""
        for admin in self.admins:
            try:
                document = request(admin, f"/trace/{self.message}?explore={explore}")
            except PostroadError as error:
                refusal = refusal or str(error)
                continue
            # Another broker, which never saw the message, may listen at the address of one that was killed.
            if document["stops"]:
                typer.echo(f"postroad: not on the trail yet; asked the broker at {admin}", err=True)
                return document
        written = datetime.fromtimestamp(self.written, UTC)
        typer.echo(
            f"postroad: if this message passed, the trail has it by {written:%H:%M:%S} UTC, as often as its broker "
            f"writes; {self._why_not_asked(refusal)}",
            err=True,
        )
        return None

    def _why_not_asked(self, refusal: str) -> str:
        if refusal:
            return f"the running broker could not be asked: {refusal}"
        if self.admins:
            return "the brokers that run do not know it"
        if self.runs:
            return "its broker has no admin endpoint (--admin-port), so it cannot be asked before"
        return (
            "no broker on this machine writes to it now; to ask one elsewhere, give --network and the address of its "
            "admin endpoint"
        )


def unwritten(root: object, message: MessageId) -> UnwrittenMessage | None:
    """Return what is known about a message that may not be written yet; None for an older one.

    Args:
        root: the trail, a directory or a place in a store.
        message: the message.
    """
    from postroad.trail import trail_owners

    owners = trail_owners(root) if isinstance(root, Path) else {}
    origin = owners.get(message.broker)
    persist = DEFAULT_PERSIST_SECONDS if origin is None else origin.persist_seconds or DEFAULT_PERSIST_SECONDS
    seconds = message.time / 1_000
    if abs(time.time() - seconds) >= persist + SLACK_SECONDS:
        return None
    running = sorted(filter(_runs_here, owners.values()), key=lambda owner: owner.broker != message.broker)
    admins = [owner.admin for owner in running if owner.admin][:MOST_ASKED]
    return UnwrittenMessage(message, seconds + persist + SLACK_SECONDS, admins, bool(running))


def _runs_here(owner: LockOwner) -> bool:
    """Return whether this is a process of this machine: others are not asked, or shown a token, because of a file."""
    return owner.host == socket.gethostname() and Path("/proc", str(owner.pid)).exists()


def not_all_is_written(root: object) -> str:
    """Return what to add to a negative answer about an alias, which does not say how old its message is."""
    from postroad.trail import trail_owners

    if not isinstance(root, Path) or not any(map(_runs_here, trail_owners(root).values())):
        return ""
    return "; what came since it was last written is not there yet: ask the running broker with --network"
