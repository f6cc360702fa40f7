"""A neighbour that knows the secret, speaks the protocol by our own codec, and lies."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Any

from postroad.config import BrokerConfig, Member, Neighbouring, NetworkConfig
from postroad.protocols.link import (
    CUSTODY,
    Control,
    Identity,
    LinkConversation,
    LinkReceiver,
    LinkSender,
    Neighbour,
    encode_control,
)
from postroad.routing.control_frames import encode_frame
from postroad.security import BrokerKeys, new_key, public_key
from postroad.server import Service
from tests.server.fleet import free_ports
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from postroad.routing.control_frames import Frame

SECRET = "a secret that all brokers share"
ROUTING, QUESTION = 1, 2
OPENED: list[Hostile] = []


class Ring:
    """Keys of some brokers, in files."""

    def __init__(self, folder: Path, *numbers: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.private = {number: new_key() for number in numbers}
        self.members = [Member(number=number, key=public_key(key)) for number, key in self.private.items()]
        self.files = {number: folder / f"{number}.key" for number in numbers}
        for number, path in self.files.items():
            path.write_bytes(self.private[number])

    def keys(self, number: int, network: str = "postroad") -> BrokerKeys:
        listed = {member.number: member.key for member in self.members}
        return BrokerKeys(network, number, self.private[number], listed)

    def settings(self, number: int) -> dict[str, Any]:
        return {"key": str(self.files[number]), "members": self.members}


class Hostile:
    """One connection of a hostile broker to the link port of another.

    It does whatever a test tells it to; what the other end says is collected in `heard`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, conversation: LinkConversation):
        self.reader = reader
        self.writer = writer
        self.conversation = conversation
        self.heard: list[Any] = []
        OPENED.append(self)

    @classmethod
    async def connect(
        cls,
        port: int,
        number: int,
        *,
        keys: BrokerKeys | None = None,
        secret: str | None = SECRET,
        tls: ssl.SSLContext | None = None,
        binding: bytes = b"",
        epoch: int | None = None,
    ) -> Hostile:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        identity = Identity(
            number,
            epoch or int(time.time() * 1_000),
            "postroad",
            secret=None if secret is None else secret.encode(),
            capabilities=CUSTODY,
            seals=keys,
            binding=binding,
        )
        neighbour = Neighbour(LinkSender(identity.epoch, custody=True), LinkReceiver())
        made = LinkConversation(
            identity, lambda _: neighbour, dialling=True, nonce=secrets.token_bytes(32), now=0, expected=None
        )
        hostile = cls(reader, writer, made)
        writer.write(made.begin())
        async with asyncio.timeout(PATIENCE):
            while not made.open and not hostile.said_goodbye and await hostile.listen():
                pass
        return hostile

    @property
    def open(self) -> bool:
        return self.conversation.open

    @property
    def said_goodbye(self) -> str:
        """Why the other end closed the link; empty as long as it has not."""
        return next((str(each) for each in self.heard if isinstance(each, Exception)), "")

    async def listen(self) -> bool:
        """One read; False at the end of the stream."""
        try:
            data = await self.reader.read(2**16)
        except ConnectionError:
            return False
        if not data:
            return False
        heard = self.conversation.receive(data, 0)
        for output in heard.output:
            self.writer.write(output)
        self.heard += heard.frames
        if heard.error is not None:
            self.heard.append(heard.error)
        return True

    async def control(self, kind: int) -> bytes:
        """Listen until a control frame of this kind comes."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for frame in self.heard:
                    if isinstance(frame, Control) and frame.kind == kind:
                        self.heard.remove(frame)
                        return bytes(frame.payload)
                assert await self.listen(), self.said_goodbye

    async def goodbye(self) -> str:
        """Listen until the other end closes the link, and tell why it did."""
        async with asyncio.timeout(PATIENCE):
            while await self.listen():
                pass
        return self.said_goodbye

    def say(self, frame: Frame) -> None:
        self.writer.write(encode_control(ROUTING, encode_frame(frame)))


@contextlib.asynccontextmanager
async def brokers_in_line(path: Path, ring: Ring | None = None, **network: Any) -> AsyncIterator[list[Service]]:
    """Brokers 2 and 3, linked with each other; broker 1, a neighbour of both, is the test's."""
    ports = dict(zip((2, 3), free_ports(2), strict=True))
    services = []
    for number, other in ((2, 3), (3, 2)):
        neighbours = [Neighbouring(number=other, port=ports[other]), Neighbouring(number=1, port=1)]
        keys = {} if ring is None else ring.settings(number)
        settings = {"secret": SECRET, "port": ports[number], "neighbours": neighbours, **keys, **network}
        config = BrokerConfig(
            number=number, port=0, admin_port=0, data=str(path / str(number)), network=NetworkConfig(**settings)
        )
        services.append(Service(config))
    try:
        for service in services:
            await service.start()
        yield services
    finally:
        for hostile in OPENED:
            hostile.writer.transport.abort()
        OPENED.clear()
        for service in services:
            await service.stop()
        # The last transports report their end in the next turns of the loop.
        await asyncio.sleep(0.05)
