"""Client libraries that others wrote, against our broker: stomp.py and stompman."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
import stomp
import stompman
from stomp.adapter.ws import WSStompConnection

from postroad.broker import QueueSettings
from tests.server.people import users_file
from tests.server.scene import PATIENCE, run, service, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.server import Service

pytestmark = pytest.mark.foreign

CONNECTIONS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}


class Heard(stomp.ConnectionListener):  # type: ignore[misc]
    """Keeps what a connection of stomp.py hears."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[Any] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.gone = threading.Event()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.gone.set()


def next_of(heard: queue.Queue[Any]) -> Any:
    return heard.get(timeout=PATIENCE)


def with_stomp_py(path: Path, talk: Callable[[Service], None], **settings: Any) -> None:
    """Run a blocking conversation in a thread, beside the broker."""

    async def both() -> None:
        async with service(path, **settings) as broker:
            await asyncio.to_thread(talk, broker)
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(both)


def opened(broker: Service, version: str, **settings: Any) -> tuple[Any, Heard]:
    connection = CONNECTIONS[version]([("127.0.0.1", broker.port)], **settings)
    heard = Heard()
    connection.set_listener("test", heard)
    connection.connect("ann", "secret", wait=True)
    return connection, heard


def closed(connection: Any, heard: Heard) -> None:
    connection.disconnect(receipt="bye")
    assert heard.gone.wait(PATIENCE)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_py_subscribes_with_a_selector_and_gets_what_it_wants(tmp_path: Path, version: str) -> None:
    def talk(broker: Service) -> None:
        connection, heard = opened(broker, version)
        headers = {"selector": "price > 20 AND kind = 'a'", "receipt": "ready"}
        connection.subscribe("/topic/quotes.*", id="1", ack="auto", headers=headers)
        assert next_of(heard.receipts).headers["receipt-id"] == "ready"
        for price in ("10", "30"):
            connection.send("/topic/quotes.x", f"body {price}", headers={"price": price, "kind": "a"}, receipt=price)
        message = next_of(heard.messages)
        assert (message.body, message.headers["price"]) == ("body 30", "30")
        receipts = [next_of(heard.receipts).headers for _ in range(2)]
        assert receipts[1]["message-id"] == message.headers["message-id"]
        closed(connection, heard)

    with_stomp_py(tmp_path, talk, users_file=users_file(tmp_path / "people", ann="secret"))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_stomp_py_acknowledges_refuses_and_uses_transactions(tmp_path: Path, version: str) -> None:
    def talk(broker: Service) -> None:
        connection, heard = opened(broker, version)
        connection.subscribe("/topic/a", id="1", ack="client-individual")
        transaction = connection.begin()
        for body in ("one", "two"):
            connection.send("/topic/a", body, transaction=transaction)
        connection.send("/topic/a", "at once")
        assert next_of(heard.messages).body == "at once"
        connection.commit(transaction, headers={"receipt": "committed"})
        messages = [next_of(heard.messages) for _ in range(2)]
        assert [message.body for message in messages] == ["one", "two"]
        committed = next_of(heard.receipts).headers
        assert (committed["message-id"], committed["message-count"]) == (messages[0].headers["message-id"], "2")
        for message, say in zip(messages, (connection.ack, connection.nack), strict=True):
            known = message.headers["ack"] if version == "1.2" else message.headers["message-id"]
            say(known, *([] if version == "1.2" else ["1"]))
        aborted = connection.begin()
        connection.send("/topic/a", "never", transaction=aborted)
        connection.abort(aborted)
        closed(connection, heard)
        counts = broker.statistics()
        assert (counts.accepted, counts.acknowledged, counts.refused) == (3, 1, 1)

    with_stomp_py(tmp_path, talk)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_stomp_py_shares_a_queue_and_gets_again_what_it_refused(tmp_path: Path, version: str) -> None:
    def talk(broker: Service) -> None:
        workers = [opened(broker, version) for _ in range(2)]
        for connection, _ in workers:
            connection.subscribe("/queue/a", id="1", ack="client-individual", headers={"activemq.prefetchSize": "1"})
        connection, heard = workers[0]
        for body in ("one", "two"):
            connection.send("/queue/a", body, receipt=body)
            assert next_of(heard.receipts).headers["receipt-id"] == body
        found = [next_of(each.messages) for _, each in workers]
        assert sorted(message.body for message in found) == ["one", "two"]
        name = found[0].headers["ack" if version == "1.2" else "message-id"]
        connection.nack(name) if version == "1.2" else connection.nack(name, "1")
        again = next_of(heard.messages)
        assert (again.body, again.headers["redelivered"]) == (found[0].body, "true")
        for each in workers:
            closed(*each)

    with_stomp_py(tmp_path, talk, queues=QueueSettings(redelivery_ms=1))


def test_stomp_py_hears_why_it_is_refused(tmp_path: Path) -> None:
    def talk(broker: Service) -> None:
        connection, heard = opened(broker, "1.2")
        connection.subscribe("/exchange/a", id="1")
        assert "destinations start with /topic/ or /queue/" in next_of(heard.errors).headers["message"]
        assert heard.gone.wait(PATIENCE)

    with_stomp_py(tmp_path, talk)


