"""Pauses publishers while a link that their messages go over is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.broker.core import Broker
    from postroad.broker.outbox import Outbox

__all__ = ["pause_for_link", "resume_for_link"]


def pause_for_link(core: Broker, session: int, link: int, outbox: Outbox) -> None:
    """Pause a session because a link that it publishes to is full."""
    publisher = core.session(session)
    if publisher is None or link in publisher.full_links:
        return
    if not publisher.paused:
        outbox.pauses.append(session)
    publisher.full_links.add(link)


def resume_for_link(core: Broker, link: int, outbox: Outbox) -> None:
    """Resume those who waited for a link that has room again, unless something else keeps them."""
    for session in core.sessions():
        if link in session.full_links:
            session.full_links.discard(link)
            if not session.paused:
                outbox.resumes.append(session.number)
