"""Checks the queues periodically and logs subscriptions that are too slow: often enough to notice, never a flood."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.broker import Broker, Subscription
    from postroad.server.service import Service

__all__ = ["QueueWatch"]

log = logging.getLogger("postroad.server")

# A subscriber that is too slow is named once per look.
LOOK_SECONDS = 5.0
# Lines per look; the others are counted in one more line.
MOST_LINES = 20


class QueueWatch:
    """Logs what overflowed since the last look."""

    def __init__(self, core: Broker, service: Service) -> None:
        self._core = core
        self._service = service
        self._turned_away = 0
        self._expired = 0
        self._undeliverable = ""
        self._unstored = self._retained_cut = self._dropped = 0

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("internal error")

    def look(self) -> None:
        """Check once."""
        overflowed = sorted(self._core.take_overflowed(), key=lambda each: each.number)
        for subscription in overflowed[:MOST_LINES]:
            self._tell(subscription)
        if len(overflowed) > MOST_LINES:
            others = overflowed[MOST_LINES:]
            shed = sum(_newly_shed(each) for each in others)
            log.warning("more slow subscribers", extra={"subscriptions": len(others), "shed": shed})
        self._service.audit.look()
        turned_away = self._service.server_statistics().connections_turned_away
        if turned_away > self._turned_away:
            log.warning("connections turned away", extra={"count": turned_away - self._turned_away})
            self._turned_away = turned_away
        counts = self._core.statistics()
        if counts.shed_expired > self._expired:
            log.info("messages expired", extra={"count": counts.shed_expired - self._expired})
            self._expired = counts.shed_expired
        if counts.unstored_messages_now and not self._unstored:
            log.warning("store full", extra={"messages": counts.unstored_messages_now})
        self._unstored = counts.unstored_messages_now
        if counts.retained_cut > self._retained_cut:
            log.warning("retention cut", extra={"messages": counts.retained_cut - self._retained_cut})
        self._retained_cut = counts.retained_cut
        if counts.former_versions_dropped > self._dropped:
            log.warning("former versions dropped", extra={"count": counts.former_versions_dropped - self._dropped})
        self._dropped = counts.former_versions_dropped
        reason = "" if self._core.queues is None else self._core.queues.returns.undeliverable
        if reason and reason != self._undeliverable:
            log.error("dead letters not kept", extra={"reason": reason})
        self._undeliverable = reason

    def _tell(self, subscription: Subscription) -> None:
        fields = {
            "session": subscription.session.number,
            "subscription": subscription.key,
            "topic": subscription.topic,
            "overflow": subscription.policy.value,
            "waiting": subscription.waiting.messages,
            "stored": subscription.waiting.stored,
            "unacknowledged": len(subscription.unacknowledged),
            "shed": _newly_shed(subscription),
            "shed_in_all": subscription.shed,
        }
        log.warning("slow subscriber", extra=fields)


def _newly_shed(subscription: Subscription) -> int:
    """Return how many were shed since the last line in the log."""
    new = subscription.shed - subscription.shed_reported
    subscription.shed_reported = subscription.shed
    return new
