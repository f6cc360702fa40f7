"""`connect` and the client it gives."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

from postroad.client.acknowledgements import acknowledgement
from postroad.client.address import parse_address
from postroad.client.connection import ClientHello
from postroad.client.directory import DirectoryOfServers, OneServer
from postroad.client.errors import ClientError, ConnectionLost
from postroad.client.send_frames import QUEUE_PREFIX, send_frame, with_headers
from postroad.client.subscription import Subscription
from postroad.client.transaction import Transaction
from postroad.client.unconfirmed_messages import CONFIRMS
from postroad.client.wire import Wire
from postroad.errors import PostroadError
from postroad.messages import Draft, MessageId
from postroad.messages.characters import first_invisible, shown

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Iterable, Iterator, Mapping

    from postroad.client.backoff import Reconnect
    from postroad.client.clock import ClientClock
    from postroad.client.connection import ClientConnection
    from postroad.client.directory import Servers
    from postroad.client.received_message import ReceivedMessage
    from postroad.client.subscription import AckMode, Overflow
    from postroad.messages import Value
    from postroad.protocols.stomp import Frame

__all__ = ["Client", "IdsBy", "connect"]

IdsBy = Literal["client", "broker"]

# Messages that may wait for the program, per subscription, before the client stops reading the connection. At 250 bytes
# each this is a quarter of a megabyte: enough to keep a loop busy for a round trip, and negligible memory.
DEFAULT_QUEUE = 1_000
# What `publish_many` sends in one write, and how many receipts it waits for at a time.
WRITE_BYTES = 256 * 1024
WRITE_MESSAGES = 1_000


def connect(
    server: str | None = None,
    *,
    directory: str | None = None,
    login: str | None = None,
    passcode: str | None = None,
    tls: ssl.SSLContext | None = None,
    heart_beat: tuple[int, int] = (10_000, 10_000),
    timeout: float = 30.0,
    reconnect: Reconnect | None = None,
    ids: IdsBy = "client",
) -> Client:
    """A client of a server; `async with connect(…) as client:` connects it.

    Args:
        server: `stomp://host:port`, or `stomps://host:port` for TLS.
        directory: instead of a server, `http://host:port` of a network's directory. Each connection asks it for live
            brokers and tries them in order.
        login: who you are, where the server asks.
        passcode: the proof of it.
        tls: how to check the server's certificate; by default against the system's authorities.
        heart_beat: milliseconds: how often this client beats, and how often the server should; 0 for never.
        timeout: seconds that the server may take to answer anything.
        reconnect: when to try again after the connection is lost; by default never.
        ids: who gives messages their ids: this client, if the server lets it, or always the broker.

    Raises:
        ClientError: the address is not one, there are two or none, or the login has an invisible character.
    """
    if (server is None) == (directory is None):
        raise ClientError("connect to a server or through a directory: give one of them")
    _check_visible("login", login or "", blanks=True)
    if min(heart_beat) < 0 or timeout <= 0:
        raise ClientError("heart_beat is 0 or more milliseconds, and timeout more than 0 seconds")
    if ids not in ("client", "broker"):
        raise ClientError(f"ids is 'client' or 'broker', not {ids!r}")
    hello = ClientHello(
        login=login,
        passcode=passcode,
        heart_beat=heart_beat,
        tls=tls,
        timeout=timeout,
        gives_ids=ids == "client",
    )
    servers: Servers
    if server is not None:
        address = parse_address(server)
        if tls is not None and not address.tls:
            raise ClientError(f"server {server!r} is without TLS; write stomps://… to use it")
        servers = OneServer(address)
    else:
        servers = DirectoryOfServers(directory or "", timeout, tls)
    return Client(Wire(servers, hello, reconnect))


class Client:
    """A connection to a broker, for one asyncio loop."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._names = itertools.count(1)

    async def __aenter__(self) -> Client:
        await self._wire.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._wire.close()
        except PostroadError:
            # The program's own error must not be hidden by this one.
            if kind is None:
                raise

    @property
    def server(self) -> str:
        """The server of the present connection, or of the last one."""
        return str(self._wire.address or "")

    async def clock(self) -> ClientClock:
        """How the server's clock compares with this machine's, if the server said its time."""
        connection = await self._wire.connection()
        return connection.clock if connection.publisher is None else connection.publisher.clock

    # --- publishing ------------------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        attributes: Mapping[str, Value] | None = None,
        body: bytes | str = b"",
        *,
        headers: Mapping[str, str] | None = None,
        receipt: bool = False,
    ) -> MessageId | None:
        """Publish a message.

        Args:
            topic: where.
            attributes: what selectors look at. Over STOMP all of it arrives as text; numbers are written so that
                selectors take them for numbers.
            body: the content; a str is sent as UTF-8.
            headers: header lines as they are, such as `content-type`, `priority` or `expires`.
            receipt: wait until the broker has accepted it. Without, a refusal shows in a later call, or at the end.

        Returns:
            its id; None if it is the broker that gives ids, and no receipt was asked for.

        Raises:
            ClientError: the broker refused it, or the connection has ended.
            PostroadError: the topic, an attribute or the body is not one that a broker would take.
        """
        data = body.encode() if isinstance(body, str) else body
        ids = await self._send([send_frame(Draft(topic, attributes or {}, headers or {}, data))], receipt)
        return ids[0] if ids else None

    async def publish_many(self, drafts: Iterable[Draft], *, receipt: bool = False) -> list[MessageId]:
        """Publish many messages, in as few writes as they fit into; their ids, as `publish` returns them.

        Raises:
            ClientError: the broker refused one, or the connection has ended; those before it may have been accepted.
        """
        ids: list[MessageId] = []
        for part in _parts(drafts):
            ids += await self._send([send_frame(draft) for draft in part], receipt)
        return ids

    async def _send(self, frames: list[bytes], receipt: bool) -> list[MessageId]:
        """Send what is to be published, and wait for receipts if asked to; the ids, as far as they are known."""
        connection = await self._ready()
        publisher = connection.publisher
        if publisher is None:
            if receipt:
                return [_id_of(frame) for frame in await self._confirmed(connection, frames)]
            await connection.write(b"".join(frames))
            return []
        # No other task may run from here to the write: ids rise in the order of the frames on the wire.
        ids = [publisher.stamp() for _ in frames]
        frames = [with_headers(frame, message_id=str(given)) for given, frame in zip(ids, frames, strict=True)]
        kept = publisher.unconfirmed
        if kept is not None and kept.keep(zip((given.tail for given in ids), frames, strict=True)):
            frames[-1] = with_headers(frames[-1], receipt=CONFIRMS)
        try:
            if receipt:
                await self._confirmed(connection, frames)
            else:
                await connection.write(b"".join(frames))
        except ConnectionLost:
            if kept is None:
                raise
            if receipt:
                await kept.confirmed(ids[-1].tail)
        return ids

    async def _ready(self) -> ClientConnection:
        """The connection, when there is room to keep what is sent over it."""
        while True:
            connection = await self._wire.connection()
            kept = None if connection.publisher is None else connection.publisher.unconfirmed
            if kept is None or not kept.is_full:
                return connection
            await kept.room()

    async def _confirmed(self, connection: ClientConnection, frames: list[bytes]) -> list[Frame]:
        expected: list[tuple[str, asyncio.Future[Frame]]] = []
        try:
            asking = []
            for frame in frames:
                expected.append(connection.expect())
                asking.append(with_headers(frame, receipt=expected[-1][0]))
            await connection.write(b"".join(asking))
        except BaseException:
            connection.forget(expected)
            raise
        return await connection.answers(expected)

    def transaction(self) -> Transaction:
        """Messages and acknowledgements that count together: `async with client.transaction() as transaction:`."""
        return Transaction(self._wire, f"t{next(self._names)}")

    # --- subscribing -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        ack: AckMode = "auto",
        overflow: Overflow | None = None,
        queue: int = DEFAULT_QUEUE,
        durable: str | None = None,
        prefetch: int | None = None,
    ) -> Subscription:
        """Messages of a topic, or of all topics that match a pattern, one after the other; or those of a queue.

        Args:
            topic: a topic, a pattern such as `quotes.>`, or a queue such as `/queue/orders`.
            where: a selector, such as `price > 20`; the broker sends only what it is true for.
            ack: `auto` counts a message as done when it is sent; `client` when it or a later one is acknowledged;
                `client-individual` when it is.
            overflow: what the broker does when this client is too slow; the broker's own choice by default.
            queue: how many messages may wait here before the client stops reading the connection.
            durable: a name under which the subscription outlives this client: the next client that subscribes under
                it gets what came in the meantime. A queue needs none.
            prefetch: how many messages it may have that it has not acknowledged, unless `ack` is auto.

        Raises:
            ClientError: the topic or the name has a blank or another invisible character, or the broker would ignore
                one of these choices because of another.
        """
        _check_visible("topic", topic)
        _check_counts(topic, ack, overflow, durable, prefetch)
        headers: list[tuple[str, str]] = []
        if durable is not None:
            _check_visible("name of a durable subscription", durable)
            headers += [("durable", "true"), ("auto-delete", "false")]
        if prefetch is not None:
            headers.append(("prefetch-count", str(prefetch)))
        name = f"s{next(self._names)}" if durable is None else durable
        return Subscription(self._wire, name, topic, where, ack, overflow, queue, tuple(headers))

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Messages that have arrived can still be taken."""
        await subscription.unsubscribe()

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message; in mode `client`, with all earlier ones."""
        connection = await self._wire.connection()
        await connection.write(acknowledgement("ACK", message, connection.number))

    async def nack(self, message: ReceivedMessage) -> None:
        """Refuse a message that could not be processed."""
        connection = await self._wire.connection()
        await connection.write(acknowledgement("NACK", message, connection.number))


