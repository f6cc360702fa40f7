"""Durable subscriptions over the admin endpoint and the command line."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from postroad.cli.application import program
from postroad.errors import PostroadError
from tests.server.durable_scene import bodies, connect, publish, said, subscribe, take
from tests.server.scene import Client, run, service, until, until_it_says

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.server import Service

PAGE = "/subscriptions/cellar/orders"


def request(broker: Service, path: str, method: str = "GET", token: str = "") -> Any:
    asked = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}{path}", method=method)
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return json.load(answer)


async def asked(broker: Service, path: str, method: str = "GET", token: str = "") -> Any:
    return await asyncio.to_thread(request, broker, path, method, token)


async def command(broker: Service, *arguments: str) -> str:
    words = ["subscriptions", *arguments, "--admin", f"127.0.0.1:{broker.admin_port}"]
    result = await asyncio.to_thread(lambda: CliRunner().invoke(program(), words))
    if isinstance(result.exception, PostroadError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


async def waiting(broker: Service, *numbers: int) -> None:
    """A durable subscription whose client is away, and for which messages wait."""
    client = await connect(broker.port, login="ann")
    await subscribe(client, ack="client", selector="n > 0")
    await said(client, "DISCONNECT")
    await client.close()
    await publish(broker.port, *numbers)


def test_operator_lists_shows_purges_and_deletes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            assert await asked(broker, "/subscriptions") == {"subscriptions": []}
            await waiting(broker, 1, 2, 3)
            (listed,) = (await asked(broker, "/subscriptions"))["subscriptions"]
            assert listed == {**await asked(broker, PAGE), "oldest_ms_now": listed["oldest_ms_now"]}
            assert (listed["client"], listed["name"], listed["principal"]) == ("cellar", "orders", "unverified:ann")
            assert (listed["topic"], listed["selector"], listed["session_now"]) == ("a", "n > 0", None)
            assert listed["waiting_messages_now"] == 3
            assert "cellar/orders  a where n > 0  3 waiting  away" in await command(broker, "list")
            assert "waiting messages now" in await command(broker, "show", "cellar", "orders")
            assert (await command(broker, "purge", "cellar", "orders")).startswith("3 messages given up: purged by ")
            await until(lambda: broker.statistics().stored_messages_now == 0)
            await publish(broker.port, 4)
            client = await connect(broker.port, login="ann")
            await subscribe(client, ack="client", selector="n > 0")
            assert bodies(await take(client, 1)) == [4]
            await client.close()
            assert "deleted by " in await command(broker, "delete", "cellar", "orders")
            assert broker.statistics().durable_now == 0
            with pytest.raises(PostroadError, match="there is no durable subscription"):
                await command(broker, "show", "cellar", "orders")

    run(talk)


def test_trace_of_a_purged_message_says_who_purged_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "DISCONNECT")
            await client.close()
            writer = await Client.connect(broker.port)
            writer.publish("a", b"1", receipt="r")
            message = (await writer.frame()).headers["message-id"]
            await writer.close()
            traced = await asked(broker, f"/trace/{message}")
            assert len(traced["stops"][0]["waiting"]) == 1
            await asked(broker, f"{PAGE}/messages?by=carla", "DELETE")
            await until(lambda: broker.statistics().shed_stored == 1)
            # On record once the store has it.
            await until_it_says(lambda: asked(broker, f"/trace/{message}"), "purged by carla")

    run(talk)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/subscriptions", "DELETE", 405),
        ("/subscriptions/cellar", "GET", 404),
        ("/subscriptions/cellar/gone", "DELETE", 404),
        (f"{PAGE}/strange", "DELETE", 404),
        ("/health", "DELETE", 405),
        (PAGE, "POST", 405),
        (PAGE, "OPTIONS", 405),
    ],
)
def test_request_that_is_not_served_is_refused(tmp_path: Path, path: str, method: str, status: int) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            await waiting(broker, 1)
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asked(broker, path, method)
            assert refused.value.code == status
            refused.value.close()
            assert broker.statistics().stored_messages_now == 1

    run(talk)


def test_subscriptions_need_the_token_where_there_is_one(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-twenty-characters")

    async def talk() -> None:
        async with service(tmp_path / "data", admin_port=0, admin_token_file=str(token)) as broker:
            await waiting(broker, 1)
            for path, method in (("/subscriptions", "GET"), (PAGE, "DELETE")):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    await asked(broker, path, method)
                assert refused.value.code == 401
                refused.value.close()
            found = await asked(broker, "/subscriptions", token=token.read_text())
            assert len(found["subscriptions"]) == 1
            assert "cellar/orders" in await command(broker, "list", "--admin-token-file", str(token))

    run(talk)
