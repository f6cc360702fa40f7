"""Clients of a broker that speaks TLS, with certificates made for the test."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from postroad.client import ClientError, ConnectionLost, connect
from postroad.config import TlsConfig
from tests.client.serving import broker, run

if TYPE_CHECKING:
    from pathlib import Path


def papers(folder: Path, authority: trustme.CA) -> TlsConfig:
    """A certificate for 127.0.0.1, as files."""
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    return TlsConfig(certificate=str(folder / "certificate.pem"), key=str(folder / "key.pem"))


def test_client_talks_to_a_server_it_trusts_and_to_no_other(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusting, stranger = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)

    async def talk() -> None:
        async with broker(tmp_path, tls=papers(tmp_path, authority)) as service:
            server = f"stomps://127.0.0.1:{service.port}"
            async with connect(server, tls=trusting) as client, client.subscribe("a") as subscription:
                sent = await client.publish("a", body=bytes(200_000), receipt=True)
                message = await subscription.get()
                assert (message.id, len(message.body)) == (sent, 200_000)
            with pytest.raises(
                ConnectionLost,
                match=r"certificate verify failed.*; if it is the right server, trust its authority: --ca FILE",
            ):
                await connect(server, tls=stranger).__aenter__()
            with pytest.raises(
                ConnectionLost, match=r"Hostname mismatch.*; connect by a name that its certificate has"
            ):
                await connect(server.replace("127.0.0.1", "localhost"), tls=trusting).__aenter__()

    run(talk())


def test_client_that_speaks_tls_to_a_server_without_it_is_told_the_address_to_write(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service:
            with pytest.raises(
                ConnectionLost, match=r"cannot connect \(.*\); if it does not speak TLS, write stomp://"
            ):
                await connect(f"stomps://127.0.0.1:{service.port}").__aenter__()

    run(talk())


def test_tls_for_an_address_without_it_is_refused() -> None:
    with pytest.raises(ClientError, match="write stomps://"):
        connect("stomp://127.0.0.1", tls=ssl.create_default_context())
