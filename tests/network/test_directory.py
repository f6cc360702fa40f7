"""The directory names live brokers in turn."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from postroad.network import Directory

ADMINS = ["http://127.0.0.1:8161", "https://host.example:8162", "http://127.0.0.1:8163"]


def directory(live: list[str]) -> Directory:
    return Directory("square", lambda: live, lambda: ADMINS, lambda: {"brokers": len(live)})


async def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split(" ")[1]), body


@given(brokers=st.integers(1, 12), count=st.integers(1, 15), rounds=st.integers(1, 4))
def test_every_broker_is_named_first_as_often_as_every_other(brokers: int, count: int, rounds: int) -> None:
    live = [f"stomp://127.0.0.1:{port}" for port in range(1, brokers + 1)]
    asked = directory(live)
    given_out = [asked.pick(count) for _ in range(brokers * rounds)]
    assert Counter(names[0] for names in given_out) == dict.fromkeys(live, rounds)
    for names in given_out:
        assert len(names) == len(set(names)) == min(count, brokers)


def test_a_broker_that_is_gone_is_named_no_more_and_one_that_returns_is() -> None:
    live = ["a", "b", "c"]
    asked = directory(live)
    assert asked.pick(2) == ["a", "b"]
    live.remove("b")
    assert asked.pick(3) == ["c", "a"]
    assert asked.pick(3) == ["a", "c"]
    live.insert(1, "b")
    assert sorted(asked.pick(3)) == ["a", "b", "c"]
    live.clear()
    assert asked.pick(3) == []
    assert asked.statistics() == {"asked": 4, "live_now": 0}


def test_clients_ask_over_http() -> None:
    async def talk() -> None:
        server = await directory(["stomp://h:1", "stomp://h:2", "stomp://h:3", "stomp://h:4"]).listen(0)
        port = server.sockets[0].getsockname()[1]
        code, body = await get(port, "/brokers")
        assert (code, json.loads(body)) == (
            200,
            {"network": "square", "brokers": ["stomp://h:1", "stomp://h:2", "stomp://h:3"]},
        )
        code, body = await get(port, "/brokers?count=1")
        assert json.loads(body)["brokers"] == ["stomp://h:2"]
        for count in ("0", "x", "-1", "101", "%C2%B9", "1" * 5_000):
            code, body = await get(port, f"/brokers?count={count}")
            assert (code, body) == (400, "count is a whole number from 1 to 100\n")
        assert (await get(port, "/status"))[1] == '{\n  "brokers": 4\n}\n'
        assert await get(port, "/health") == (200, "ok\n")
        assert json.loads((await get(port, "/targets"))[1]) == [
            {
                "targets": ["127.0.0.1:8161", "127.0.0.1:8163"],
                "labels": {"network": "square", "__scheme__": "http"},
            },
            {"targets": ["host.example:8162"], "labels": {"network": "square", "__scheme__": "https"}},
        ]
        assert (await get(port, "/other"))[0] == 404
        assert (await get(port, "/brokers", host="elsewhere.example"))[0] == 403
        server.close()

    asyncio.run(talk())
