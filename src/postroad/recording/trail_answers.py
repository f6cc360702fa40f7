"""Answers for brokers that do not respond, from their files, if they write to the same trail as this broker."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.trail import GapReason, Trail, TrailError

if TYPE_CHECKING:
    from postroad.config import BrokerConfig
    from postroad.messages import MessageId
    from postroad.tracking import Answer, Gap

__all__ = ["TrailAnswers", "trail_root"]

log = logging.getLogger("postroad.tracking")


def trail_root(config: BrokerConfig) -> Path:
    """Where a broker writes its trail."""
    return Path(config.tracking.trail) if config.tracking.trail is not None else Path(config.data) / "trail"


class TrailAnswers:
    """Answers for brokers that do not: from their files, which say themselves where they end."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def answer(self, broker: int, message: MessageId) -> Answer | None:
        """What a broker has written of a message; None if it has written nothing here."""
        return await asyncio.to_thread(self._read, broker, message)

    def _read(self, broker: int, message: MessageId) -> Answer | None:
        try:
            trail = Trail(self._root)
            return _unanswered(trail.answer(broker, message)) if broker in trail.brokers() else None
        except (TrailError, OSError) as error:
            log.warning("record of another broker not read", extra={"asked": broker, "reason": str(error)})
            return None


def _unanswered(answer: Answer) -> Answer:
    """The answer, with what is known about its broker beside its files: that it did not answer."""
    findings = answer.findings

    def said(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
        return tuple(
            gap._replace(reason=GapReason.NOT_ANSWERED) if gap.reason == GapReason.NOT_YET_WRITTEN else gap
            for gap in gaps
        )

    return answer._replace(findings=findings._replace(gaps=said(findings.gaps), ends=said(findings.ends)))
