"""A program that does not take its messages: what waits is bounded, here and at the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from postroad.client import ClientError, ConnectionLost, connect
from postroad.client.mailboxes import OVERSHOOT, Intake, Mailbox
from postroad.client.received_message import ReceivedMessage
from postroad.messages import Draft
from tests.client.serving import Script, address, broker, run, scripted, until

if TYPE_CHECKING:
    from pathlib import Path

BODY = bytes(50_000)
MESSAGE = ReceivedMessage("a", {}, b"", "", "s1")
# A read brings at most 64 KiB, so two messages of this size.
PER_READ = 2


def test_slow_program_stops_the_reading_and_later_gets_everything(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path, limits=Limits(queue_bytes=2**30)) as service,
            connect(address(service)) as publisher,
            connect(address(service)) as slow,
            slow.subscribe("a", queue=10) as subscription,
        ):
            count = 0
            # How much the buffers of the sockets take is the system's affair; when they are full, the broker's queue
            # fills.
            while service.statistics().waiting_messages_now == 0:
                part = [Draft("a", {"n": n}, body=BODY) for n in range(count, count + 50)]
                await publisher.publish_many(part, receipt=True)
                count += len(part)
            await until(lambda: subscription.waiting >= 10)
            await asyncio.sleep(0.1)
            assert subscription.waiting <= 10 + PER_READ
            got = [await subscription.get() for _ in range(count)]
            assert [message.number("n") for message in got] == list(range(count))

    run(talk())


def test_receipt_awaited_inside_a_full_loop_still_comes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("a", queue=4) as subscription,
        ):
            await client.publish_many([Draft("a")] * 20)
            await until(lambda: subscription.waiting >= 4)
            for _ in range(20):
                await subscription.get()
                assert await client.publish("b", receipt=True) is not None

    run(talk())


def test_connection_held_up_beyond_the_overshoot_is_told_with_the_subscription(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service), timeout=1.0) as client,
            client.subscribe("a", queue=1) as subscription,
        ):
            with pytest.raises(ClientError, match="of subscription s1 wait to be taken"):
                await client.publish_many([Draft("a", body=BODY) for _ in range(200)], receipt=True)
            assert OVERSHOOT <= subscription.waiting <= OVERSHOOT + PER_READ

    run(talk())


def test_leaving_does_not_wait_for_a_full_mailbox(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            async with connect(address(service)) as client:
                subscription = client.subscribe("a", queue=1)
                await subscription.start()
                await client.publish_many([Draft("a", body=BODY) for _ in range(100)])
                await until(lambda: subscription.waiting >= 1)
            # All were accepted: leaving waited for the broker's receipt behind them.
            assert service.statistics().accepted == 100

    run(talk())


def test_intake_opens_again_at_half_and_counts_every_mailbox() -> None:
    async def talk() -> None:
        intake = Intake()
        one, other = Mailbox("s1", 4, intake), Mailbox("s2", 1, intake)
        for _ in range(4):
            assert intake.is_open
            one.put(MESSAGE)
        assert not intake.is_open
        other.put(MESSAGE)
        await one.take()
        assert not intake.is_open
        await one.take()
        assert not intake.is_open
        other.end(None)
        assert intake.is_open
        one.put(MESSAGE)
        one.put(MESSAGE)
        assert intake.fullest() is one
        intake.await_receipts(1)
        assert intake.is_open
        for _ in range(4, 4 * OVERSHOOT):
            one.put(MESSAGE)
        assert not intake.is_open
        intake.close()
        assert intake.is_open

    run(talk())


def test_publisher_does_not_wait_for_ever_on_a_server_that_takes_nothing() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say("CONNECTED\nversion:1.2\nheart-beat:100,0\n\n\0")
        script.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()

    over = asyncio.Event()

    async def talk() -> None:
        async with scripted(play) as server:
            async with connect(server, heart_beat=(0, 100)) as client:
                with pytest.raises(ConnectionLost, match="nothing heard"):
                    await client.publish_many(Draft("a", body=bytes(2**20)) for _ in range(1_000))
            over.set()

    run(talk())


def test_publisher_with_a_full_mailbox_learns_that_the_connection_is_lost() -> None:
    message = "MESSAGE\nsubscription:s1\nmessage-id:x\ndestination:/topic/a\n\n\0"

    async def play(script: Script) -> None:
        await script.frame()
        script.say("CONNECTED\nversion:1.2\n\n\0")
        await script.frame()
        script.say("RECEIPT\nreceipt-id:1\n\n\0")
        await script.frame()
        script.say(message * 2)
        await script.frame()
        script.writer.transport.abort()

    async def talk() -> None:
        async with scripted(play) as server, connect(server) as client:
            subscription = client.subscribe("a", queue=1)
            await subscription.start()
            await client.publish("go")
            await until(lambda: subscription.waiting == 2)
            with pytest.raises(ConnectionLost):
                await client.publish_many(Draft("a", body=bytes(2**20)) for _ in range(1_000))
            assert [(await subscription.get()).topic for _ in range(2)] == ["a", "a"]
            with pytest.raises(ConnectionLost):
                await subscription.get()

    run(talk())
