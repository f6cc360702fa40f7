"""What goes wrong, and what the program is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from postroad.client import Client, ClientError, ConnectionLost, connect
from postroad.errors import PostroadError
from tests.client.serving import Script, address, broker, run, scripted, until
from tests.server.people import users_file

if TYPE_CHECKING:
    from pathlib import Path

CONNECTED = "CONNECTED\nversion:1.2\n\n\0\n"


async def enter_and_leave(client: Client) -> None:
    async with client:
        pass


def test_bad_selector_is_told_with_the_server_s_text_where_the_loop_begins(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            with pytest.raises(ClientError) as caught:
                async for _ in client.subscribe("a", where="price >"):
                    pass
            assert "price >" in f"{caught.value}\n{caught.value.details}"
            assert "^" in caught.value.details
            with pytest.raises(ClientError):
                await client.publish("a")

    run(talk())


def test_wrong_passcode_is_told_when_connecting(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path, users_file=users_file(tmp_path / "people", ann="secret")) as service:
            with pytest.raises(ClientError, match="login or passcode is wrong"):
                await enter_and_leave(connect(address(service), login="ann", passcode="guess"))
            async with connect(address(service), login="ann", passcode="secret") as client:
                assert await client.publish("a", receipt=True) is not None

    run(talk())


def test_server_that_ends_the_tls_handshake_is_told_with_what_to_write() -> None:
    async def talk() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionLost) as caught:
                await enter_and_leave(connect(f"stomps://127.0.0.1:{port}"))
        assert "()" not in str(caught.value)
        assert "write stomp://" in str(caught.value) or "Connection reset" in str(caught.value)

    run(talk())


def test_a_login_or_a_topic_with_a_character_that_nobody_can_see_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"login .* \(U\+200B\) cannot be seen"):
        connect("stomp://127.0.0.1:1", login="an\u200bn")

    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service), login="Ann of A") as client:
            with pytest.raises(ClientError, match=r"topic .* \(U\+202E\) cannot be seen"):
                client.subscribe("a.\u202eb.>")
            with pytest.raises(PostroadError, match=r"U\+FEFF"):
                await client.publish("\ufeffa")
            assert await client.publish("a", receipt=True) is not None

    run(talk())


def test_nobody_listening_is_a_lost_connection_with_the_address() -> None:
    async def talk() -> None:
        async with scripted(lambda _: asyncio.sleep(0)) as gone:
            pass
        with pytest.raises(ConnectionLost, match=gone):
            await enter_and_leave(connect(gone))

    run(talk())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("HTTP/1.1 400 Bad Request\r\nserver:x\r\n\r\n\0", "answered CONNECT with 'HTTP/1.1 400"),
        ("CONNECTED\nversion:1.1\n\n\0", "speaks STOMP 1.1"),
        ("CONNECTED\n\n\0", "speaks STOMP 1.0"),
        ("ERROR\nmessage:go away\n\n\0", "^go away$"),
        ("ERROR\n\nwhy not\0", "without a text"),
        ("CONNECTED\nno colon\n\n\0", "no colon"),
        ("", "closed the connection instead of answering CONNECT; if it speaks TLS, write stomps://"),
    ],
)
def test_answers_to_connect_that_are_no_welcome(said: str, told: str) -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say(said)

    async def talk() -> None:
        async with scripted(play) as server:
            with pytest.raises(PostroadError, match=told):
                await enter_and_leave(connect(server))

    run(talk())


def test_silent_server_is_given_up_after_the_timeout() -> None:
    async def play(script: Script) -> None:
        await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server:
            with pytest.raises(ConnectionLost, match=r"no answer within 0\.05 s"):
                await enter_and_leave(connect(server, timeout=0.05))

    run(talk())


def test_receipt_that_does_not_come_is_told_and_the_connection_goes_on() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say(CONNECTED)
        await script.frame()
        await script.frame()
        script.say("RECEIPT\nreceipt-id:1\n\n\0RECEIPT\nreceipt-id:2\nmessage-id:")
        script.say("00000001-00000002-000000000003-0004\n\n\0")
        await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server, timeout=1.0) as client:
            with pytest.raises(ClientError, match=r"no receipt within 1 s; whether"):
                await client.publish("a", receipt=True)
            # The late receipt of the first message is not taken for that of the second.
            assert str(await client.publish("a", receipt=True)) == "00000001-00000002-000000000003-0004"

    run(talk())


def test_server_without_ids_in_receipts_is_told_apart() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say(CONNECTED)
        await script.frame()
        script.say("RECEIPT\nreceipt-id:1\n\n\0")
        await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server) as client:
            with pytest.raises(ClientError, match="without their ids"):
                await client.publish("a", receipt=True)

    run(talk())


def test_loop_takes_what_arrived_before_it_is_told_of_the_end() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say(CONNECTED)
        await script.frame()
        script.say("RECEIPT\nreceipt-id:1\n\n\0MESSAGE\nsubscription:s1\nmessage-id:x\ndestination:/topic/a\n\nlast\0")

    async def talk() -> None:
        async with scripted(play) as server, connect(server) as client:
            subscription = client.subscribe("a")
            await subscription.start()
            await asyncio.sleep(0.05)
            assert (await subscription.get()).text == "last"
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await subscription.get()

    run(talk())


def test_refusal_that_nobody_waited_for_is_raised_at_the_end() -> None:
    async def play(script: Script) -> None:
        await script.frame()
        script.say(CONNECTED)
        await script.frame()
        script.say("ERROR\nmessage:you may not\n\nbecause\0")

    async def publish(server: str, wait: float) -> None:
        async with connect(server) as client:
            await client.publish("a")
            await asyncio.sleep(wait)

    async def talk() -> None:
        async with scripted(play) as server:
            for wait in (0, 0.1):
                with pytest.raises(ClientError, match="you may not") as caught:
                    await publish(server, wait)
                assert caught.value.details == "because"

    run(talk())


def test_closed_client_says_so(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            client = connect(address(service))
            with pytest.raises(ClientError, match="not connected"):
                await client.publish("a")
            async with client:
                await client.publish("a", receipt=True)
            with pytest.raises(ClientError, match="closed"):
                await client.publish("a")
            with pytest.raises(ClientError, match="connects once"):
                await enter_and_leave(client)
            await until(lambda: service.statistics().sessions_now == 0)

    run(talk())


def test_mistake_in_a_message_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            with pytest.raises(PostroadError, match="empty level"):
                await client.publish("a..b", receipt=True)
            with pytest.raises(PostroadError, match="'receipt' is a header of the protocol"):
                await client.publish("a", {"receipt": "1"})
            assert await client.publish("a", receipt=True) is not None
            assert service.statistics().accepted == 1

    run(talk())
