"""Queues used over sockets from brokers that are not their home, with another broker between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.topology import Plan, line
from tests.server.planned import planned
from tests.server.queue_scene import answer, consumer, messages, produce, texts
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from pathlib import Path

PLAN = msgspec.structs.replace(Plan.of(line(3), "queues"), queue_homes={"work": 1})


def test_queue_is_sent_to_and_consumed_through_a_broker_in_between_and_a_cut_on_the_way(tmp_path: Path) -> None:
    async def talk() -> None:
        async with planned(PLAN, tmp_path) as network:
            await network.all_ways_are_shortest()
            far = network.services[3].port
            await produce(far, "a", "b")
            reader = await consumer(far)
            frames = await messages(reader, 2)
            assert texts(frames) == ["a", "b"]
            for frame in frames:
                await answer(reader, "ACK", frame)
            network.wires[1, 2].cut()
            await produce(far, "c")
            network.wires[1, 2].mend()
            frames = await messages(reader, 1)
            assert texts(frames) == ["c"]
            await answer(reader, "ACK", frames[0])
            home = network.services[1].dispatcher.core
            assert home.queues is not None
            (queue,) = home.queues.listed()
            await until(lambda: queue.cursor.rows == 0)
            assert network.services[2].dispatcher.core.statistics().queues_now == 0
            await reader.close()

    run(talk, patience=90)


def test_deleted_queue_closes_its_consumers_at_other_brokers(tmp_path: Path) -> None:
    async def talk() -> None:
        async with planned(PLAN, tmp_path) as network:
            await network.all_ways_are_shortest()
            reader = await consumer(network.services[3].port)
            service = network.services[1]
            core = service.dispatcher.core
            await until(lambda: core.statistics().consumers_now == 1)
            assert core.queues is not None
            (queue,) = core.queues.listed()
            outbox = core.drained(core.attached("operator"), 0)
            core.queues.delete(queue, "not needed", outbox, service.dispatcher.clock())
            service.dispatcher.carry_out(outbox)
            error = await reader.frame()
            assert (error.command, error.headers["message"]) == ("ERROR", "the queue 'work' was deleted")
            await reader.close()

    run(talk, patience=90)


def test_neighbour_that_sends_bytes_that_are_no_packet_is_refused(tmp_path: Path) -> None:
    async def talk() -> None:
        async with planned(PLAN, tmp_path, (1, 2)) as network:
            links = network.services[2].links
            assert links is not None
            await until(lambda: 1 in links.up)
            links.send_packet(1, b"no packet")
            home = network.services[1].links
            assert home is not None
            await until(lambda: [one.neighbour for one in home.quarantined()] == [2])
            # Clients of the broker notice nothing.
            await (await Client.connect(network.services[1].port)).close()

    run(talk, patience=60)
