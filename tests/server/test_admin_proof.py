"""Whoever holds the port of a broker that is gone gets no token, and nothing from the brokers that are there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.client import AdminAccess, admin_reply
from postroad.config import NetworkConfig
from postroad.protocols.admin_proof import request_proof
from postroad.sessions import wall_clock
from tests.cli.programs import Outcome, here
from tests.server.http_client import get
from tests.server.scene import Client, run, service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from postroad.server import Service

TOKEN = "0123456789abcdef"


class Impostor:
    """Listens where a broker was: keeps what it gets, and answers, or passes it on to a broker and the answer back."""

    def __init__(self, broker: int = 0, answer: bytes = b"{}") -> None:
        self.heard = b""
        self.port = 0
        self._broker = broker
        self._answer = answer
        self.answers: list[bytes] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Impostor]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.heard += request
        if self._broker:
            answer = await passed_on(self._broker, request)
        else:
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(self._answer), self._answer)
        self.answers.append(answer)
        writer.write(answer)
        writer.close()


async def passed_on(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def token_file(folder: Path) -> str:
    path = folder / "token"
    path.write_text(TOKEN)
    return str(path)


async def told(monkeypatch: pytest.MonkeyPatch, folder: Path, port: int, *command: str) -> Outcome:
    options = ("--admin", f"127.0.0.1:{port}", "--admin-token-file", str(folder / "token"))
    return await asyncio.to_thread(here, monkeypatch, *command, *options)


def test_commands_give_no_token_to_another_program_on_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token_file(tmp_path)
    status = json.dumps({"sessions": [], "left_out": {"sessions": 0}}).encode()

    async def talk() -> None:
        async with Impostor(answer=status).listening() as impostor:
            for command in (("sessions", "list"), ("sessions", "close", "7"), ("queues", "purge", "work")):
                outcome = await told(monkeypatch, tmp_path, impostor.port, *command)
                assert (outcome.code, outcome.out) == (2, "")
                assert "does not know the token" in outcome.err
            top = ("top", f"127.0.0.1:{impostor.port}", "--once", "--admin-token-file", str(tmp_path / "token"))
            assert (await asyncio.to_thread(here, monkeypatch, *top)).code == 2
            assert b"DELETE /queues/work/messages" in impostor.heard
            # Without a token anybody may answer, though not anything.
            blind = await asyncio.to_thread(here, monkeypatch, "sessions", "close", "7", "--admin", str(impostor.port))
            assert (blind.code, "has no 'closed'" in blind.err) == (2, True)
            assert TOKEN.encode() not in impostor.heard

    run(talk)


@contextlib.asynccontextmanager
async def broker_with_ann(folder: Path, **settings: Any) -> AsyncIterator[tuple[Service, Client]]:
    async with service(folder / "data", admin_port=0, admin_token_file=token_file(folder), **settings) as broker:
        client = await Client.connect(broker.port, login="ann")
        await client.subscribe("mine", "a.>")
        yield broker, client
        await client.close()


def test_commands_prove_the_token_and_believe_a_broker_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        async with broker_with_ann(tmp_path) as (broker, _):
            listed = await told(monkeypatch, tmp_path, broker.admin_port, "sessions", "list")
            assert (listed.code, listed.err, "unverified:ann" in listed.out) == (0, "", True)
            number = listed.out.split()[0]
            missing = await told(monkeypatch, tmp_path, broker.admin_port, "sessions", "close", "999")
            assert (missing.code, "no session 999" in missing.err) == (2, True)
            closed = await told(monkeypatch, tmp_path, broker.admin_port, "sessions", "close", number)
            assert closed.out == f"session {number} is closed\n"
            (tmp_path / "token").write_text("another-token-of-another-broker")
            wrong = await told(monkeypatch, tmp_path, broker.admin_port, "sessions", "list")
            assert (wrong.code, "does not know the token" in wrong.err) == (2, True)
            assert broker.server_statistics().admin_requests_refused == 1

    run(talk)


def test_broker_refuses_requests_that_another_program_passes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        async with (
            broker_with_ann(tmp_path) as (broker, _),
            Impostor(broker.admin_port).listening() as impostor,
        ):
            (session,) = broker.dispatcher.core.sessions()
            listed = await told(monkeypatch, tmp_path, impostor.port, "sessions", "list")
            closed = await told(monkeypatch, tmp_path, impostor.port, "sessions", "close", str(session.number))
            assert (listed.code, closed.code) == (2, 2)
            assert b"200 OK" in impostor.answers[0]
            assert b"ann" not in impostor.answers[0]
            assert b"401 Unauthorized" in impostor.answers[1]
            assert broker.dispatcher.core.sessions() == [session]

    run(talk)


def test_broker_takes_a_request_that_was_overheard_only_once(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker_with_ann(tmp_path) as (broker, _):
            proof = request_proof(TOKEN, f"127.0.0.1 {broker.admin_port}", "GET", "/sessions", wall_clock(), "ab" * 16)
            request = f"GET /sessions HTTP/1.1\r\nAuthorization: Postroad-Proof {proof}\r\n\r\n".encode()
            first, second = [await passed_on(broker.admin_port, request) for _ in range(2)]
            assert (b"200 OK" in first, b"ann" in first, b"401 Unauthorized" in second) == (True, True, True)
            # As curl and Prometheus do.
            shown = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
            assert (await get(broker.admin_port, "/sessions", shown))[0] == 200

    run(talk)


def test_console_gives_no_token_to_another_program_on_the_port(tmp_path: Path) -> None:
    status = json.dumps({"broker": 2}).encode()

    async def talk() -> None:
        async with (
            Impostor(answer=status).listening() as impostor,
            broker_with_ann(tmp_path, network=NetworkConfig()) as (broker, _),
        ):
            network = msgspec.structs.replace(NetworkConfig(), admins={"2": f"127.0.0.1:{impostor.port}"})
            broker.config = msgspec.structs.replace(broker.config, network=network)
            url = f"http://127.0.0.1:{broker.admin_port}/console/data"
            shown = json.loads((await admin_reply(url, 1 << 20, AdminAccess(TOKEN))).body)
            assert {each["number"]: each["condition"] for each in shown["brokers"]} == {1: "ready", 2: "silent"}
            assert b"GET /status" in impostor.heard
            assert TOKEN.encode() not in impostor.heard

    run(talk)