def _check_counts(
    topic: str, ack: AckMode, overflow: Overflow | None, durable: str | None, prefetch: int | None
) -> None:
    """Refuse choices that the broker would ignore because of others.

    Raises:
        ClientError: there is one.
    """
    is_queue = topic.startswith(QUEUE_PREFIX)
    if durable is not None and is_queue:
        raise ClientError(f"{topic}: a queue keeps its messages without a durable subscription; leave out durable")
    if overflow is not None and (is_queue or durable is not None):
        what = "a queue" if is_queue else "a durable subscription"
        raise ClientError(
            f"{topic}: what waits for {what} waits in the broker's store, whatever overflow says; leave out overflow"
        )
    if prefetch is not None and ack == "auto":
        raise ClientError(
            f"{topic}: prefetch limits messages that are not acknowledged, and with ack 'auto' none has to be; leave "
            "out prefetch, or choose ack 'client' or 'client-individual'"
        )


def _parts(drafts: Iterable[Draft]) -> Iterator[list[Draft]]:
    part: list[Draft] = []
    size = 0
    for draft in drafts:
        part.append(draft)
        size += len(draft.body)
        if len(part) >= WRITE_MESSAGES or size >= WRITE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _id_of(frame: Frame) -> MessageId:
    text = frame.headers.get("message-id")
    if text is None:
        raise ClientError("the server confirms messages without their ids; only Postroad returns them")
    return MessageId.parse(text)


def _check_visible(what: str, text: str, blanks: bool = False) -> None:
    """Every broker refuses such a name; raised here, the error points at the caller."""
    if (at := first_invisible(text, blanks)) is not None:
        raise ClientError(f"{what} {text!r}: character {at} ({shown(text[at])}) cannot be seen; leave it out")
