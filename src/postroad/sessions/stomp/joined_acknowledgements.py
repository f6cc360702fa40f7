"""Which frames of a read are acknowledgements that can be carried out together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.protocols import stomp

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["answers_together"]


def answers_together(events: Sequence[stomp.Event], place: int, most: int) -> int:
    """Count the frames from a place on that are ACK or NACK outside transactions, without a message between."""
    row, end = events[place].row, min(len(events), place + most)
    for at in range(place, end):
        event = events[at]
        if not isinstance(event, stomp.Ack | stomp.Nack) or event.transaction is not None or event.row != row:
            return at - place
    return end - place
