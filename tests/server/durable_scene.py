"""Clients with durable subscriptions, for tests over sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.scene import Client

if TYPE_CHECKING:
    from postroad.protocols.stomp import Frame

# How clients of other brokers ask for a durable subscription.
SPELLINGS: dict[str, dict[str, str]] = {
    "activemq": {"activemq.subscriptionName": "orders"},
    "artemis": {"durable-subscription-name": "orders"},
    "artemis-1": {"durable-subscriber-name": "orders"},
    "rabbitmq": {"durable": "true", "auto-delete": "false"},
    "rabbitmq-3.6": {"persistent": "true"},
}


async def connect(port: int, **headers: str) -> Client:
    return await Client.connect(port, **{"client-id": "cellar", **headers})


async def subscribe(client: Client, spelling: str = "activemq", **headers: str) -> None:
    await client.subscribe("orders", headers.pop("topic", "a"), **SPELLINGS[spelling], **headers)


async def publish(port: int, *numbers: int, topic: str = "a") -> None:
    writer = await Client.connect(port)
    for number in numbers:
        writer.publish(topic, b"%d" % number, receipt=str(number), n=str(number))
    for number in numbers:
        answer = await writer.frame()
        assert (answer.command, answer.headers["receipt-id"]) == ("RECEIPT", str(number)), answer
    await writer.close()


async def take(client: Client, count: int, acknowledge: bool = True) -> list[Frame]:
    frames = [await client.frame() for _ in range(count)]
    for frame in frames if acknowledge else ():
        client.send("ACK", id=frame.headers["ack"])
    return frames


def bodies(frames: list[Frame]) -> list[int]:
    return [int(frame.body) for frame in frames]


def redelivered(frames: list[Frame]) -> list[bool]:
    return [frame.headers.get("redelivered") == "true" for frame in frames]


async def said(client: Client, command: str, **headers: str) -> None:
    """Say something, and wait until it is done."""
    client.send(command, receipt="done", **headers)
    answer = await client.frame()
    assert answer.command == "RECEIPT", answer