def test_stomp_py_keeps_its_heart_beats(tmp_path: Path) -> None:
    def talk(broker: Service) -> None:
        connection, heard = opened(broker, "1.2", heartbeats=(600, 600))
        connection.subscribe("/topic/a", id="1")
        # Several intervals without a word: neither side gives the other up.
        assert not heard.gone.wait(2.0)
        connection.send("/topic/a", "still here")
        assert next_of(heard.messages).body == "still here"
        closed(connection, heard)

    with_stomp_py(tmp_path, talk, heart_beat_ms=100)


def test_stomp_py_speaks_over_websocket(tmp_path: Path) -> None:
    def talk(broker: Service) -> None:
        connection = WSStompConnection([("127.0.0.1", broker.websocket_port)])
        heard = Heard()
        connection.set_listener("test", heard)
        connection.connect(wait=True)
        connection.subscribe("/topic/a", id="1", headers={"receipt": "ready"})
        next_of(heard.receipts)
        connection.send("/topic/a", "over the web")
        assert next_of(heard.messages).body == "over the web"
        connection.disconnect()

    with_stomp_py(tmp_path, talk, websocket_port=0)


def stompman_client(broker: Service, **settings: Any) -> stompman.Client:
    server = stompman.ConnectionParameters(host="127.0.0.1", port=broker.port, login="ann", passcode="secret")
    return stompman.Client(servers=[server], **settings)


def test_stompman_publishes_subscribes_and_acknowledges(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, users_file=users_file(tmp_path / "people", ann="secret")) as broker:
            heard: asyncio.Queue[Any] = asyncio.Queue()
            async with stompman_client(broker) as client:
                subscription = await client.subscribe(
                    "/topic/quotes.>",
                    heard.put,
                    ack="client-individual",
                    headers={"selector": "price BETWEEN 20 AND 40"},
                    on_suppressed_exception=lambda error, frame: None,
                )
                for price in ("10", "30", "50"):
                    await client.send(price.encode(), "/topic/quotes.a.b", headers={"price": price})
                message = await asyncio.wait_for(heard.get(), PATIENCE)
                assert (message.body, message.headers["price"]) == (b"30", "30")
                await until(lambda: broker.statistics().acknowledged == 1)
                async with client.begin() as transaction:
                    for body in (b"21", b"22"):
                        await transaction.send(body, "/topic/quotes.x", headers={"price": body.decode()})
                assert [(await asyncio.wait_for(heard.get(), PATIENCE)).body for _ in range(2)] == [b"21", b"22"]
                await until(lambda: broker.statistics().acknowledged == 3)
                await subscription.unsubscribe()
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(talk)


def test_stompman_and_stomp_py_hear_each_other(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            connection, heard = await asyncio.to_thread(opened, broker, "1.1")
            await asyncio.to_thread(connection.subscribe, "/topic/a", "1", "auto", {"receipt": "ready"})
            await asyncio.to_thread(next_of, heard.receipts)
            async with stompman_client(broker) as client:
                await client.send("grüße".encode(), "/topic/a", headers={"note": "a:b\\c"})
                message = await asyncio.to_thread(next_of, heard.messages)
                assert (message.body, message.headers["note"]) == ("grüße", "a:b\\c")
            await asyncio.to_thread(closed, connection, heard)

    run(talk)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_py_comes_back_to_its_durable_subscription_as_with_activemq(tmp_path: Path, version: str) -> None:
    named = {"activemq.subscriptionName": "orders"}

    def came(broker: Service) -> tuple[Any, Heard]:
        connection = CONNECTIONS[version]([("127.0.0.1", broker.port)])
        heard = Heard()
        connection.set_listener("test", heard)
        connection.connect("ann", "secret", wait=True, headers={"client-id": "cellar"})
        connection.subscribe("/topic/orders", id="1", ack="client", headers={**named, "receipt": "ready"})
        assert next_of(heard.receipts).headers["receipt-id"] == "ready"
        return connection, heard

    def answer(connection: Any, message: Any) -> None:
        if version == "1.2":
            connection.ack(message.headers["ack"], receipt="acked")
        elif version == "1.1":
            connection.ack(message.headers["message-id"], "1", receipt="acked")
        else:
            connection.ack(message.headers["message-id"], receipt="acked")

    def talk(broker: Service) -> None:
        connection, heard = came(broker)
        closed(connection, heard)
        writer, answers = opened(broker, version)
        for body in ("one", "two"):
            writer.send("/topic/orders", body, receipt=body)
            assert next_of(answers.receipts).headers["receipt-id"] == body
        connection, heard = came(broker)
        first, second = next_of(heard.messages), next_of(heard.messages)
        assert (first.body, second.body) == ("one", "two")
        answer(connection, first)
        assert next_of(heard.receipts).headers["receipt-id"] == "acked"
        closed(connection, heard)
        connection, heard = came(broker)
        again = next_of(heard.messages)
        assert (again.body, again.headers["redelivered"]) == ("two", "true")
        if version == "1.0":
            connection.unsubscribe(id="1", headers=named)
        else:
            connection.unsubscribe("1", **named)
        closed(connection, heard)
        closed(writer, answers)
        assert broker.statistics().durable_now == 0

    with_stomp_py(tmp_path, talk, users_file=users_file(tmp_path / "people", ann="secret"))
