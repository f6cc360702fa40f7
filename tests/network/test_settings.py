"""The settings that a network's brokers are started with."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.config import BrokerConfig, TlsConfig, broker_config, read_config
from postroad.network import NetworkError, Place, RunOptions, place_of
from postroad.network.configuration import config_text, write_config
from postroad.network.launcher import prepare
from postroad.network.ports import check_ports, free_ports
from postroad.topology import Plan, cluster, power_law, ring, tree

plans = st.one_of(
    st.builds(lambda count: Plan.of(ring(count), "ring"), st.integers(1, 6)),
    st.builds(lambda seed: Plan.of(power_law(9, seed), "grown", strategy="flood"), st.integers(0, 9)),
    st.builds(lambda count: Plan.of(tree(count, 2), "tree", strategy="tree", delivery="custody"), st.integers(1, 9)),
    st.just(Plan.of(cluster(2, 1, 1, 2), "cluster", strategy="cluster")),
)

# Settings with a NUL character are refused.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(plan=plans, secret=st.none() | texts.filter(bool), data=st.data())
def test_a_broker_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, plan: Plan, secret: str | None, data: st.DataObject
) -> None:
    number = data.draw(st.sampled_from([broker.number for broker in plan.brokers]))
    config = broker_config(plan, number, "somewhere", secret=secret, admin_port=4_000)
    path = tmp_path_factory.mktemp("settings") / "broker.toml"
    path.write_text(config_text(config), "utf-8")
    assert read_config(path) == config


@given(users=texts, key=texts)
def test_any_names_can_be_written(tmp_path_factory: pytest.TempPathFactory, users: str, key: str) -> None:
    config = BrokerConfig(
        users_file=users, tls=TlsConfig(certificate="c", key=key), websocket_origins=["https://a.example"]
    )
    path = tmp_path_factory.mktemp("settings") / "broker.toml"
    path.write_text(config_text(config), "utf-8")
    assert read_config(path) == config


def test_nobody_else_reads_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "brokers" / "1" / "broker.toml"
    path.parent.mkdir(parents=True)
    path.write_text("port = 1")
    path.chmod(0o644)
    write_config(path, BrokerConfig(users_file="users.toml"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_config(path).users_file == "users.toml"


def test_every_broker_gets_ports_and_a_directory_of_its_own(tmp_path: Path) -> None:
    plan = Plan.of(ring(4), "ring")
    place = Place(tmp_path)
    entries = prepare(plan, place, RunOptions(log_level="warning"))
    configs = [read_config(place.config_file(entry.number)) for entry in entries]
    ports = [port for config in configs for port in (config.port, config.admin_port)]
    assert len(set(ports)) == 8
    assert len({config.data for config in configs}) == 4
    assert [entry.links for entry in entries] == [2, 2, 2, 2]
    assert {config.log_level for config in configs} == {"warning"}


def test_taken_ports_are_told_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        plan = Plan.of(ring(1), "one", first_port=port)
        with pytest.raises(NetworkError, match=rf"taken: 127\.0\.0\.1:{port} \(broker 1\).*--first-port"):
            check_ports(plan)


def test_brokers_of_other_machines_are_not_started_here() -> None:
    plan = Plan.of(ring(1), "one", host="192.0.2.1", first_port=free_ports(1, set())[0])
    with pytest.raises(NetworkError, match=r"broker 1: 192\.0\.2\.1 is not an address of this machine"):
        check_ports(plan)


def test_free_ports_are_distinct_and_avoid_the_plan() -> None:
    avoided = set(free_ports(20, set()))
    found = free_ports(200, avoided)
    assert len(set(found)) == 200
    assert not avoided & set(found)


def test_the_data_of_a_plan_are_beside_it(tmp_path: Path) -> None:
    assert place_of(tmp_path / "plan.toml") == Place(tmp_path / "plan.network")
    assert place_of(tmp_path) == Place(tmp_path)
    assert place_of(tmp_path / "plan.toml", Path("elsewhere")) == Place(Path("elsewhere"))
