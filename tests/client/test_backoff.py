"""Connections that are lost, and heart-beats that tell."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from postroad.client import ClientClock, ClientError, ConnectionLost, Reconnect, connect
from tests.client.serving import Script, address, broker, run, scripted, until

if TYPE_CHECKING:
    from pathlib import Path

QUICK = Reconnect(first=0.01, longest=0.05)


def test_subscriptions_live_on_when_the_broker_comes_back(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            port, server = service.port, address(service)
            client = connect(server, reconnect=QUICK)
            await client.__aenter__()
            subscription = client.subscribe("a", where="n > 1", ack="client-individual")
            await subscription.start()
            await client.publish("a", {"n": 2}, receipt=True)
            old = await subscription.get()
        async with broker(tmp_path, port=port) as service:
            await until(lambda: service.statistics().subscriptions_now == 1)
            await client.publish("a", {"n": 1}, receipt=True)
            await client.publish("a", {"n": 3}, receipt=True)
            new = await subscription.get()
            assert new.number("n") == 3
            assert (old.connection, new.connection > old.connection) == (1, True)
            with pytest.raises(ClientError, match="came over a connection that is gone"):
                await client.ack(old)
            await client.ack(new)
            await until(lambda: service.statistics().acknowledged == 1)
            await client.__aexit__(None)

    run(talk())


def test_without_a_policy_a_lost_connection_stays_lost(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            client = connect(address(service))
            await client.__aenter__()
            subscription = client.subscribe("a")
            await subscription.start()
        with pytest.raises(ClientError, match="this broker is stopping"):
            await subscription.get()
        with pytest.raises(ClientError, match="this broker is stopping"):
            await client.publish("a")
        await client.__aexit__(None)

    run(talk())


def test_client_gives_up_after_its_attempts_and_says_so(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            client = connect(address(service), reconnect=Reconnect(first=0.01, longest=0.01, attempts=3))
            await client.__aenter__()
            subscription = client.subscribe("a")
            await subscription.start()
        with pytest.raises(ConnectionLost, match="gave up after 3 attempts"):
            await client.publish("a")
        with pytest.raises(ConnectionLost, match="gave up after 3 attempts"):
            await subscription.get()
        await client.__aexit__(None)

    run(talk())


def test_client_can_leave_while_it_tries_to_reconnect(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            client = connect(address(service), reconnect=Reconnect(first=30.0))
            await client.__aenter__()
            subscription = client.subscribe("a")
            await subscription.start()
        waiting = asyncio.create_task(client.publish("a"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.__aexit__(None)
        with pytest.raises(ClientError, match="closed"):
            await waiting
        assert [message async for message in subscription] == []

    run(talk())


def test_transaction_of_a_lost_connection_does_not_commit_on_the_next(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            port = service.port
            client = connect(address(service), reconnect=QUICK)
            await client.__aenter__()
            transaction = client.transaction()
            await transaction.__aenter__()
            await transaction.publish("a")
        async with broker(tmp_path, port=port) as service:
            await client.publish("b", receipt=True)
            with pytest.raises(ClientError):
                await transaction.__aexit__(None)
            assert service.statistics().accepted == 1
            await client.__aexit__(None)

    run(talk())


def test_delays_double_up_to_the_longest_with_jitter() -> None:
    policy = Reconnect(first=1.0, longest=10.0)
    steps = [1, 2, 4, 8, 10, 10]
    for seed in range(20):
        delays = list(islice(policy.delays(Random(seed)), len(steps)))
        assert all(step / 2 <= delay <= step for step, delay in zip(steps, delays, strict=True))
    assert len({next(policy.delays(Random(seed))) for seed in range(20)}) == 20
    assert len(list(Reconnect(attempts=5).delays(Random(0)))) == 5


@pytest.mark.parametrize("settings", [{"first": 0.0}, {"first": 2.0, "longest": 1.0}, {"attempts": 0}])
def test_policy_that_cannot_work_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="reconnect"):
        Reconnect(**settings)


def test_server_that_stops_beating_is_given_up() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say("CONNECTED\nversion:1.2\nheart-beat:20,0\n\n\0")
        await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server, heart_beat=(0, 20)) as client:
            with pytest.raises(ConnectionLost, match=r"nothing heard from the server for 0\.04 s"):
                async for _ in client.subscribe("a"):
                    pass

    run(talk())


def test_idle_client_beats_as_often_as_the_server_wants() -> None:
    heard: list[bytes] = []

    async def play(script: Script) -> None:
        await script.frame()
        script.say("CONNECTED\nversion:1.2\nheart-beat:0,20\n\n\0")
        while len(heard) < 4:
            heard.append(await script.reader.readexactly(1))
        await script.reader.readuntil(b"receipt:1\n\n\0")
        script.say("RECEIPT\nreceipt-id:1\n\n\0")

    async def talk() -> None:
        async with scripted(play) as server, connect(server, heart_beat=(10, 0)):
            await until(lambda: len(heard) == 4)

    run(talk())
    # The first is the line end behind CONNECT.
    assert heard == [b"\n"] * 4


def test_client_knows_the_skew_when_the_server_says_its_time() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say("CONNECTED\nversion:1.2\nserver-time:1\n\n\0")
        await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server) as client:
            clock = await client.clock()
            assert clock.skew_ms is not None
            assert clock.skew_ms < -1_000_000_000_000
            assert clock.broker_time(-clock.skew_ms) == 0

    run(talk())


@pytest.mark.parametrize(
    ("text", "skew"), [("1500", 450), ("1000", -50), (None, None), ("", None), ("-5", None), ("9" * 16, None)]
)
def test_skew_is_measured_from_the_middle_of_the_round_trip(text: str | None, skew: int | None) -> None:
    clock = ClientClock.from_exchange(1000, 1100, text)
    assert clock.skew_ms == skew
    assert clock.error_ms == (0 if skew is None else 50)
    assert clock.broker_time(5) == (None if skew is None else 5 + skew)


def test_subscription_ended_during_an_outage_is_not_made_again(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            port = service.port
            client = connect(address(service), reconnect=QUICK)
            await client.__aenter__()
            kept, ended = client.subscribe("a"), client.subscribe("a")
            await kept.start()
            await ended.start()
        leaving = asyncio.create_task(ended.unsubscribe())
        await asyncio.sleep(0.02)
        async with broker(tmp_path, port=port) as service:
            await leaving
            assert await client.publish("a", receipt=True) == (await kept.get()).id
            assert service.statistics().subscriptions_now == 1
            assert service.server_statistics().connections == 1
            await client.__aexit__(None)

    run(talk())


@pytest.mark.parametrize("refuses", ["CONNECT", "SUBSCRIBE"])
def test_refusal_ends_the_attempts_to_reconnect(refuses: str) -> None:
    connections = 0

    async def play(script: Script) -> None:
        nonlocal connections
        connections += 1
        for command, answer in (
            ("CONNECT", "CONNECTED\nversion:1.2\n\n\0"),
            ("SUBSCRIBE", "RECEIPT\nreceipt-id:1\n\n\0"),
        ):
            assert (await script.frame()).startswith(command)
            refused = connections > 1 and command == refuses
            script.say("ERROR\nmessage:not you again\n\n\0" if refused else answer)
            if refused:
                break

    async def talk() -> None:
        async with scripted(play) as server, connect(server, reconnect=QUICK) as client:
            subscription = client.subscribe("a")
            await subscription.start()
            with pytest.raises(ClientError, match="not you again"):
                await subscription.get()

    run(talk())
    assert connections == 2


def test_connection_lost_again_while_subscribing_again_is_one_more_attempt() -> None:
    connections = 0

    async def play(script: Script) -> None:
        nonlocal connections
        connections += 1
        await script.frame()
        script.say("CONNECTED\nversion:1.2\n\n\0")
        await script.frame()
        if connections == 2:
            return
        script.say("RECEIPT\nreceipt-id:1\n\n\0")
        if connections == 3:
            script.say("MESSAGE\nsubscription:s1\nmessage-id:x\ndestination:/topic/a\n\nat last\0")
            await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server, reconnect=QUICK) as client:
            subscription = client.subscribe("a")
            await subscription.start()
            assert (await subscription.get()).text == "at last"

    run(talk())
    assert connections == 3
