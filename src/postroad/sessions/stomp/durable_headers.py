"""How clients of other brokers spell a durable subscription in STOMP.

| broker | SUBSCRIBE | client |
| --- | --- | --- |
| ActiveMQ Classic | `activemq.subscriptionName: NAME` | `client-id` of CONNECT |
| Artemis | `durable-subscription-name: NAME`, formerly `durable-subscriber-name` | `client-id` of CONNECT |
| RabbitMQ | `durable:true` with `auto-delete:false`, or `persistent:true`; `id: NAME` | `client-id` if there is one |

UNSUBSCRIBE with any of these headers deletes the subscription; without them, only its client leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLIENT_ID_HEADER", "deletes_durable", "durable_name"]

CLIENT_ID_HEADER = "client-id"

# Headers that name the subscription; they need a client-id.
NAMING = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
# Headers that ask for a durable subscription, which is named by its id.
ASKING = ("durable", "persistent")
AUTO_DELETE = "auto-delete"


def durable_name(headers: Mapping[str, str], client: str, key: str | None) -> tuple[str, str] | None:
    """Return the client and the name of the durable subscription that a frame asks for; None if it asks for none.

    Args:
        headers: of SUBSCRIBE or UNSUBSCRIBE.
        client: the client-id of the connection; empty without.
        key: the id of the subscription.

    Raises:
        BrokerError: the frame asks for one, but does not say whose or under which name.
    """
    client = client or headers.get(CLIENT_ID_HEADER, "")
    for header in NAMING:
        if header in headers:
            if not client:
                raise BrokerError(f"{header} needs a client-id in CONNECT, which says whose subscription it is")
            return client, headers[header]
    if not any(headers.get(header) == "true" for header in ASKING):
        return None
    if headers.get(AUTO_DELETE, "false") == "true":
        raise BrokerError("durable:true and auto-delete:true contradict each other: leave one of them out")
    if key is None:
        raise BrokerError("a durable subscription is named by its id: give it one that stays the same")
    # RabbitMQ has no client-id: there the id alone is the name, for all connections of a user.
    return client or "-", key


def deletes_durable(headers: Mapping[str, str]) -> bool:
    """Return whether an UNSUBSCRIBE deletes a durable subscription instead of only leaving it."""
    return any(header in headers for header in NAMING) or any(headers.get(header) == "true" for header in ASKING)
