"""A received message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroad.client.send_frames import OWN_HEADERS, TOPIC_PREFIX
from postroad.messages import MessageId, Untyped, number_of

if TYPE_CHECKING:
    from postroad.protocols.stomp import Frame

__all__ = ["ReceivedMessage"]


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message from a subscription.

    Attributes:
        topic: where it was published; with `/queue/` before it where that is a queue.
        attributes: all it carries besides its body. STOMP's headers are text, so every value is.
        body: the content.
        message_id: the id as the server wrote it.
        subscription: the id of the subscription that it came through.
        ack: what an acknowledgement has to name; None when the subscription needs none.
        connection: which of the client's connections it came over, counted from 1; an acknowledgement must go back the
            same way.
    """

    topic: str
    attributes: dict[str, Untyped]
    body: bytes
    message_id: str
    subscription: str
    ack: str | None = None
    connection: int = 1

    @property
    def id(self) -> MessageId:
        """The id, taken apart; `DecodeError` when the server is not Postroad and writes its ids in another way."""
        return MessageId.parse(self.message_id)

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def number(self, name: str) -> int | float | None:
        """An attribute as the number that a selector would take it for; None when it is missing or no number."""
        value = self.attributes.get(name)
        return None if value is None else number_of(value)

    @classmethod
    def of(cls, frame: Frame, connection: int) -> ReceivedMessage:
        """The message of a MESSAGE frame."""
        headers = frame.headers
        return cls(
            topic=headers.get("destination", "").removeprefix(TOPIC_PREFIX),
            attributes={name: Untyped(value) for name, value in headers.items() if name not in OWN_HEADERS},
            body=frame.body,
            message_id=headers.get("message-id", ""),
            subscription=headers.get("subscription", ""),
            ack=headers.get("ack"),
            connection=connection,
        )
