"""A watch over brokers whose ports other programs have got, which say anything."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from postroad.network.processes import mark_of
from postroad.network.state import BrokerEntry
from postroad.network.watch import Condition, NetworkWatch
from tests.server.scene import run

COUNTS = {"sessions_now": 1, "subscriptions_now": 2, "accepted": 3, "delivered": 4}
NETWORK = {
    "links": {"planned_links_up": 1},
    "relay": {"held_now": 0, "sent": 5, "relayed": 6},
    "routing": {"parent": 2, "planned_parent": 2, "reached": 1},
}
STATUS = {"broker": 7, "ready": True, "statistics": COUNTS, "network": NETWORK}


def _with(section: str, **changes: object) -> bytes:
    network = {**NETWORK, section: {**NETWORK[section], **changes}}
    return json.dumps({**STATUS, "network": network}).encode()


async def _seen(body: bytes) -> Any:
    """What a watch makes of a broker in whose place somebody says this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    entry = BrokerEntry(
        number=7, address="stomp://127.0.0.1:1", link_port=1, admin_port=port, links=1, process=mark_of(os.getpid())
    )
    ticks = iter(range(10))
    watch = NetworkWatch(lambda: float(next(ticks)))
    await watch.look([entry])
    (view,) = await watch.look([entry])
    server.close()
    return view


def test_a_broker_is_seen_as_its_status_says() -> None:
    async def look() -> None:
        view = await _seen(json.dumps(STATUS).encode())
        assert (view.condition, view.links_up, view.reached) == (Condition.READY, 1, 1)
        assert (view.parent, view.planned_parent, view.accepted, view.relayed) == (2, 2, 3, 11)

    run(look)


@pytest.mark.parametrize(
    "body",
    [
        _with("links", planned_links_up=[1]),
        _with("links", planned_links_up="many"),
        _with("relay", sent=None),
        _with("routing", planned_parent={}),
        _with("routing", reached=1.5e300),
        _with("relay", sent=10**400),
        json.dumps({**STATUS, "statistics": {**COUNTS, "accepted": 10**400}}).encode(),
        b"[" * 100_000,
        json.dumps(STATUS).encode()[:-1] + b', "more": ' + b"[" * 100_000,
    ],
)
def test_what_no_broker_says_counts_as_silence(body: bytes) -> None:
    async def look() -> None:
        view = await _seen(body)
        assert view.condition is Condition.STARTING

    run(look)
