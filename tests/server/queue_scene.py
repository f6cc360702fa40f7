"""Producers and consumers of queues, for tests over sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.scene import Client

if TYPE_CHECKING:
    from postroad.protocols.stomp import Frame


async def produce(port: int, *bodies: str, queue: str = "work", **headers: str) -> None:
    """Send messages to a queue, each confirmed."""
    client = await Client.connect(port)
    for body in bodies:
        client.send("SEND", body.encode(), destination=f"/queue/{queue}", receipt=body, **headers)
    for body in bodies:
        answer = await client.frame()
        assert (answer.command, answer.headers.get("receipt-id")) == ("RECEIPT", body), answer
    await client.close()


async def consumer(port: int, queue: str = "work", ack: str = "client-individual", **headers: str) -> Client:
    client = await Client.connect(port)
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{queue}", ack=ack, receipt="in", **headers)
    answer = await client.frame()
    assert (answer.command, answer.headers.get("receipt-id")) == ("RECEIPT", "in"), answer
    return client


async def messages(client: Client, count: int) -> list[Frame]:
    frames = [await client.frame() for _ in range(count)]
    assert {frame.command for frame in frames} <= {"MESSAGE"}, frames
    return frames


async def answer(client: Client, command: str, frame: Frame, **headers: str) -> None:
    """Acknowledge or refuse a message, and wait until that is stored."""
    client.send(command, id=frame.headers["ack"], receipt="done", **headers)
    answer = await client.frame()
    assert (answer.command, answer.headers.get("receipt-id")) == ("RECEIPT", "done"), answer


def texts(frames: list[Frame]) -> list[str]:
    return [frame.body.decode() for frame in frames]
