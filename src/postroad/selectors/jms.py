"""The JMS header names that selectors may use, and where their values come from.

These five are derived. A client can send an attribute under such a name, but no selector sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.messages import Value

__all__ = ["COPIED", "DERIVED", "with_jms_names"]

# From the envelope and the id.
PRIORITY, TIMESTAMP, MESSAGE_ID = "JMSPriority", "JMSTimestamp", "JMSMessageID"
# From another attribute, with its type.
COPIED = {"JMSCorrelationID": "correlation-id", "JMSType": "type"}
DERIVED = frozenset((PRIORITY, TIMESTAMP, MESSAGE_ID, *COPIED))


def with_jms_names(
    attributes: Mapping[str, Value], *, priority: int, timestamp: int, message_id: str
) -> dict[str, Value]:
    """What a selector sees of a message.

    Args:
        attributes: the attributes the message carries.
        priority: the envelope's priority.
        timestamp: the time in the message's id, in milliseconds since 1970.
        message_id: the id's text form.
    """
    seen = {name: value for name, value in attributes.items() if name not in DERIVED}
    seen[PRIORITY] = priority
    seen[TIMESTAMP] = timestamp
    seen[MESSAGE_ID] = message_id
    for name, origin in COPIED.items():
        if origin in attributes:
            seen[name] = attributes[origin]
    return seen
