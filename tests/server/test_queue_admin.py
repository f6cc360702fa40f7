"""Queues over the admin endpoint, the command line and the trace."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

from postroad.broker import QueueSettings
from postroad.cli.application import program
from postroad.errors import PostroadError
from postroad.topology import Plan, line
from tests.server.planned import planned
from tests.server.queue_scene import consumer, messages, produce
from tests.server.scene import Client, run, service, until, until_it_says

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.server import Service


def request(broker: Service, path: str, method: str = "GET") -> Any:
    asked = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}{path}", method=method)
    with urllib.request.urlopen(asked, timeout=20) as found:
        return json.load(found)


async def asked(broker: Service, path: str, method: str = "GET") -> Any:
    return await asyncio.to_thread(request, broker, path, method)


async def command(broker: Service, *arguments: str) -> str:
    words = ["queues", *arguments, "--admin", f"127.0.0.1:{broker.admin_port}"]
    result = await asyncio.to_thread(lambda: CliRunner().invoke(program(), words))
    if isinstance(result.exception, PostroadError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_operator_lists_shows_purges_and_deletes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            assert await asked(broker, "/queues") == {"queues": []}
            await produce(broker.port, "a", "b", "c")
            client = await consumer(broker.port, **{"prefetch-count": "1", "exclusive": "true"})
            (frame,) = await messages(client, 1)
            (listed,) = (await asked(broker, "/queues"))["queues"]
            assert (listed["name"], listed["consumers_now"]) == ("work", 1)
            assert (listed["waiting_messages_now"], listed["in_flight_messages_now"]) == (2, 1)
            (shown,) = (await asked(broker, "/queues/work"))["consumers"]
            assert (shown["prefetch"], shown["exclusive"], shown["unacknowledged_now"]) == (1, True, 1)
            assert "work  2 waiting  1 in flight  1 consumer" in await command(broker, "list")
            assert json.loads(await command(broker, "list", "--json"))["name"] == "work"
            assert "1 of 1 unacknowledged  exclusive" in await command(broker, "show", "/queue/work")
            assert json.loads(await command(broker, "show", "work", "--json"))["consumers"] == [shown]
            assert (await command(broker, "purge", "work")).startswith("2 messages given up: purged by ")
            await until(lambda: broker.statistics().queued_messages_now == 0)
            # What is in flight stays with its consumer; what comes then is delivered as before.
            await produce(broker.port, "d")
            client.send("ACK", id=frame.headers["ack"])
            assert [each.body for each in await messages(client, 1)] == [b"d"]
            assert "deleted by " in await command(broker, "delete", "work")
            error = await client.frame()
            assert (error.command, "was deleted" in error.headers["message"]) == ("ERROR", True)
            await client.close()
            assert broker.statistics().queues_now == 0
            with pytest.raises(PostroadError, match="there is no queue"):
                await command(broker, "show", "work")
            await produce(broker.port, "e")
            assert broker.statistics().queued_messages_now == 1
        async with service(tmp_path, admin_port=0) as broker:
            assert [each["name"] for each in (await asked(broker, "/queues"))["queues"]] == ["work"]
            assert broker.statistics().queued_messages_now == 1

    run(talk, patience=60)


def test_trace_tells_that_a_message_waited_was_refused_and_was_dead_lettered_and_purged(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, queues=QueueSettings(max_deliveries=2, redelivery_ms=0)) as broker:
            writer = await Client.connect(broker.port)
            writer.send("SEND", b"1", destination="/queue/work", receipt="r")
            message = (await writer.frame()).headers["message-id"]
            await writer.close()
            (stop,) = (await asked(broker, f"/trace/{message}"))["stops"]
            (waiting,) = stop["waiting"]
            assert "/queue/work" in json.dumps(waiting)
            client = await consumer(broker.port)
            for _ in range(2):
                (frame,) = await messages(client, 1)
                client.send("NACK", id=frame.headers["ack"])
            await until(lambda: broker.statistics().dead_lettered == 1)
            # On record once the store has it.
            dead = "dead-lettered to DLQ.work: refused, delivery 2"
            traced = await until_it_says(lambda: asked(broker, f"/trace/{message}"), dead)
            (stop,) = traced["stops"]
            assert [each["reason"] for each in stop["dropped"]].count("comes again") == 1
            assert "/queue/DLQ.work" in json.dumps(traced)
            await asked(broker, "/queues/DLQ.work/messages?by=carla", "DELETE")
            await until(lambda: broker.statistics().shed_stored == 1)
            await until_it_says(lambda: asked(broker, f"/trace/{message}"), "purged by carla")
            await client.close()

    run(talk)


def test_operator_lists_and_purges_what_waits_for_a_queue_of_another_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = msgspec.structs.replace(Plan.of(line(2), "queues"), queue_homes={"work": 2})

    async def talk() -> None:
        # Its home does not run.
        async with planned(plan, tmp_path, (1,)) as network:
            broker = network.services[1]
            await produce(broker.port, "a", "b")
            (listed,) = (await asked(broker, "/outgoing"))["outgoing"]
            assert (listed["name"], listed["home"], listed["waiting_messages_now"]) == ("work", 2, 2)
            assert listed["stored_bytes_now"] > 0
            assert not listed["home_reached_now"]
            assert "work  for broker 2, which cannot be reached: 2 waiting  0 under way" in await command(
                broker, "list"
            )
            assert json.loads(await command(broker, "show", "work", "--outgoing", "--json"))["home"] == 2
            with pytest.raises(urllib.error.HTTPError, match="405") as refused:
                await asked(broker, "/outgoing/work", "DELETE")
            refused.value.close()
            with caplog.at_level(logging.INFO, "postroad.server"):
                answer = await command(broker, "purge", "work", "--outgoing")
            assert answer.startswith("2 messages given up: purged by ")
            (told,) = (each for each in caplog.records if each.getMessage() == "purged by operator")
            assert (vars(told)["what"], vars(told)["messages"]) == ("outgoing queue work", 2)
            await until(lambda: broker.statistics().outgoing_messages_now == 0)
            assert await asked(broker, "/outgoing") == {"outgoing": []}

    run(talk, patience=60)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [([], "DELETE", 405), (["gone"], "GET", 404), (["work", "strange"], "DELETE", 404)],
)
def test_request_that_is_not_served_is_refused(tmp_path: Path, path: list[str], method: str, status: int) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            await produce(broker.port, "a")
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asked(broker, "/".join(["/queues", *path]), method)
            assert refused.value.code == status
            refused.value.close()

    run(talk)
