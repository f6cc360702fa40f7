"""Keys and certificates beside a plan, and a network that uses them."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

from postroad.cli.application import program
from postroad.config import ConfigError, Credentials, broker_config
from postroad.network import NetworkError, credentials_of, make_credentials
from postroad.security import Authority, broker_uri, certified_number, new_key, public_key
from postroad.server import Service
from postroad.topology import Plan, PlanError
from tests.server.hostile import Hostile
from tests.server.papers import plan_of_a_line
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from pathlib import Path


def service(plan: Plan, number: int, folder: Path) -> Service:
    return Service(broker_config(plan, number, folder / str(number), credentials=folder / "keys"))


def test_plan_with_keys_reads_what_it_wrote_and_private_keys_are_for_their_owner(tmp_path: Path) -> None:
    plan = make_credentials(plan_of_a_line(), tmp_path / "keys", tls=True)
    assert Plan.parse(plan.to_toml()) == plan
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    names = Credentials(str(tmp_path / "keys"))
    files = [names.key(1), names.tls(1).key, names.tls(1).certificate, names.authority, names.authority_key]
    for file in files:
        assert (tmp_path / "keys" / file).stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in plan.to_toml()


def test_keys_that_are_there_are_kept_and_certificates_are_made_anew_by_the_same_authority(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    first = make_credentials(plan_of_a_line(2), folder, tls=True)
    authority, certificate = (folder / "authority.pem").read_bytes(), (folder / "broker-1.tls.pem").read_bytes()
    again = make_credentials(plan_of_a_line(3), folder, tls=True)
    assert [one.key for one in again.brokers[:2]] == [one.key for one in first.brokers]
    assert (folder / "authority.pem").read_bytes() == authority
    assert (folder / "broker-1.tls.pem").read_bytes() != certificate


def test_what_is_no_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "broker-1.key").write_text("no key")
    with pytest.raises(NetworkError, match="not a PEM file with a private key"):
        make_credentials(plan_of_a_line(), tmp_path / "keys", tls=False)


def test_certificate_names_one_broker_of_one_network() -> None:
    named = {"subjectAltName": (("IP Address", "127.0.0.1"), ("URI", broker_uri("net work", 7)))}
    assert broker_uri("net work", 7) == "postroad://net%20work/7"
    assert certified_number(named, "net work", [3, 7]) == 7
    assert certified_number(named, "net work", [3]) == 0
    assert certified_number(named, "another", [3, 7]) == 0
    assert certified_number({"subjectAltName": (("DNS", "example.org"),)}, "net work", [7]) is None
    two = {"subjectAltName": (("URI", broker_uri("n", 7)), ("URI", broker_uri("n", 3)))}
    assert certified_number(two, "n", [3, 7]) == 0


def test_brokers_with_keys_and_certificates_carry_messages(tmp_path: Path) -> None:
    plan = make_credentials(plan_of_a_line(3), tmp_path / "keys", tls=True)

    async def talk() -> None:
        services = [service(plan, number, tmp_path) for number in (1, 2, 3)]
        try:
            for each in services:
                await each.start()
            await until(lambda: [len(each.links.up) for each in services if each.links] == [1, 2, 1])
            far = await Client.connect(services[2].port)
            await far.subscribe("s", "quotes")
            await asyncio.sleep(0.4)
            sender = await Client.connect(services[0].port)
            sender.publish("quotes", b"x" * 100_000)
            assert (await far.frame()).body == b"x" * 100_000
            for client in (far, sender):
                await client.close()
            for each in services:
                assert each.links is not None
                assert sum(one.refusals for one in each.links.neighbours()) == 0
        finally:
            for each in services:
                await each.stop()

    run(talk)


def test_broker_with_the_certificate_of_another_is_not_let_in(tmp_path: Path) -> None:
    """Broker 3 has a certificate of the network and claims to be broker 1; keys are not used, so nothing else tells."""
    plan = make_credentials(plan_of_a_line(3), tmp_path / "keys", tls=True)

    def context(number: int) -> ssl.SSLContext:
        files = Credentials(str(tmp_path / "keys")).tls(number)
        made = ssl.create_default_context(cafile=files.ca)
        made.load_cert_chain(files.certificate, files.key)
        return made

    async def talk() -> None:
        config = broker_config(plan, 2, tmp_path / "2", credentials=tmp_path / "keys")
        assert config.network is not None
        network = msgspec.structs.replace(config.network, key=None, members=[])
        broker = Service(msgspec.structs.replace(config, network=network))
        await broker.start()
        opened = []
        try:
            for claimed, shown, fine in ((1, 3, False), (3, 1, False), (3, 3, True)):
                hostile = await Hostile.connect(broker.link_port, claimed, secret=None, tls=context(shown))
                opened.append(hostile)
                assert hostile.open == fine
                assert fine or "not expected on this link" in hostile.said_goodbye
        finally:
            for each in opened:
                each.writer.transport.abort()
            await broker.stop()
            await asyncio.sleep(0.05)

    run(talk)


def test_idle_connections_do_not_lock_a_neighbour_out_of_a_port_with_tls(tmp_path: Path) -> None:
    """They never begin their TLS handshakes."""
    plan = make_credentials(plan_of_a_line(2), tmp_path / "keys", tls=True)

    async def talk() -> None:
        listening = service(plan, 2, tmp_path)
        await listening.start()
        idle = [await asyncio.open_connection("127.0.0.1", listening.link_port) for _ in range(70)]
        dialling = service(plan, 1, tmp_path)
        await dialling.start()
        try:
            await until(lambda: dialling.links is not None and dialling.links.up == {2})
            assert listening.links is not None
            assert len(listening.links.strangers) <= 64
            assert listening.links.statistics()["connections_turned_away"] >= 6
        finally:
            for _, writer in idle:
                writer.transport.abort()
            for each in (dialling, listening):
                await each.stop()
            await asyncio.sleep(0.1)

    run(talk)


def test_broker_does_not_start_with_a_key_that_is_not_its_own(tmp_path: Path) -> None:
    plan = make_credentials(plan_of_a_line(), tmp_path / "keys", tls=False)
    (tmp_path / "keys" / "broker-1.key").write_bytes(new_key())
    with pytest.raises(ConfigError, match="is not that of broker 1"):
        service(plan, 1, tmp_path)
    with pytest.raises(PlanError, match="say in which directory"):
        broker_config(plan, 1, tmp_path)


def test_plan_has_keys_for_all_brokers_or_none() -> None:
    plan = plan_of_a_line()
    first, second = plan.brokers
    keyed = msgspec.structs.replace(first, key=public_key(new_key()))
    with pytest.raises(PlanError, match=r"brokers\[1\]\.key: is missing"):
        msgspec.structs.replace(plan, brokers=(keyed, second)).checked()
    with pytest.raises(PlanError, match="the same key"):
        msgspec.structs.replace(plan, brokers=(keyed, msgspec.structs.replace(second, key=keyed.key))).checked()


def test_authority_vouches_for_hosts_by_name_and_by_address() -> None:
    authority = Authority.new("a network with a name that is longer than a common name may be, by far")
    for host in ("broker.example.org", "192.0.2.7", "2001:db8::7"):
        assert authority.issue("n", 1, host).certificate.startswith(b"-----BEGIN CERTIFICATE-----")


def test_command_makes_keys_for_other_machines_and_for_a_plan_that_is_there(tmp_path: Path) -> None:
    out = tmp_path / "square.toml"
    asked = ["network", "plan", "square", "--host", "192.0.2.7"]
    done = CliRunner().invoke(program(), [*asked, "--tls", "--out", str(out)])
    assert done.exit_code == 0, done.output
    plan = Plan.parse(out.read_text())
    assert plan.tls
    assert all(one.key for one in plan.brokers)
    assert credentials_of(out) == tmp_path / "square.keys"
    assert "private keys are written beside the plan" in str(CliRunner().invoke(program(), asked).exception)
    local = tmp_path / "line.toml"
    assert CliRunner().invoke(program(), ["network", "plan", "line", "--out", str(local)]).exit_code == 0
    assert not credentials_of(local).exists()
    assert CliRunner().invoke(program(), ["network", "keys", str(local)]).exit_code == 0
    assert all(one.key for one in Plan.parse(local.read_text()).brokers)
