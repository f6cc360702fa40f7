"""How clients of other brokers spell the options of a consumer in SUBSCRIBE; the prefetch counts for topics too.

| header | of | meaning |
| --- | --- | --- |
| `prefetch-count: N` | RabbitMQ | at most N unacknowledged messages; 0 for as many as allowed |
| `activemq.prefetchSize: N` | ActiveMQ | the same |
| `exclusive: true`, `activemq.exclusive: true` | ActiveMQ | no other consumer gets anything meanwhile |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from postroad.broker import AckMode, BrokerError, ConsumerTerms

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["consumer_terms", "prefetch_count"]

PREFETCH = ("prefetch-count", "activemq.prefetchSize")
EXCLUSIVE = ("exclusive", "activemq.exclusive")
_COUNT = re.compile(r"[0-9]{1,9}")


def consumer_terms(headers: Mapping[str, str], selector: str | None, ack: str) -> ConsumerTerms:
    """Return what a SUBSCRIBE to a queue asks for.

    Raises:
        BrokerError: a prefetch is not a number.
    """
    exclusive = any(headers.get(header) == "true" for header in EXCLUSIVE)
    return ConsumerTerms(selector or "", AckMode(ack), prefetch_count(headers), exclusive)


def prefetch_count(headers: Mapping[str, str]) -> int | None:
    """Return how many unacknowledged messages a client wants at most, 0 for any number; None if it does not say.

    Raises:
        BrokerError: it is not a number.
    """
    for header in PREFETCH:
        text = headers.get(header)
        if text is not None:
            if _COUNT.fullmatch(text) is None:
                raise BrokerError(f"the header {header} is {text!r:.80}; it is a number of messages, such as 100")
            return int(text)
    return None
