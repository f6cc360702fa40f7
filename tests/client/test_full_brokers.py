"""Clients that reconnect: what a broker cannot do for them now is no reason to give up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from postroad.client import ClientError, Reconnect, connect
from postroad.client.connection import ClientHello
from postroad.client.wire import Wire
from postroad.server import login_gate
from tests.client.serving import address, broker, run, until
from tests.server.people import users_file

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.client.address import Address

SOON = Reconnect(first=0.02, longest=0.1)


def test_a_client_waits_for_a_place_at_a_broker_that_is_full(tmp_path: Path) -> None:
    async def talk() -> None:
        wait = Reconnect(first=0.2, longest=0.2)
        async with (
            broker(tmp_path, limits=Limits(sessions=1)) as service,
            connect(address(service), reconnect=wait) as client,
        ):
            service.clients.close_session(1, "an operator")
            await until(lambda: len(service.clients) == 0)
            async with connect(address(service)):
                # At least one attempt is turned away.
                await until(lambda: service.server_statistics().connections_turned_away > 0)
            assert await client.publish("a", receipt=True) is not None

    run(talk())


def test_clients_that_come_back_wait_while_too_many_logins_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret")
        async with broker(tmp_path / "1", users_file=people) as first:
            client = await connect(address(first), login="ann", passcode="secret", reconnect=SOON).__aenter__()
            port = first.port
        # The next process remembers no passcodes, and is busy with those of others.
        monkeypatch.setattr(login_gate, "MOST_CHECKS_PER_ADDRESS", 0)
        async with broker(tmp_path / "2", users_file=people, port=port) as second:
            await until(lambda: second.server_statistics().logins_delayed >= 2)
            monkeypatch.setattr(login_gate, "MOST_CHECKS_PER_ADDRESS", 8)
            assert await client.publish("a", receipt=True) is not None
            await client.__aexit__(None, None, None)

    run(talk())


class _BrokenServers:
    """Names a server once, and fails in a way of its own from then on."""

    def __init__(self, first: Address) -> None:
        self._named = [first]

    async def addresses(self) -> list[Address]:
        if not self._named:
            raise ValueError("no such thing")
        return [self._named.pop()]


def test_nobody_waits_for_a_connection_that_a_defect_keeps_from_being_restored(tmp_path: Path) -> None:
    async def talk() -> None:
        from postroad.client.address import parse_address

        async with broker(tmp_path) as service:
            wire = Wire(_BrokenServers(parse_address(address(service))), ClientHello(), SOON)
            await wire.open()
        with pytest.raises(ClientError, match=r"cannot be restored \(ValueError: no such thing\)"):
            async with asyncio.timeout(30):
                await wire.connection()
        await wire.close()

    run(talk())


@pytest.mark.parametrize("server", ["stomp://a..b:61613", f"stomp://{'a' * 64}:61613"])
def test_a_name_that_no_host_can_have_is_refused(server: str) -> None:
    with pytest.raises(ClientError, match="write it like stomp://"):
        connect(server)
