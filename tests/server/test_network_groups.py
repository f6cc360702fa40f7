"""Message groups in a network: consumers at all brokers come and go, and each group goes on in order."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from postroad.broker import QueueSettings
from postroad.store import StoreSettings
from postroad.topology import Plan, line
from tests.server.planned import planned
from tests.server.scene import Client, run

if TYPE_CHECKING:
    from pathlib import Path

STORE = StoreSettings(cache_bytes=20_000, segment_bytes=65_536)
# Consumers that leave give back messages repeatedly; none is to become a dead letter.
QUEUES = QueueSettings(max_deliveries=1_000, redelivery_ms=5, max_redelivery_ms=20)
GROUPS = 6
COUNT = 200
CONSUMERS = 5


class Groups:
    """What is known of each message of each group: who has it, and whether it was acknowledged."""

    def __init__(self) -> None:
        self.sent = [0] * GROUPS
        self.all_sent = False
        self.deliveries = 0
        self._held: list[dict[int, object]] = [{} for _ in range(GROUPS)]
        self._settled: list[set[int]] = [set() for _ in range(GROUPS)]

    @property
    def done(self) -> bool:
        return self.all_sent and [len(each) for each in self._settled] == self.sent

    def delivered(self, group: int, number: int, to: object) -> None:
        held, settled = self._held[group], self._settled[group]
        assert number not in settled
        assert {each for each in held.values() if each is not to} == set(), "two consumers have the group"
        assert [each for each in range(number) if each not in settled and held.get(each) is not to] == []
        held[number] = to
        self.deliveries += 1

    def settled(self, group: int, number: int) -> None:
        del self._held[group][number]
        self._settled[group].add(number)

    def gone(self, consumer: object) -> None:
        for held in self._held:
            for number in [each for each, holder in held.items() if holder is consumer]:
                del held[number]


async def publish(port: int, groups: Groups, chance: random.Random) -> None:
    client = await Client.connect(port)
    for _ in range(COUNT):
        group = chance.randrange(GROUPS)
        body = b"%d %d" % (group, groups.sent[group])
        client.send("SEND", body, destination="/queue/work", receipt="stored", JMSXGroupID=f"g{group}")
        groups.sent[group] += 1
        assert (await client.frame()).command == "RECEIPT"
    groups.all_sent = True
    await client.close()


async def consume(port: int, groups: Groups, chance: random.Random) -> None:
    """Take some messages, acknowledge most of them, and leave."""
    client = await Client.connect(port)
    prefetch = {"prefetch-count": str(chance.choice([1, 3, 20]))}
    client.send("SUBSCRIBE", id="1", destination="/queue/work", ack="client-individual", **prefetch)
    waiting: list[tuple[int, int, str]] = []
    for _ in range(chance.randint(1, 40)):
        try:
            frame = await asyncio.wait_for(client.frame(), 0.05)
        except TimeoutError:
            frame = None
        if frame is not None:
            group, number = map(int, frame.body.split())
            groups.delivered(group, number, client)
            waiting.append((group, number, frame.headers["ack"]))
        if waiting and (frame is None or chance.random() < 0.6):
            group, number, ack = waiting.pop(0)
            client.send("ACK", id=ack, receipt="settled")
            groups.settled(group, number)
            meanwhile = []
            while (frame := await client.frame()).command != "RECEIPT":
                meanwhile.append(frame)
            client.waiting[:0] = meanwhile
        if groups.done:
            break
    groups.gone(client)
    await client.close()


@pytest.mark.parametrize("seed", range(2))
def test_each_group_goes_on_in_order_at_one_consumer_while_consumers_at_all_brokers_come_and_go(
    seed: int, tmp_path: Path
) -> None:
    chance, groups = random.Random(seed), Groups()

    async def come_and_go(ports: list[int]) -> None:
        while not groups.done:
            await consume(chance.choice(ports), groups, chance)

    async def talk() -> None:
        async with planned(Plan.of(line(3), "groups"), tmp_path, store=STORE, queues=QUEUES) as network:
            await network.all_ways_are_shortest()
            ports = [one.port for one in network.services.values()]
            await asyncio.gather(
                publish(chance.choice(ports), groups, chance), *(come_and_go(ports) for _ in range(CONSUMERS))
            )
            assert groups.deliveries > COUNT

    run(talk, patience=90)
