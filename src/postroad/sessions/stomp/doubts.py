"""Doubts about a valid SUBSCRIBE: what its author may not have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors import doubts, topic_doubts

if TYPE_CHECKING:
    from postroad.protocols.stomp import Subscribe

__all__ = ["doubts_of"]


def doubts_of(event: Subscribe) -> list[str]:
    """Return wildcards of other brokers in the topic, and hyphenated names in the selector, which mean differences."""
    # The name of a queue has no wildcards anywhere.
    return [*([] if event.queue else topic_doubts(event.topic)), *doubts(event.selector or "")]
