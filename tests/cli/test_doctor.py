"""`postroad doctor` finds what is wrong, and says what to do."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

from postroad.cli.symptoms import Asked, skew_symptom
from tests.cli.programs import here
from tests.server.scene import run, service

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    told = here(monkeypatch, "doctor", "--json", *words)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(told.out)["findings"]:
        found.setdefault(one["what"], []).append(one)
    return told.code, found


def test_doctor_finds_a_taken_port_and_a_file_that_everybody_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    settings = tmp_path / "broker.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings.write_text(
            f'port = {port}\ndata = "{tmp_path}/new/data"\nadmin_token_file = "{token}"\n'
            f'users_file = "{tmp_path}/none.toml"\n[limits]\nsessions = 100000000\n'
        )
        # Everybody may read settings that hold no secret themselves.
        settings.chmod(0o644)
        code, found = asked(monkeypatch, "--config", str(settings))
    assert code == 1
    assert found["port"][0]["health"] == "doubtful"
    assert f"127.0.0.1:{port} cannot be opened" in found["port"][0]["found"]
    assert [(one["health"], one["advice"]) for one in found["files"]] == [
        ("bad", "name a file that is there"),
        ("doubtful", f"chmod g-w,o= {token}"),
    ]
    assert found["data"][0]["found"].startswith(f"{tmp_path}/new/data: ")
    assert not (tmp_path / "new").exists()
    assert found["open files"][0]["health"] == "doubtful"
    assert "LimitNOFILE=" in found["open files"][0]["advice"]
    assert found["versions"][0]["health"] == "good"
    assert found["kernels"][0]["health"] in ("good", "doubtful")


def test_doctor_names_a_directory_that_cannot_be_and_bad_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "broker.toml"
    (tmp_path / "file").write_text("")
    settings.write_text(f'port = 0\ndata = "{tmp_path}/file/data"\n')
    code, found = asked(monkeypatch, "--config", str(settings))
    assert (code, found["data"][0]["health"]) == (1, "bad")
    settings.write_text("prot = 0\n")
    code, found = asked(monkeypatch, "--config", str(settings))
    assert code == 1
    assert "did you mean port?" in found["settings"][0]["found"]


def test_doctor_speaks_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(f'port = 0\ndata = "{tmp_path}"\n')
    settings.chmod(0o600)
    told = here(monkeypatch, "doctor", "--config", str(settings))
    assert told.code == 0
    assert f"good     data: {tmp_path}: " in told.out


def test_doctor_looks_at_a_network_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        async with service(tmp_path / "data", admin_port=0) as broker:
            address = f"127.0.0.1:{broker.admin_port}"
            settings = tmp_path / "broker.toml"
            settings.write_text(f'port = 0\ndata = "{tmp_path}"\n[tracking]\nbroker_skew_ms = 60000\n')
            settings.chmod(0o600)
            words = ("--config", str(settings), "--network", address)
            code, found = await asyncio.to_thread(asked, monkeypatch, *words)
            assert code == 0
            assert found["network"][0]["found"].startswith("1 brokers answer, of version ")
            assert found["clocks"][0]["health"] == "good"

    run(talk)
    _, found = asked(monkeypatch, "--network", "127.0.0.1:1")
    assert found["network"][0]["health"] == "bad"


def test_doctor_finds_clocks_that_are_apart_as_far_as_it_can_be_sure() -> None:
    def health(*skews: float, error: float = 10.0) -> str:
        brokers = [Asked(number, "1", skew, error) for number, skew in enumerate(skews, 1)]
        return skew_symptom(brokers, 1_000).health.value

    assert health(0.0) == "good"
    assert health(-500.0, 500.0) == "good"
    assert health(-600.0, 600.0) == "doubtful"
    assert health(-600.0, 600.0, error=200.0) == "good"
    assert health(-4_000.0, 4_000.0) == "bad"
    # Nothing is known if the error is larger than what is allowed.
    assert health(-10.0, 10.0, error=600.0) == "doubtful"
    assert "no clock to compare" in skew_symptom([Asked(1, "1", 0.0, 0.0)], 1_000).found
    assert skew_symptom([Asked(1, "1", 0.0, 2.0), Asked(2, "1", 5.0, 3.0)], 1_000).found == (
        "clocks are 5 ms apart, give or take 5 ms"
    )
    told = skew_symptom([Asked(1, "1", 0.0, 0.0), Asked(2, "1", 3_000.0, 0.0)], 1_000)
    assert told.found == "broker 2 is 3,000 ms ahead of broker 1"
    assert "NTP" in told.advice
