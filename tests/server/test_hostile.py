"""Clients that mean harm, over real sockets: each is refused or slowed down by itself, and others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from tests.server.scene import Client, run, service

if TYPE_CHECKING:
    from pathlib import Path

LONG = "b = '" + "x" * 30_000 + "{number:05d}'"
SLOW = "b LIKE '%x_{number}%y%'"


@pytest.mark.parametrize(
    ("limit", "value", "selector"),
    [
        ("session_subscription_bytes", 1_000_000, LONG),
        ("subscription_bytes", 1_000_000, LONG),
        ("session_matching_ms", 10, SLOW),
        ("matching_ms", 10, SLOW),
    ],
)
def test_a_client_that_subscribes_beyond_a_budget_is_told_the_limit_and_closed(
    tmp_path: Path, limit: str, value: int, selector: str
) -> None:
    async def attack() -> None:
        async with service(tmp_path, limits=Limits(**{limit: value})) as broker:
            attacker, honest = await Client.connect(broker.port), await Client.connect(broker.port)
            for number in range(200):
                attacker.send(
                    "SUBSCRIBE", id=str(number), destination="/topic/t", selector=selector.format(number=number)
                )
            error = await attacker.frame()
            assert error.command == "ERROR"
            assert f"(limits.{limit})" in error.headers["message"]
            assert await attacker.at_end()
            # What it had is free again, and nobody else noticed.
            await honest.subscribe("s", "t", selector=selector.format(number=7))
            honest.publish("t", b"hello", b="x" * 30_000 + "00007" if "=" in selector else "ax-7zy")
            assert (await honest.frame()).body == b"hello"
            await attacker.close()
            await honest.close()

    run(attack)


def test_a_read_that_is_much_work_is_cut_into_turns_and_arrives_in_order(tmp_path: Path) -> None:
    async def flood() -> None:
        async with service(tmp_path, limits=Limits(turn_ms=1)) as broker:
            reader, writer, other = [await Client.connect(broker.port) for _ in range(3)]
            for number in range(20):
                await reader.subscribe(str(number), "t")
            await other.subscribe("o", "elsewhere")
            for number in range(400):
                writer.publish("t", str(number).encode())
            writer.send("SEND", destination="/topic/t", receipt="last")
            other.publish("elsewhere", b"through")
            assert (await other.frame()).body == b"through"
            assert (await writer.frame()).headers["receipt-id"] == "last"
            bodies: dict[str, list[bytes]] = {}
            for _ in range(20 * 401):
                frame = await reader.frame()
                bodies.setdefault(frame.headers["subscription"], []).append(frame.body)
            expected = [*(str(number).encode() for number in range(400)), b""]
            assert all(found == expected for found in bodies.values())
            assert len(bodies) == 20
            for client in (reader, writer, other):
                await client.close()

    run(flood)


def test_a_broker_that_stops_first_delivers_what_it_had_begun_with(tmp_path: Path) -> None:
    async def stop() -> None:
        async with service(tmp_path, limits=Limits(turn_ms=1)) as broker:
            reader, writer = await Client.connect(broker.port), await Client.connect(broker.port)
            for number in range(20):
                await reader.subscribe(str(number), "t")
            for number in range(300):
                writer.publish("t", str(number).encode())
            writer.send("SEND", destination="/topic/t", receipt="last")
            assert (await writer.frame()).headers["receipt-id"] == "last"
            await writer.close()
            await broker.stop()
            found = []
            while (frame := await reader.frame()).command == "MESSAGE":
                found.append(frame.body)
            assert frame.command == "ERROR"
            assert len(found) == 20 * 301
            await reader.close()

    run(stop)
