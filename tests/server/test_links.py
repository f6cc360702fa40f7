"""Brokers linked over real sockets: messages go where they are wanted, over any way there is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from postroad.config import (
    BrokerConfig,
    ConfigError,
    LinkTlsConfig,
    Member,
    Neighbouring,
    NetworkConfig,
    check_network,
)
from postroad.errors import PostroadError
from postroad.server import Service
from postroad.server.metrics import metrics_text
from postroad.server.status import status
from postroad.server.strangers import MOST_STRANGERS
from postroad.topology import StrategyName, line, ring
from tests.server import scene
from tests.server.linkstreams import handshake, hello
from tests.server.live import LiveNetwork, live, subscriber
from tests.server.papers import Papers
from tests.server.scene import PATIENCE, Client, run, until

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path


@pytest.mark.parametrize("strategy", ["drp", "flood"])
def test_a_message_reaches_subscribers_at_other_brokers_by_content(tmp_path: Path, strategy: StrategyName) -> None:
    async def talk() -> None:
        async with live(line(3), tmp_path, strategy, "a secret that all brokers share") as network:
            far = await subscriber(network.services[3], selector="price > 20")
            middle = await subscriber(network.services[2])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            for price in (10, 30, 20, 40):
                sender.publish("quotes", str(price).encode(), price=str(price))
            assert [(await far.frame()).body for _ in range(2)] == [b"30", b"40"]
            assert [(await middle.frame()).body for _ in range(4)] == [b"10", b"30", b"20", b"40"]
            # What links bring is load, too: the monitors of the others have seen it.
            await until(lambda: network.services[2].timing.messages == 4)
            assert network.services[3].timing.messages >= 2
            assert all(service.capacity.monitor.reads_timed for service in network.services.values())
            for client in (far, middle, sender):
                await client.close()

    run(talk)


def test_messages_go_the_other_way_round_when_a_broker_stops_and_it_is_used_again_when_it_returns(
    tmp_path: Path,
) -> None:
    async def talk() -> None:
        async with live(ring(4), tmp_path) as network:
            far = await subscriber(network.services[3])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            sender.publish("quotes", b"one")
            assert (await far.frame()).body == b"one"
            await network.services.pop(2).stop()
            await network.converged()
            sender.publish("quotes", b"two")
            assert (await far.frame()).body == b"two"
            await network.start(2)
            await network.converged()
            told = status(network.services[2]).network
            assert told is not None
            assert (told.name, told.strategy, told.links["links_up"], told.routing["reached"]) == (
                "postroad",
                "drp",
                2,
                3,
            )
            newcomer = await Client.connect(network.services[2].port)
            newcomer.publish("quotes", b"three")
            assert (await far.frame()).body == b"three"
            for client in (far, sender, newcomer):
                await client.close()

    run(talk)


def test_a_broker_with_another_secret_does_not_join(tmp_path: Path) -> None:
    async def talk() -> None:
        network = LiveNetwork(line(2), tmp_path, "drp", "the secret of this network")
        network.secrets[2] = "the secret of another one"
        try:
            for number in (1, 2):
                await network.start(number)
            await asyncio.sleep(1)
            for service in network.services.values():
                assert service.links is not None
                assert service.links.statistics()["links_up"] == 0
        finally:
            for service in network.services.values():
                await service.stop()

    run(talk)


def test_links_to_other_machines_need_tls_and_keys_or_words_that_say_not() -> None:
    def distant(**more: Any) -> NetworkConfig:
        return NetworkConfig(neighbours=[Neighbouring(number=2, host="192.0.2.1", port=1)], **more)

    tls = LinkTlsConfig(certificate="c", key="k", ca="a")
    members = [Member(number=number, key="k") for number in (1, 2)]
    for config in (distant(), distant(secret="s"), distant(secret="s", key="k", members=members)):
        with pytest.raises(PostroadError, match=r"192\.0\.2\.1 is another machine, so links need TLS"):
            check_network(config, 1)
    for config in (distant(tls=tls), distant(tls=tls, secret="s"), distant(insecure_links_without_tls=True)):
        with pytest.raises(PostroadError, match=r"192\.0\.2\.1 is another machine, so brokers need keys"):
            check_network(config, 1)
    insecure = distant(insecure_links_without_tls=True, insecure_records_without_keys=True)
    with pytest.raises(PostroadError, match="so links need a secret"):
        check_network(insecure, 1)
    check_network(distant(tls=tls, key="k", members=members), 1)
    check_network(distant(insecure_links_without_tls=True, key="k", members=members), 1)
    check_network(distant(insecure_records_without_keys=True, tls=tls), 1)
    check_network(msgspec.structs.replace(insecure, secret="s"), 1)


def test_keys_that_do_not_fit_the_network_are_refused() -> None:
    members = [Member(number=1, key="k")]
    with pytest.raises(PostroadError, match="key and members go together"):
        check_network(NetworkConfig(members=members), 1)
    with pytest.raises(PostroadError, match="broker 2 is not listed"):
        check_network(NetworkConfig(key="k", members=members, neighbours=[Neighbouring(number=2, port=1)]), 1)
    with pytest.raises(PostroadError, match="listed twice"):
        check_network(NetworkConfig(key="k", members=members * 2), 1)


def test_links_speak_tls_with_certificates_of_both_ends(tmp_path: Path) -> None:
    async def talk() -> None:
        network = LiveNetwork(line(3), tmp_path, "drp", "a secret that all brokers share")
        papers = Papers(tmp_path)
        network.papers = {1: papers, 2: papers, 3: Papers(tmp_path / "others")}
        try:
            for number in (1, 2, 3):
                await network.start(number)
            first, second, third = (service.links for service in network.services.values())
            assert first is not None
            assert second is not None
            assert third is not None
            await until(lambda: first.statistics()["links_up"] == 1)
            far = await subscriber(network.services[2])
            await asyncio.sleep(0.4)
            sender = await Client.connect(network.services[1].port)
            sender.publish("quotes", b"x" * 300_000)
            assert (await far.frame()).body == b"x" * 300_000
            # Broker 3 has a certificate that nobody here vouches for.
            await asyncio.sleep(0.5)
            assert (second.statistics()["links_up"], third.statistics()["links_up"]) == (1, 0)
            for client in (far, sender):
                await client.close()
        finally:
            for service in network.services.values():
                await service.stop()

    run(talk)


def test_a_certificate_for_links_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere.pem")
    network = NetworkConfig(tls=LinkTlsConfig(certificate=nowhere, key=nowhere, ca=nowhere))
    with pytest.raises(ConfigError, match=r"network\.tls: certificate .*nowhere\.pem"):
        Service(BrokerConfig(data=str(tmp_path), network=network))


def test_status_and_metrics_tell_of_each_link(tmp_path: Path) -> None:
    async def talk() -> None:
        async with live(line(2), tmp_path) as network:
            far = await subscriber(network.services[2])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            for _ in range(3):
                sender.publish("quotes", b"x")
                await far.frame()
            found = status(network.services[1])
            assert found.network is not None
            (link,) = found.network.neighbours
            assert (link.neighbour, link.up_now, link.sent_messages, link.shed_messages) == (2, True, 3, 0)
            text = metrics_text(found).decode()
            assert 'postroad_link_sent_messages_total{broker="1",neighbour="2"} 3.0' in text
            assert 'postroad_link_up{broker="1",neighbour="2"} 1.0' in text
            assert 'postroad_relay_sent_total{broker="1"} 3.0' in text
            for client in (far, sender):
                await client.close()

    run(talk)


def link_to_broker_5(path: Path) -> contextlib.AbstractAsyncContextManager[Service]:
    neighbours = [Neighbouring(number=1, port=1)]
    return scene.service(path, number=5, network=NetworkConfig(neighbours=neighbours))


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"\x00\x08\x00\x00\x01\x00\x00\x00", b"a HELLO frame of 2,048 bytes; the limit is 1,024 before the handshake"),
        (
            handshake(7) + b"\x00\x00\x00\x04\x03\x00\x00\x00",
            b"a DATA frame of 67,108,864 bytes; the limit is 33,554,432",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", b"is the peer a broker?"),
        (hello(7, broker=2), b"broker 2 is not expected on this link"),
    ],
    ids=["hello", "data", "http", "stranger"],
)
def test_what_a_link_refuses_is_told_and_only_that_connection_closes(
    tmp_path: Path, stream: bytes, said: bytes
) -> None:
    async def talk() -> None:
        async with link_to_broker_5(tmp_path) as broker:
            client = await Client.connect(broker.port)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.link_port)
            writer.write(stream)
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            assert said in answer
            writer.close()
            await client.subscribe("s", "a")
            client.publish("a", b"still here")
            assert (await client.frame()).body == b"still here"
            await client.close()

    run(talk)


def test_idle_connections_make_room_for_a_neighbour(tmp_path: Path) -> None:
    async def talk() -> None:
        async with link_to_broker_5(tmp_path) as broker:
            assert broker.links is not None
            idle = [await asyncio.open_connection("127.0.0.1", broker.link_port) for _ in range(MOST_STRANGERS + 6)]
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.link_port)
            writer.write(handshake(7))
            await until(lambda: broker.links is not None and broker.links.up == {1})
            # The oldest went for the newer ones, and were told.
            assert b"wait for their handshakes" in await asyncio.wait_for(idle[0][0].read(), PATIENCE)
            assert broker.links.statistics()["connections_turned_away"] == 7
            assert len(broker.links.strangers) == MOST_STRANGERS - 1
            for _, each in [*idle, (reader, writer)]:
                each.close()
            await until(lambda: broker.links is not None and not len(broker.links.strangers))

    run(talk)


def test_a_neighbour_whose_host_is_no_name_is_dialled_again_and_again(tmp_path: Path) -> None:
    async def talk() -> None:
        network = NetworkConfig(
            secret="0123456789abcdef",
            neighbours=[Neighbouring(number=2, host="a..b", port=9)],
            insecure_links_without_tls=True,
            insecure_records_without_keys=True,
        )
        async with scene.service(tmp_path, network=network) as broker:
            assert broker.links is not None
            await asyncio.sleep(0.2)
            (dialling,) = broker.links._dialler._tasks.values()
            assert not dialling.done()

    run(talk)
