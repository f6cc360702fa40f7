"""A transaction: messages and acknowledgements that count together, or not at all."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from postroad.client.acknowledgements import acknowledgement
from postroad.client.errors import ClientError
from postroad.client.send_frames import send_frame, with_headers
from postroad.errors import LimitError, PostroadError
from postroad.messages import Draft, MessageId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.client.connection import ClientConnection
    from postroad.client.received_message import ReceivedMessage
    from postroad.client.wire import Wire
    from postroad.messages import Value

__all__ = ["Transaction"]

# As much as a broker of ours keeps for the open transactions of a connection.
MAX_TRANSACTION_BYTES = 16 * 1024 * 1024

_COUNT = re.compile(r"[0-9]{1,9}")


class Transaction:
    """A transaction, as `Client.transaction` returns it: it commits when its block ends, and aborts when the block
    raises.

    It belongs to one connection: when that is lost, the server drops it, and later calls raise an error. If the client
    gives the ids, messages wait here for the commit: ids increase in the order in which messages count.

    Attributes:
        first_id: after the commit, the id of its first message; the others have the next ones. None without messages.
        count: after the commit, how many messages it had.
    """

    def __init__(self, wire: Wire, name: str) -> None:
        self.name = name
        self.first_id: MessageId | None = None
        self.count = 0
        self._wire = wire
        self._connection: ClientConnection | None = None
        self._frames: list[bytes] = []
        self._bytes = 0

    async def publish(
        self,
        topic: str,
        attributes: Mapping[str, Value] | None = None,
        body: bytes | str = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Publish when the transaction commits."""
        data = body.encode() if isinstance(body, str) else body
        draft = Draft(topic, attributes or {}, headers or {}, data)
        connection, frame = self._open(), send_frame(draft, transaction=self.name)
        if connection.publisher is None:
            await connection.write(frame)
            return
        if self._bytes + len(frame) > MAX_TRANSACTION_BYTES:
            raise LimitError(
                "what a transaction holds", self._bytes + len(frame), MAX_TRANSACTION_BYTES, "bytes; commit sooner"
            )
        connection.check()
        self._frames.append(frame)
        self._bytes += len(frame)

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge when the transaction commits."""
        connection = self._open()
        await connection.write(acknowledgement("ACK", message, connection.number, self.name))

    async def nack(self, message: ReceivedMessage) -> None:
        """Refuse a message when the transaction commits."""
        connection = self._open()
        await connection.write(acknowledgement("NACK", message, connection.number, self.name))

    async def __aenter__(self) -> Transaction:
        if self._connection is not None:
            raise ClientError("a transaction is used once; begin another one")
        self._connection = await self._wire.connection()
        await self._connection.request("BEGIN", [("transaction", self.name)])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        connection = self._open()
        if kind is not None:
            # The program's own error is the one to see.
            with contextlib.suppress(PostroadError):
                await connection.request("ABORT", [("transaction", self.name)])
            return
        publisher = connection.publisher
        # In one write with the commit, so that no other message comes between with a later id.
        frames = [with_headers(frame, message_id=str(publisher.stamp())) for frame in self._frames] if publisher else []
        receipt = await connection.request("COMMIT", [("transaction", self.name)], b"".join(frames))
        count = receipt.headers.get("message-count", "0")
        if _COUNT.fullmatch(count) is None:
            raise ClientError(f"the receipt of a COMMIT has message-count {count!r:.80}, which is not a number")
        self.count = int(count)
        if (text := receipt.headers.get("message-id")) is not None:
            self.first_id = MessageId.parse(text)

    def _open(self) -> ClientConnection:
        if self._connection is None:
            raise ClientError("the transaction has not begun; use it inside `async with`")
        return self._connection
