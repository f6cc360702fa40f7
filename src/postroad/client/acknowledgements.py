"""ACK and NACK frames for messages that arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from postroad.client.errors import ClientError
from postroad.protocols.stomp import encode_frame

if TYPE_CHECKING:
    from postroad.client.received_message import ReceivedMessage

__all__ = ["acknowledgement"]


def acknowledgement(
    command: Literal["ACK", "NACK"], message: ReceivedMessage, connection: int, transaction: str | None = None
) -> bytes:
    """The frame that acknowledges or refuses a message, to be sent on this connection.

    Raises:
        ClientError: the message needs none, or came over a connection that is gone.
    """
    if message.ack is None:
        raise ClientError(f"message {message.message_id}: its subscription has ack='auto', so nothing waits for this")
    if message.connection != connection:
        raise ClientError(
            f"message {message.message_id} came over a connection that is gone, and the server has forgotten that it"
            " waits for an acknowledgement"
        )
    pairs = [("id", message.ack)]
    if transaction is not None:
        pairs.append(("transaction", transaction))
    return encode_frame(command, pairs)
