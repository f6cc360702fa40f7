"""Settings: what is read, what is refused, and what is missing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from postroad.config import BrokerConfig, ConfigError, TlsConfig, TrackingConfig, read_config
from postroad.filters import TABLE_2, Shape, rate_for, shape_for
from postroad.server import ReservationError, Service, extras

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = """
    number = 3
    host = "0.0.0.0"
    port = 0
    websocket_port = 15674
    websocket_origins = ["https://ours.example"]
    admin_port = 8161
    connect_seconds = 2.5
    log_level = "warning"
    users_file = "users.toml"
    [tls]
    certificate = "cert.pem"
    key = "key.pem"
    [limits]
    sessions = 5
    """
    config = read_config(written(tmp_path, text))
    assert (config.number, config.port, config.websocket_port, config.admin_port) == (3, 0, 15674, 8161)
    assert config.users_file == "users.toml"
    assert config.tls == TlsConfig(certificate="cert.pem", key="key.pem")
    assert (config.limits.sessions, config.limits.queue_messages) == (5, 10_000)
    assert (config.connect_seconds, config.log_level) == (2.5, "warning")


def test_an_empty_file_is_a_broker_for_this_machine_only(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, ""))
    assert config == BrokerConfig()
    assert (config.host, config.admin_port, config.websocket_port) == ("127.0.0.1", None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prot = 1", "prot"),
        ('[users]\nann = "secret"\nbob = "b"', r"postroad users add ann --file .*users.toml`, and the same for 1 more"),
        ("users = 3", "postroad users add LOGIN"),
        ("port = 1" + "0" * 5_000, "not TOML"),
        ("port = " + "[" * 5_000, "not TOML"),
        ('port = "high"', r"\$\.port"),
        ("port = 70000", r"\$\.port"),
        ('log_level = "loud"', r"\$\.log_level"),
        ("connect_seconds = 0.0", r"\$\.connect_seconds"),
        ("connect_seconds = inf", r"\$\.connect_seconds"),
        ('users_file = "a\\u0000b"', r"NUL character.*\$\.users_file"),
        ('websocket_origins = ["*", "\\u0000"]', r"NUL character.*\$\.websocket_origins\[1\]"),
        ('[tls]\ncertificate = "\\u0000"\nkey = "k"', r"NUL character.*\$\.tls\.certificate"),
        ("[limits]\nsession = 1", r"\$\.limits"),
        ("[limits]\ndrain_messages = 0", r"\$\.limits\.drain_messages"),
        ("[frames]\nbody_bytes = 20_000_000", r"\$\.frames\.body_bytes"),
        ("[network]\nport = 70000", r"\$\.network\.port"),
        ("[[network.neighbours]]\nnumber = 2\nport = 0", r"\$\.network\.neighbours\[0\]\.port"),
        ('[tls]\ncertificate = "a"', "key"),
        ("[tracking]\neffective_error = 0.7", r"\$\.tracking\.effective_error"),
        ("[tracking]\nbits = 32", r"\$\.tracking\.bits"),
        ("port = ", "not TOML"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_config(written(tmp_path, text))
    assert "broker.toml" in str(refused.value)


CONTRADICTIONS = [
    ('recorder = "bloom"\nbits = 65536\nhashes = 16\nkeys = 5000\neffective_error = 1e-5', "choose at most 2,572 keys"),
    (
        'recorder = "bloom"\nbits = 65536\nhashes = 16\nkeys = 2521\neffective_error = 1e-5\nmatching_set = 9',
        "9 filters",
    ),
    ('recorder = "bloom"\nkeys = 1000000\nmemory_bytes = 65536', "more than the 65,536 bytes of memory_bytes"),
    ('recorder = "sealed"\neffective_error = 1e-12', 'choose a larger effective_error, or method = "bloom"'),
]


@pytest.mark.parametrize(("settings", "reason"), CONTRADICTIONS)
def test_settings_of_tracking_that_contradict_each_other_are_refused(
    tmp_path: Path, settings: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_config(written(tmp_path, f"[tracking]\n{settings}"))
    assert "broker.toml: $.tracking: " in str(refused.value)
    tracking = msgspec.toml.decode(settings, type=TrackingConfig)
    with pytest.raises(ConfigError, match=reason):
        Service(BrokerConfig(data=str(tmp_path), tracking=tracking))


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ("", TABLE_2["135K 99.999%"]),
        ("bits = 65536\nhashes = 16\nkeys = 2521", TABLE_2["10K 99.999%"]),
        ("bits = 65536\nhashes = 8\nkeys = 5461\neffective_error = 0.01", TABLE_2["10K 99%"]),
        ("bits = 65536\nhashes = 16", Shape(65_536, 16, 2_572)),
        ("keys = 1000\neffective_error = 0.02\nmatching_set = 2", shape_for(1_000, rate_for(0.02, 2))),
    ],
)
def test_the_filters_of_bloom_have_the_shape_that_is_asked_for(tmp_path: Path, settings: str, shape: Shape) -> None:
    config = read_config(written(tmp_path, f'[tracking]\nrecorder = "bloom"\n{settings}'))
    assert config.tracking.histories().shape == shape


@pytest.mark.parametrize("recorder", ["log", "bloom", "sealed"])
@pytest.mark.parametrize("seconds", [0.1, 1.0, 60.0])
def test_a_history_and_its_wait_for_others_take_no_longer_than_a_crash_may_cost(recorder: str, seconds: float) -> None:
    tracking = msgspec.convert({"recorder": recorder, "persist_seconds": seconds}, TrackingConfig)
    histories = tracking.histories()
    assert histories.interval + histories.linger == 1_000 * seconds


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: cannot be read"):
        read_config(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("settings", "extra"),
    [({"websocket_port": 0}, "websocket"), ({"event_loop": "uvloop"}, "fast")],
)
def test_a_setting_whose_library_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], extra: str
) -> None:
    monkeypatch.setattr(extras, "has", lambda module: False)
    with pytest.raises(ConfigError, match=rf"pip install 'postroad\[{extra}\]'"):
        Service(BrokerConfig(data=str(tmp_path), **settings))
    Service(BrokerConfig(data=str(tmp_path)))


def test_the_event_loop_is_uvloop_when_it_is_there_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvloop

    assert extras.loop_factory(BrokerConfig()) is uvloop.new_event_loop
    assert extras.loop_factory(BrokerConfig(event_loop="asyncio")) is asyncio.new_event_loop
    monkeypatch.setattr(extras, "has", lambda module: False)
    assert extras.loop_factory(BrokerConfig()) is asyncio.new_event_loop


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "publisher-numbers").write_text("not a number")
    with pytest.raises(ReservationError, match="publisher-numbers: cannot read"):
        Service(BrokerConfig(data=str(tmp_path)))
    with pytest.raises(ReservationError, match=r"publisher-numbers cannot be made \(File exists\); name another one"):
        Service(BrokerConfig(data=str(tmp_path / "publisher-numbers")))


WITHOUT_EXTRAS = """
import asyncio, sys
sys.modules.update(dict.fromkeys(["websockets", "uvloop", "prometheus_client"]))
from postroad.config import BrokerConfig
from postroad.server import Service
from postroad.server.extras import loop_factory

async def serve():
    service = Service(BrokerConfig(port=0, admin_port=0, data=sys.argv[1]))
    await service.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"CONNECT\\naccept-version:1.2\\nhost:here\\n\\n\\0DISCONNECT\\n\\n\\0")
    print((await reader.readline()).decode(), end="")
    writer.close()
    await service.stop()

with asyncio.Runner(loop_factory=loop_factory(BrokerConfig())) as runner:
    runner.run(serve())
"""


def test_a_plain_install_runs_a_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "CONNECTED\n", "")
