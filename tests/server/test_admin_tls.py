"""Brokers whose admin endpoints speak TLS: the console asks them, and certificates are renewed while they run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING

import msgspec

from postroad.client import AdminAccess, admin_reply
from postroad.config import Credentials, TlsConfig, broker_config
from postroad.network import make_credentials
from postroad.server import Service
from tests.server.fleet import free_ports
from tests.server.papers import Papers, plan_of_a_line
from tests.server.scene import run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from postroad.config import BrokerConfig
    from postroad.topology import Plan

TOKEN = "0123456789abcdef"


def settings(plan: Plan, number: int, folder: Path, ports: dict[int, int]) -> BrokerConfig:
    """A broker whose admin endpoint has the certificate of its links, and asks for a token and a certificate."""
    config = broker_config(plan, number, folder / str(number), admin_port=ports[number], credentials=folder / "keys")
    assert config.network is not None
    files = Credentials(str(folder / "keys")).tls(number)
    admins = {str(each): f"https://127.0.0.1:{port}" for each, port in ports.items()}
    return msgspec.structs.replace(
        config,
        admin_tls=TlsConfig(certificate=files.certificate, key=files.key, client_ca=files.ca),
        admin_token_file=str(folder / "token"),
        network=msgspec.structs.replace(config.network, admins=admins),
    )


@contextlib.asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[list[Service]]:
    """Two linked brokers."""
    (folder / "token").write_text(TOKEN)
    plan = make_credentials(plan_of_a_line(2), folder / "keys", tls=True)
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    services = [Service(settings(plan, number, folder, ports)) for number in (1, 2)]
    try:
        for each in services:
            await each.start()
        await until(lambda: linked(services))
        yield services
    finally:
        for each in services:
            await each.stop()


def linked(services: list[Service]) -> bool:
    return all(each.links is not None and len(each.links.up) == 1 for each in services)


def operator(folder: Path) -> AdminAccess:
    """An operator with the certificate of broker 1."""
    files = Credentials(str(folder / "keys")).tls(1)
    tls = ssl.create_default_context(cafile=files.ca)
    tls.load_cert_chain(files.certificate, files.key)
    return AdminAccess(TOKEN, tls)


async def conditions(folder: Path, broker: Service) -> dict[int, str]:
    url = f"https://127.0.0.1:{broker.admin_port}/console/data"
    shown = json.loads((await admin_reply(url, 1 << 20, operator(folder))).body)
    return {each["number"]: each["condition"] for each in shown["brokers"]}


async def shown_certificate(port: int, folder: Path) -> bytes:
    tls = operator(folder).tls
    assert tls is not None
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return certificate


def test_console_shows_brokers_whose_admin_endpoints_speak_tls(tmp_path: Path) -> None:
    async def talk() -> None:
        async with pair(tmp_path) as services:
            for broker in services:
                assert await conditions(tmp_path, broker) == {1: "ready", 2: "ready"}
            # Who is vouched for by another authority is not believed, and does not see the token.
            stranger = Papers(tmp_path / "stranger")
            first = services[0]
            assert first.config.network is not None
            network = msgspec.structs.replace(first.config.network, admins_ca=str(stranger.ca))
            await first.reload.run(lambda: msgspec.structs.replace(first.config, network=network))
            assert await conditions(tmp_path, first) == {1: "ready", 2: "ready"}
            first.config = msgspec.structs.replace(first.config, network=network)
            await first.reload.run()
            assert await conditions(tmp_path, first) == {1: "ready", 2: "silent"}

    run(talk)


def test_reload_takes_new_certificates_and_another_authority_of_links(tmp_path: Path) -> None:
    async def talk() -> None:
        async with pair(tmp_path) as services:
            first, second = services
            before = await shown_certificate(first.link_port, tmp_path)
            for name in ("authority.pem", "authority.key"):
                (tmp_path / "keys" / name).unlink()
            make_credentials(plan_of_a_line(2), tmp_path / "keys", tls=True)
            await first.reload.run()
            # The link that is there stays; a broker that is started with the new certificates is believed.
            assert linked(services)
            assert await shown_certificate(first.link_port, tmp_path) != before
            await second.stop()
            services[1] = Service(second.config)
            await services[1].start()
            await until(lambda: linked(services))
            assert await conditions(tmp_path, first) == {1: "ready", 2: "ready"}

    run(talk)


def test_reload_keeps_certificates_of_links_when_a_file_is_no_certificate(tmp_path: Path) -> None:
    async def talk() -> None:
        async with pair(tmp_path) as services:
            before = await shown_certificate(services[0].link_port, tmp_path)
            (tmp_path / "keys" / "broker-1.tls.pem").write_text("no certificate")
            await services[0].reload.run()
            (tmp_path / "keys" / "broker-1.tls.pem").write_text(ssl.DER_cert_to_PEM_cert(before))
            assert await shown_certificate(services[0].link_port, tmp_path) == before

    run(talk)
