"""The clients of the demonstration: who wants what, what is published, and who got which message."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroad.client import Client, Subscription
    from postroad.messages import MessageId, Value

__all__ = ["WISHES", "DemoClients", "DemoTraffic", "Wish"]

SEED = 1
# Nothing more comes when nothing came for so long; deliveries take milliseconds.
QUIET_SECONDS = 0.5
# Every so many messages the publisher waits for a receipt, so that no queue fills up.
RECEIPT_EVERY = 100
# What is published in the background, while a broker is killed: slow enough to watch.
TRICKLE_SECONDS = 0.02


class Wish(NamedTuple):
    """A subscriber of the demonstration.

    Attributes:
        name: its login.
        broker: where it connects.
        topic: what it subscribes to.
        where: its selector.
    """

    name: str
    broker: int
    topic: str
    where: str


# Broker 3 has no clients: it only relays between 2 and 4.
WISHES = (
    Wish("warehouse", 4, "orders.>", "quantity > 90"),
    Wish("fraud-desk", 5, "orders.*", "amount BETWEEN 900 AND 1000 AND country <> 'FR'"),
    Wish("auditor", 1, "orders.fr", ""),
    Wish("caretaker", 4, "sensors.*.temperature", "celsius > 28"),
)
PUBLISHERS = {"shop": 2, "sensors": 1}
COUNTRIES = ("fr", "de", "us")
HALLS = ("hall1", "hall2")


class DemoTraffic(NamedTuple):
    """What clients saw: the ids that were published, and who got which."""

    published: list[MessageId]
    received: dict[str, set[str]]

    def copies(self, message: MessageId) -> int:
        """How many subscribers got a message."""
        return sum(str(message) in got for got in self.received.values())


class DemoClients:
    """Clients of a running network.

    Args:
        addresses: of the brokers, by their numbers.
    """

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses
        self._draw = random.Random(SEED)
        self._clients: dict[str, Client] = {}
        self._readers: list[asyncio.Task[None]] = []
        self.traffic = DemoTraffic([], {wish.name: set() for wish in WISHES})

    async def __aenter__(self) -> DemoClients:
        from postroad.client import connect

        places = {**{wish.name: wish.broker for wish in WISHES}, **PUBLISHERS}
        for name, broker in places.items():
            self._clients[name] = await connect(self._addresses[broker], login=name).__aenter__()
        for wish in WISHES:
            subscription = await self._clients[wish.name].subscribe(wish.topic, wish.where).__aenter__()
            self._readers.append(asyncio.create_task(_read(subscription, self.traffic.received[wish.name])))
        await self._until_known()
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for client in self._clients.values():
            await client.__aexit__(None, None, None)

    async def _until_known(self) -> None:
        """Wait until brokers have told each other who wants what: a message before that matches nobody elsewhere."""
        wanted: dict[str, tuple[str, str, dict[str, Value]]] = {
            "warehouse": ("shop", "orders.fr", {"quantity": 99, "amount": 1, "country": "FR"}),
            "fraud-desk": ("shop", "orders.de", {"quantity": 1, "amount": 950, "country": "DE"}),
            "auditor": ("shop", "orders.fr", {"quantity": 1, "amount": 1, "country": "FR"}),
            "caretaker": ("sensors", "sensors.hall1.temperature", {"celsius": 40.0}),
        }
        while waiting := [name for name, got in self.traffic.received.items() if not got]:
            for name in waiting:
                publisher, topic, attributes = wanted[name]
                await self._publish(publisher, topic, attributes, receipt=True)
            await asyncio.sleep(0.1)

    async def _publish(self, publisher: str, topic: str, attributes: Mapping[str, Value], receipt: bool) -> MessageId:
        sent = await self._clients[publisher].publish(topic, attributes, receipt=receipt)
        assert sent is not None
        self.traffic.published.append(sent)
        return sent

    async def publish(self, count: int, pause: float = 0.0) -> Sequence[MessageId]:
        """Publish some orders and sensor readings, and wait until nothing more arrives."""
        first = len(self.traffic.published)
        draw = self._draw
        for number in range(count):
            receipt = pause > 0 or number % RECEIPT_EVERY == RECEIPT_EVERY - 1
            if draw.random() < 0.6:
                country = draw.choice(COUNTRIES)
                order: dict[str, Value] = {
                    "quantity": draw.randint(1, 100),
                    "amount": draw.randint(1, 2000),
                    "country": country.upper(),
                }
                await self._publish("shop", f"orders.{country}", order, receipt)
            else:
                topic = f"sensors.{draw.choice(HALLS)}.temperature"
                await self._publish("sensors", topic, {"celsius": round(draw.gauss(22, 4), 1)}, receipt)
            if pause:
                await asyncio.sleep(pause)
        await self.quiet()
        return self.traffic.published[first:]

    async def quiet(self) -> None:
        """Wait until nothing more comes."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            now = sum(len(ids) for ids in self.traffic.received.values())
            if now != count:
                count, since = now, time.monotonic()
            await asyncio.sleep(0.05)


async def _read(subscription: Subscription, got: set[str]) -> None:
    async for message in subscription:
        got.add(str(message.id))
