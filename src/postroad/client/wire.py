"""The wire to the server: one connection, or one after another if the client may reconnect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from postroad.client.connection import ClientConnection
from postroad.client.errors import ClientError, ConnectionLost
from postroad.client.mailboxes import Intake, Mailbox
from postroad.client.publisher import Publisher
from postroad.client.received_message import ReceivedMessage
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.client.address import Address
    from postroad.client.backoff import Reconnect
    from postroad.client.connection import ClientHello
    from postroad.client.directory import Servers
    from postroad.protocols.stomp import Frame

__all__ = ["Wire"]

log = logging.getLogger("postroad.client")


@dataclass(eq=False, slots=True)
class _Entry:
    """A subscription: where its messages go, its SUBSCRIBE frame, and the connection on which that was sent last."""

    mailbox: Mailbox
    headers: list[tuple[str, str]]
    connection: ClientConnection


class Wire:
    """Keeps a connection up, as far as it may, and the subscriptions on it.

    Attributes:
        address: the server of the present connection, or of the last one; None before the first.
        intake: what waits for the program, and whether there is room for more.
        publisher: gives the ids of what is published; None when the server does.
    """

    def __init__(self, servers: Servers, hello: ClientHello, reconnect: Reconnect | None) -> None:
        self.address: Address | None = None
        self._servers = servers
        self.intake = Intake()
        self._hello = hello
        self._reconnect = reconnect
        self._connection: ClientConnection | None = None
        self._opened = 0
        self._up = asyncio.Event()
        self._failure: PostroadError | None = None
        self._reported = False
        self._upkeep: asyncio.Task[None] | None = None
        self._subscribed: dict[str, _Entry] = {}
        self.publisher: Publisher | None = None

    async def open(self) -> None:
        """Connect for the first time; this is tried once, whatever the policy, so that a wrong address shows."""
        if self._opened:
            raise ClientError("a client connects once; make a new one")
        self._connection = await self._connect()
        self._publish_over(self._connection)
        self._up.set()
        self._upkeep = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Disconnect from the server; raises an error that the server still sends."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        for entry in self._subscribed.values():
            entry.mailbox.end(None)
        unseen = self._unseen()
        self._failure = ClientError("the client is closed; make a new one")
        self._up.set()
        if self._connection is not None:
            if self._connection.ended.is_set():
                self._lose(ConnectionLost("the client was closed without a connection"))
            await self._connection.close()
        if self.publisher is not None and self.publisher.unconfirmed is not None:
            # Nobody waits for ever, also when the server did not answer the leave.
            self.publisher.unconfirmed.give_up(self._failure)
        if unseen is not None:
            raise unseen

    def _unseen(self) -> PostroadError | None:
        """An error of the server that was not raised, because no caller waited for it."""
        if self._connection is None or self._reported or self._connection.reported:
            return None
        failed = self._failure or self._connection.failure
        return None if isinstance(failed, ConnectionLost) else failed

    async def connection(self) -> ClientConnection:
        """The connection; waits for it while it is being restored.

        Raises:
            ClientError: the client is not connected, or has given up.
        """
        if self._connection is None:
            raise ClientError("the client is not connected; use it inside `async with`")
        if self._connection.ended.is_set() and self._failure is None:
            # The task that keeps the connection has not run yet; it decides what happens next.
            self._up.clear()
        await self._up.wait()
        if self._failure is not None:
            self._reported = True
            raise self._failure.with_traceback(None)
        return self._connection

    async def subscribe(self, mailbox: Mailbox, headers: list[tuple[str, str]]) -> None:
        """Subscribe, and do so again on each later connection. The mailbox gets what arrives."""
        connection = await self.connection()
        self._subscribed[mailbox.name] = _Entry(mailbox, headers, connection)
        try:
            await connection.request("SUBSCRIBE", headers)
        except BaseException:
            self._subscribed.pop(mailbox.name, None)
            # Cancelled while it waited, perhaps: the server has got, or will get, the wish anyway.
            connection.post("UNSUBSCRIBE", [("id", mailbox.name)])
            raise

    async def unsubscribe(self, mailbox: Mailbox) -> None:
        """End a subscription."""
        entry = self._subscribed.pop(mailbox.name, None)
        if entry is None:
            return
        with contextlib.suppress(ConnectionLost):
            connection = await self.connection()
            # With a lost connection the server has forgotten the subscription, and nothing is to be undone.
            if entry.connection is connection:
                await connection.request("UNSUBSCRIBE", [("id", mailbox.name)])

    # --- connections -----------------------------------------------------------------------------------------------

    async def _connect(self) -> ClientConnection:
        """Connect to the first server that takes this client; raises what the last one said when none does."""
        failure: PostroadError = ConnectionLost(f"{self._servers}: names no server")
        was = None if self.publisher is None else self.publisher.grant
        for address in await self._servers.addresses():
            self._opened += 1
            try:
                connection = await ClientConnection.open(
                    address, self._hello, self._opened, self.intake, self._deliver, was
                )
            except PostroadError as error:
                # Lost or refused: another server may have room where this one is full.
                failure = error
            else:
                self.address = address
                return connection
        raise failure

    def _publish_over(self, connection: ClientConnection) -> list[bytes]:
        """Find out who gives the ids over a new connection; returns what to send over it first, again."""
        grant, publisher = connection.grant, self.publisher
        if publisher is not None and (grant is None or not publisher.is_granted(grant)):
            self._lose(ConnectionLost("the server does not know this publisher any more"))
            publisher = None
        again: list[bytes] = []
        if publisher is not None and grant is not None:
            again = publisher.resume(grant, connection.clock)
        elif grant is not None:
            publisher = Publisher(grant, connection.clock, self._reconnect is not None, self._hello.now)
        self.publisher = connection.publisher = publisher
        return again

    def _lose(self, failure: PostroadError) -> None:
        """Unconfirmed messages cannot be sent again, so it stays unknown whether they were accepted."""
        if self.publisher is not None and self.publisher.unconfirmed is not None:
            lost = self.publisher.unconfirmed.give_up(failure)
            if lost:
                log.warning("%s: %d messages were not confirmed and may be lost: %s", self.address, lost, failure)

    def _deliver(self, frame: Frame, connection: int) -> None:
        found = self._subscribed.get(frame.headers.get("subscription", ""))
        # Messages that were under way when the program unsubscribed have no receiver.
        if found is not None:
            found.mailbox.put(ReceivedMessage.of(frame, connection))

    async def _keep(self) -> None:
        """Wait for the end of each connection, and make the next. If that fails in any way, nobody waits for it."""
        try:
            await self._keep_up()
        except Exception as error:
            self._give_up(ClientError(f"the connection cannot be restored ({type(error).__name__}: {error})"))
            raise

    async def _keep_up(self) -> None:
        assert self._connection is not None
        while True:
            await self._connection.ended.wait()
            self._up.clear()
            failure = self._connection.failure
            assert failure is not None
            await self._connection.close()
            if not isinstance(failure, ConnectionLost):
                # The server refused something. What came after it was not carried out, and to send all of it again
                # would be refused again.
                self._lose(failure)
            if self._reconnect is not None:
                log.warning("%s: %s; reconnecting", self.address, failure)
                self._connection.reported = True
                failure = await self._restore(self._reconnect, failure)
            if failure is not None:
                self._give_up(failure)
                return
            self._up.set()

    async def _restore(self, policy: Reconnect, failure: PostroadError) -> PostroadError | None:
        """Connect again and subscribe again; None, or why not."""
        for delay in policy.delays(Random()):
            await asyncio.sleep(delay)
            try:
                connection = await self._connect()
            except ConnectionLost as lost:
                failure = lost
                continue
            except PostroadError as refused:
                return refused
            try:
                await self._subscribe_again(connection)
                await self._send_again(connection)
            except ConnectionLost as lost:
                failure = lost
                continue
            except PostroadError as refused:
                return refused
            self._connection = connection
            return None
        return ConnectionLost(f"{failure}; gave up after {policy.attempts} attempts to reconnect")

    async def _subscribe_again(self, connection: ClientConnection) -> None:
        try:
            for entry in list(self._subscribed.values()):
                await connection.request("SUBSCRIBE", entry.headers)
                entry.connection = connection
        except BaseException:
            with contextlib.suppress(PostroadError):
                await connection.close()
            raise

    async def _send_again(self, connection: ClientConnection) -> None:
        if again := self._publish_over(connection):
            try:
                await connection.write(b"".join(again))
            except ConnectionLost:
                raise
            except PostroadError:
                # Refused, as it would be by any other connection: the keeper sees that this one has ended.
                return

    def _give_up(self, failure: PostroadError) -> None:
        self._lose(failure)
        self._failure = failure
        self._reported = bool(self._subscribed)
        for entry in self._subscribed.values():
            entry.mailbox.end(failure)
        self._up.set()
