"""`postroad top`: rates from two looks, a table for people, objects for programs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from postroad.cli.top import NetworkView, figures_between, short
from postroad.topology import line
from tests.cli.programs import here
from tests.server.live import live
from tests.server.scene import Client, run, service

if TYPE_CHECKING:
    from pathlib import Path


def test_top_tells_what_brokers_and_sessions_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def feed(writer: Client) -> None:
        while True:
            writer.publish("a.b", b"x" * 100)
            await asyncio.sleep(0.005)

    async def talk() -> None:
        async with service(tmp_path, admin_port=0, number=7) as broker:
            reader = await Client.connect(broker.port, login="[red]ann")
            await reader.subscribe("mine", "a.>")
            writer = await Client.connect(broker.port, login="feed")
            feeding = asyncio.create_task(feed(writer))
            address = f"127.0.0.1:{broker.admin_port}"
            look = ("top", address, "--once", "--interval", "0.3")
            told = await asyncio.to_thread(here, monkeypatch, *look, "--json")
            (seen,) = json.loads(told.out)["brokers"]
            assert (seen["broker"], seen["state"], seen["sessions"], seen["subscriptions"]) == (7, "ready", 2, 1)
            assert seen["in_per_second"] > 0
            assert seen["out_per_second"] > 0
            assert seen["received_bytes_per_second"] > 100 * seen["in_per_second"]
            sessions = {one["principal"]: one for one in json.loads(told.out)["sessions"]}
            assert sessions["unverified:feed"]["in_per_second"] > 0
            assert sessions["unverified:[red]ann"]["out_per_second"] > 0
            monkeypatch.setenv("COLUMNS", "200")
            drawn = await asyncio.to_thread(here, monkeypatch, *look)
            assert (drawn.code, drawn.err) == (0, "")
            for text in ("brokers", "busiest sessions", "unverified:[red]ann", "ready", "bytes in/s"):
                assert text in drawn.out
            feeding.cancel()
            # Nothing is cut off on a terminal of the usual width.
            monkeypatch.setenv("COLUMNS", "80")
            shown = await asyncio.to_thread(here, monkeypatch, "top", address, "--once", "--interval", "0.1")
            assert (shown.code, "…" in shown.out, "unverified:" in shown.out) == (0, False, True)
            for client in (reader, writer):
                await client.close()

    run(talk)


def test_top_shows_a_broker_of_a_network_that_went_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        async with live(line(2), tmp_path, admin_port=0) as network:
            await network.converged()
            admins = [f"http://127.0.0.1:{each.admin_port}" for each in network.services.values()]
            views = [{"admin": admin} for admin in admins]

            async def directory(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                body = json.dumps({"network": "n", "brokers": views}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(directory, "127.0.0.1", 0) as server:
                address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                look = ("top", address, "--once", "--interval", "0.1", "--json")
                told = json.loads((await asyncio.to_thread(here, monkeypatch, *look)).out)
                assert [(one["broker"], one["state"], one["links_up"]) for one in told["brokers"]] == [
                    (1, "ready", 1),
                    (2, "ready", 1),
                ]
                await network.services.pop(2).stop()
                told = json.loads((await asyncio.to_thread(here, monkeypatch, *look)).out)
                states = {one["broker"]: one["state"] for one in told["brokers"]}
                assert states == {0: "silent", 1: "degraded"}

    run(talk)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (b"401 Unauthorized", b"show the token", "asks for another token; give it with --admin-token-file"),
        (b"200 OK", b'{"broker": 1}', "no broker answers"),
    ],
)
def test_top_tells_a_missing_token_and_what_is_no_broker(
    status: bytes, body: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    async def talk() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            told = await asyncio.to_thread(here, monkeypatch, "top", address, "--once")
            assert (told.code, text in told.err) == (2, True), told.err

    run(talk)


def test_broker_that_stays_silent_keeps_its_number_in_top() -> None:
    silent = NetworkView(2.0, {"a": None}, {"a": 7})
    (seen,), _ = figures_between(silent, NetworkView(3.0, {"a": None}, {}))
    assert (seen.broker, seen.state) == (7, "silent")


def test_top_says_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "top", "127.0.0.1:1", "--once")
    assert (told.code, "no broker answers" in told.err) == (2, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.4, "0"), (999.0, "999"), (1_000.0, "1.0k"), (23_456.0, "23k"), (1.5e6, "1.5M"), (2e15, "2000T")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text
