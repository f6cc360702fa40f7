"""What a good SUBSCRIBE says that its author may not have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors import doubts, topic_doubts

if TYPE_CHECKING:
    from postroad.protocols.stomp import Subscribe

__all__ = ["doubts_of"]


def doubts_of(event: Subscribe) -> list[str]:
    """Wildcards of other brokers in the topic, and names with hyphens in the selector that are read as differences."""
    # A queue is named, and its name has no wildcards anywhere.
    return [*([] if event.queue else topic_doubts(event.topic)), *doubts(event.selector or "")]
