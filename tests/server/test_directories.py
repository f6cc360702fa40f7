"""The directories of a broker are closed to others, and open secrets are warned of."""

from __future__ import annotations

import grp
import logging
import os
import shutil
import stat
from typing import TYPE_CHECKING

import pytest

from postroad.config import (
    BrokerConfig,
    ConfigError,
    LinkTlsConfig,
    NetworkConfig,
    TlsConfig,
    TrackingConfig,
    read_config,
)
from postroad.server import Service
from postroad.server.directories import exposed_secrets, warn_of_exposed_secrets
from tests.server.scene import Client, run, service

if TYPE_CHECKING:
    from pathlib import Path

GROUP = grp.getgrgid(os.getgid()).gr_name


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}


@pytest.mark.parametrize(("group", "expected"), [(None, {0o700, 0o600}), (GROUP, {0o2750, 0o640})])
def test_all_that_a_broker_writes_is_for_its_owner_or_its_group(
    tmp_path: Path, group: str | None, expected: set[int]
) -> None:
    async def talk() -> None:
        tracking = TrackingConfig(recorder="exact", journal=True, trail=str(tmp_path / "trail"))
        async with service(tmp_path / "data", group=group, tracking=tracking) as broker:
            client = await Client.connect(broker.port, login="alice")
            client.publish("quotes", b"30", receipt="r")
            assert (await client.frame()).command == "RECEIPT"
            await client.close()

    before = os.umask(0)
    try:
        run(talk)
    finally:
        os.umask(before)
    # Stored messages are for the owner alone, whoever may read the record; the folder inherits the set-group-ID bit.
    store = tmp_path / "data" / "store"
    assert {mode & 0o777 for mode in modes(store)} == {0o700, 0o600}
    shutil.rmtree(store)
    for name in ("data", "trail"):
        assert modes(tmp_path / name) == expected
    assert any((tmp_path / "trail" / "passages").rglob("*.parquet"))


def test_directory_that_was_open_before_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data" / "old").mkdir(parents=True)
    (tmp_path / "data").chmod(0o755)
    Service(BrokerConfig(port=0, data=str(tmp_path / "data")))
    (record,) = [one for one in caplog.records if one.getMessage() == "directory open to others"]
    assert vars(record)["directory"] == str(tmp_path / "data")
    assert "chmod -R go= " in vars(record)["problem"]
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o755


def test_group_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="group: there is no group 'no such group'"):
        Service(BrokerConfig(port=0, data=str(tmp_path / "data"), group="no such group"))


@pytest.mark.parametrize(("mode", "said"), [(0o600, ""), (0o640, ""), (0o644, "can read it"), (0o660, "can change it")])
@pytest.mark.parametrize(
    "text", ["users_file = 'broker.toml'\n", "admin_token_file = 'broker.toml'\n", '[network]\nsecret = "hush"\n']
)
def test_settings_with_secrets_that_others_can_read_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, said: str, text: str
) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text.replace("broker.toml", str(path)))
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "postroad.server"):
        warn_of_exposed_secrets(read_config(path), path)
    assert [said in vars(record)["problem"] for record in caplog.records] == ([True] if said else [])
    assert all("hush" not in vars(record)["problem"] for record in caplog.records)


def test_settings_without_secrets_may_be_open(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("number = 2\n")
    path.chmod(0o666)
    assert exposed_secrets(read_config(path), path) == []


def test_keys_that_others_can_read_are_warned_of(tmp_path: Path) -> None:
    keys = [tmp_path / f"{name}.key" for name in ("client", "admin", "record", "link")]
    for key in keys:
        key.touch()
        key.chmod(0o644)
    config = BrokerConfig(
        tls=TlsConfig(certificate="c.pem", key=str(keys[0])),
        admin_tls=TlsConfig(certificate="c.pem", key=str(keys[1])),
        network=NetworkConfig(key=str(keys[2]), tls=LinkTlsConfig(certificate="c.pem", key=str(keys[3]), ca="ca.pem")),
    )
    assert [problem.split()[0] for problem in exposed_secrets(config)] == [str(key) for key in keys]
    for key in keys[:3]:
        key.chmod(0o600)
    keys[3].unlink()
    assert exposed_secrets(config) == []
