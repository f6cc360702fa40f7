"""The admin endpoint on an address that other machines reach: only with a token and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from postroad.config import BrokerConfig, ConfigError
from postroad.server import Service, admin_listener
from tests.cli.programs import here
from tests.server.papers import Papers
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "0123456789abcdef"


def token_file(folder: Path) -> str:
    path = folder / "token"
    path.write_text(TOKEN)
    return str(path)


async def ask(
    port: int, path: str, tls: ssl.SSLContext, token: str = "", host: str = "broker.example"
) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
    return int(head.split(" ")[1]), body


def test_an_address_that_others_reach_needs_a_token_and_tls(tmp_path: Path) -> None:
    papers, token = Papers(tmp_path), token_file(tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "set admin_token_file and admin_tls"),
        ({"admin_token_file": token}, "set admin_tls"),
        ({"admin_tls": papers.config()}, "set admin_token_file"),
    ]
    for settings, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            Service(BrokerConfig(data=str(tmp_path), admin_port=0, admin_host="0.0.0.0", **settings))
    # Nobody listens without a port, and 127.0.0.2 is this machine.
    Service(BrokerConfig(data=str(tmp_path), admin_host="0.0.0.0"))
    Service(BrokerConfig(data=str(tmp_path), admin_port=0, admin_host="127.0.0.2"))


def test_elsewhere_all_but_health_needs_the_token(tmp_path: Path) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        settings = {"admin_host": "0.0.0.0", "admin_token_file": token_file(tmp_path), "admin_tls": papers.config()}
        async with service(tmp_path / "data", admin_port=0, **settings) as broker:
            tls = papers.client_context()
            for path, code in (("/health", 200), ("/ready", 200), ("/console", 200)):
                assert (await ask(broker.admin_port, path, tls))[0] == code
            for path in ("/status", "/metrics", "/sessions", "/queues", "/console/data", "/nothing"):
                assert (await ask(broker.admin_port, path, tls))[0] == 401
                assert (await ask(broker.admin_port, path, tls, "0123456789abcdeg"))[0] == 401
            assert json.loads((await ask(broker.admin_port, "/status", tls, TOKEN))[1])["broker"] == 1
            # Without TLS nobody gets an answer.
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.admin_port)
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"200" not in await reader.read()
            writer.close()

    run(talk)


def test_connections_without_a_handshake_are_bounded_and_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_listener, "MOST_HANDSHAKES", 3)
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with service(tmp_path / "data", admin_port=0, admin_tls=papers.config()) as broker:
            idle = [await asyncio.open_connection("127.0.0.1", broker.admin_port) for _ in range(10)]
            ended = [asyncio.create_task(reader.read()) for reader, _ in idle]
            await until(lambda: sum(task.done() for task in ended) >= 7)
            assert (await ask(broker.admin_port, "/health", papers.client_context(), host="localhost"))[0] == 200
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)
            for _, writer in idle:
                writer.close()

    run(talk)


def test_commands_speak_to_an_endpoint_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    papers = Papers(tmp_path)
    token = token_file(tmp_path)

    async def talk() -> None:
        settings = {"admin_host": "0.0.0.0", "admin_token_file": token, "admin_tls": papers.config()}
        async with service(tmp_path / "data", admin_port=0, **settings) as broker:
            client = await Client.connect(broker.port, login="ann")
            await client.subscribe("mine", "a.>", selector="price > 5")
            address = f"https://127.0.0.1:{broker.admin_port}"
            shown = ("--admin-token-file", token, "--admin-ca", str(papers.ca))
            listed = await asyncio.to_thread(here, monkeypatch, "sessions", "list", "--admin", address, *shown)
            assert (listed.code, listed.err) == (0, "")
            assert "unverified:ann" in listed.out
            assert "mine  a.> where price > 5" in listed.out
            queues = await asyncio.to_thread(here, monkeypatch, "queues", "list", "--admin", address, *shown)
            assert (queues.code, queues.out, queues.err) == (0, "", "postroad: there are no queues\n")
            top = await asyncio.to_thread(
                here, monkeypatch, "top", address, "--once", "--interval", "0.1", "--json", *shown
            )
            assert json.loads(top.out)["brokers"][0]["sessions"] == 1
            refused = await asyncio.to_thread(here, monkeypatch, "queues", "list", "--admin", address, *shown[:2])
            assert (refused.code, "certificate" in refused.err.lower()) == (2, True)
            number = listed.out.split()[0]
            closed = await asyncio.to_thread(here, monkeypatch, "sessions", "close", number, "--admin", address, *shown)
            assert closed.out == f"session {number} is closed\n"
            assert "an operator" in (await client.frame()).headers["message"]
            await client.close()

    run(talk)


def test_a_token_is_not_sent_to_another_machine_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "queues", "list", "--admin", "192.0.2.1:8161", "--admin-token-file", token_file(tmp_path))
    assert (told.code, "write https://" in told.err) == (2, True)
