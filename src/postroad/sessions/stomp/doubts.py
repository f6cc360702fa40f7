"""Doubts about a valid SUBSCRIBE: what its author may not have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors import doubts, name_doubts, topic_doubts

if TYPE_CHECKING:
    from postroad.protocols.stomp import Subscribe

__all__ = ["doubts_of"]


def doubts_of(event: Subscribe) -> list[str]:
    """Return what has another meaning in destinations of other brokers, and hyphenated names in the selector."""
    # The name of a queue has no wildcards anywhere.
    return [*(name_doubts if event.queue else topic_doubts)(event.topic), *doubts(event.selector or "")]
