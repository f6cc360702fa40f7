"""TLS on both STOMP ports, with certificates made for the test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect

from postroad.broker import Limits
from postroad.config import BrokerConfig, ConfigError, Neighbouring, NetworkConfig, TlsConfig
from postroad.server import Service
from tests.server.papers import Papers
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


def test_messages_go_over_tls_on_tcp_and_websocket(tmp_path: Path) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with service(tmp_path, tls=papers.config(), websocket_port=0) as broker:
            context = papers.client_context()
            client = await Client.connect(broker.port, context)
            await client.subscribe("s", "a")
            client.publish("a", b"x" * 300_000)
            assert (await client.frame()).body == b"x" * 300_000
            url = f"wss://127.0.0.1:{broker.websocket_port}/"
            async with connect(url, ssl=context) as socket:
                await socket.send("CONNECT\naccept-version:1.2\nhost:here\n\n\0")
                assert str(await socket.recv()).startswith("CONNECTED\n")
                await socket.send("SEND\ndestination:/topic/a\n\nover both\0")
                assert (await client.frame()).body == b"over both"
            client.send("DISCONNECT", receipt="bye")
            assert (await client.frame()).headers["receipt-id"] == "bye"
            assert await client.at_end()
            await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_strangers_that_never_shake_hands_are_bounded_and_keep_nobody_out(tmp_path: Path, event_loop: str) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        limits = Limits(strangers=3, connections_per_address=6)
        async with service(tmp_path, tls=papers.config(), limits=limits) as broker:
            idle = [await Client.open(broker.port) for _ in range(10)]
            await until(lambda: broker.server_statistics().strangers_evicted == 7)
            assert broker.server_statistics().strangers_now == 3
            for client in idle[:7]:
                with contextlib.suppress(ConnectionError):
                    assert await client.at_end()
            honest = await Client.connect(broker.port, papers.client_context())
            await honest.subscribe("s", "a")
            honest.publish("a", b"through")
            assert (await honest.frame()).body == b"through"
            assert broker.server_statistics().strangers_now == 2
            for client in idle:
                await client.close()
            await until(lambda: broker.server_statistics().strangers_now == 0)
            more = [await Client.connect(broker.port, papers.client_context()) for _ in range(5)]
            # Without a word, as there is no way to say one yet.
            with pytest.raises((ConnectionError, ssl.SSLError, EOFError)):
                await Client.connect(broker.port, papers.client_context())
            assert broker.server_statistics().connections_turned_away == 1
            for client in (honest, *more):
                await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)
        assert broker.server_statistics().strangers_now == 0

    on(event_loop, talk)


def on(event_loop: str, talk: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a test on an event loop of this kind: the two have TLS of their own."""
    if event_loop == "asyncio":
        run(talk)
        return
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(talk(), 40))


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("said", [b"", bytes.fromhex("1603010200010001fc0303")], ids=["nothing", "half a hello"])
def test_a_client_that_does_not_finish_its_tls_handshake_is_cut_off(
    tmp_path: Path, event_loop: str, said: bytes
) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with service(tmp_path, tls=papers.config(), connect_seconds=0.2) as broker:
            idle = await Client.open(broker.port)
            idle.writer.write(said)
            with contextlib.suppress(ConnectionError):
                assert await idle.reader.read() == b""
            await until(lambda: broker.server_statistics().strangers_now == 0)
            await idle.close()

    on(event_loop, talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_a_stranger_that_does_not_finish_its_tls_handshake_on_a_link_is_cut_off(
    tmp_path: Path, event_loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = Papers(tmp_path)
    monkeypatch.setattr("postroad.server.link_listener.TLS_SECONDS", 0.2)

    async def talk() -> None:
        async with service(tmp_path, network=NetworkConfig(tls=papers.for_links())) as broker:
            links = broker.links
            assert links is not None
            idle = await Client.open(broker.link_port)
            await until(lambda: len(links.strangers) == 1)
            with contextlib.suppress(ConnectionError):
                assert await idle.reader.read() == b""
            await until(lambda: len(links.strangers) == 0)
            await idle.close()

    on(event_loop, talk)


def test_a_neighbour_that_does_not_finish_its_tls_handshake_is_dialled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = Papers(tmp_path)
    monkeypatch.setattr("postroad.server.dialler.TLS_SECONDS", 0.2)
    dialled: list[asyncio.StreamWriter] = []

    async def talk() -> None:
        async with await asyncio.start_server(lambda _, writer: dialled.append(writer), "127.0.0.1", 0) as silent:
            port = silent.sockets[0].getsockname()[1]
            network = NetworkConfig(tls=papers.for_links(), neighbours=[Neighbouring(number=2, port=port)])
            async with service(tmp_path, network=network):
                await until(lambda: len(dialled) == 2)
            ports = {writer.get_extra_info("peername")[1] for writer in dialled}
            assert len(ports) == 2, "each time over a connection of its own"
            for writer in dialled:
                writer.close()

    run(talk)


def test_a_client_without_tls_gets_nothing_and_hurts_nobody(tmp_path: Path) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with service(tmp_path, tls=papers.config()) as broker:
            good = await Client.connect(broker.port, papers.client_context())
            plain = await Client.open(broker.port)
            plain.send("CONNECT", **{"accept-version": "1.2", "host": "here"})
            assert b"CONNECTED" not in await plain.reader.read()
            await plain.close()
            await good.subscribe("s", "a")
            await good.close()

    run(talk)


def test_a_broker_with_a_client_ca_asks_for_certificates(tmp_path: Path) -> None:
    papers, others = Papers(tmp_path), Papers(tmp_path / "others")

    async def talk() -> None:
        async with service(tmp_path, tls=papers.config(client_ca=papers.ca)) as broker:
            known, stranger, nobody = (papers.client_context() for _ in range(3))
            papers.authority.issue_cert("client@here.example").configure_cert(known)
            others.authority.issue_cert("client@here.example").configure_cert(stranger)
            client = await Client.connect(broker.port, known)
            for context in (stranger, nobody):
                with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                    await Client.connect(broker.port, context)
            await client.subscribe("s", "a")
            assert broker.statistics().sessions_now == 1
            await client.close()

    run(talk)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    papers, others = Papers(tmp_path / "ours"), Papers(tmp_path / "others")
    nothing = str(tmp_path / "nothing.pem")
    wrong = [
        (TlsConfig(certificate=nothing, key=nothing), "nothing.pem"),
        (TlsConfig(certificate=str(papers.certificate), key=str(others.key)), "the key belongs to the certificate"),
        (papers.config(client_ca=tmp_path / "nothing.pem"), "client_ca"),
        (papers.config(client_ca=papers.key), "client_ca"),
    ]
    for tls, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            Service(BrokerConfig(data=str(tmp_path), tls=tls))
