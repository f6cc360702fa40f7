"""A subscription: messages that match, one after the other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from postroad.client.errors import ClientError
from postroad.client.mailboxes import Mailbox
from postroad.client.send_frames import destination_of
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from postroad.client.received_message import ReceivedMessage
    from postroad.client.wire import Wire

__all__ = ["AckMode", "Overflow", "Subscription"]

AckMode = Literal["auto", "client", "client-individual"]
Overflow = Literal["spool", "drop-oldest", "push-back", "disconnect"]


class Subscription:
    """A subscription, as `Client.subscribe` returns it.

    Two ways to use it. `async for message in client.subscribe(…)` subscribes when the loop begins and unsubscribes when
    it ends. `async with client.subscribe(…) as subscription:` has subscribed when the block begins, so it misses
    nothing that is published from then on, and unsubscribes at its end; inside, loop over it or `get` one by one.

    Attributes:
        id: its name on the connection.
        topic: the pattern, or `/queue/` and the name of a queue.
        where: the selector; empty for all messages.
        ack: how messages are acknowledged.
    """

    def __init__(
        self,
        wire: Wire,
        name: str,
        topic: str,
        where: str,
        ack: AckMode,
        overflow: Overflow | None,
        queue: int,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        if queue < 1:
            raise ClientError(f"a subscription's queue holds 1 message or more, not {queue}")
        self.id = name
        self.topic = topic
        self.where = where
        self.ack = ack
        self._wire = wire
        self._mailbox = Mailbox(name, queue, wire.intake)
        self._overflow = overflow
        self._headers = headers
        self._started = False

    @property
    def waiting(self) -> int:
        """How many messages have arrived and are not taken yet."""
        return self._mailbox.waiting

    async def start(self) -> None:
        """Subscribe, and wait until the server has.

        Raises:
            ClientError: the server refused, for example because of a mistake in the selector.
        """
        if self._started:
            raise ClientError(f"subscription {self.id} has been started before; make another one")
        self._started = True
        pairs = [("id", self.id), ("destination", destination_of(self.topic)), ("ack", self.ack), *self._headers]
        if self.where:
            pairs.append(("selector", self.where))
        if self._overflow is not None:
            pairs.append(("overflow", self._overflow))
        await self._wire.subscribe(self._mailbox, pairs)

    async def unsubscribe(self) -> None:
        """Unsubscribe. Messages that have arrived can still be taken."""
        self._mailbox.end(None)
        await self._wire.unsubscribe(self._mailbox)

    async def get(self) -> ReceivedMessage:
        """The next message.

        Raises:
            ClientError: there will be none: the connection has ended, or the program has unsubscribed.
        """
        if not self._started:
            raise ClientError(f"subscription {self.id} is not started; use it inside `async with`")
        message = await self._mailbox.take()
        if message is None:
            raise ClientError(f"subscription {self.id} has ended")
        return message

    async def __aenter__(self) -> Subscription:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(PostroadError):
            await self.unsubscribe()

    def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        begun_here = not self._started
        if begun_here:
            await self.start()
        try:
            while (message := await self._mailbox.take()) is not None:
                yield message
        finally:
            if begun_here:
                with contextlib.suppress(PostroadError):
                    await self.unsubscribe()
