"""The program as processes of this machine: a broker, a publisher, a subscriber. Few: each starts numba."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from postroad.cli import main
from postroad.cli.brokers import settings
from postroad.config import ConfigError
from postroad.messages import MessageId
from tests.cli.programs import SECONDS, here, line, run, started
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in a process; ends with SIGTERM, cleanly."""
    folder = tmp_path_factory.mktemp("broker")
    config = folder / "broker.toml"
    config.write_text(f'number = 7\nport = 1\ndata = "{folder}/data"\nlog_level = "warning"\n')
    with started("broker", "--config", str(config), "--port", "0", "--number", "9", "--json") as process:
        ready = json.loads(line(process.stdout))
        assert ready["broker"] == 9
        yield ready["stomp"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err


def test_help_is_there_at_once_without_numba() -> None:
    code = (
        "import sys\nfrom postroad.cli import main\nsys.argv = ['postroad', '--help']\n"
        "try:\n    main()\nfinally:\n    print('LOADED', sorted({'numba', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "subscribe" in done.stdout
    assert done.stdout.endswith("LOADED []\n")


def test_subscriber_prints_what_publishers_send_and_ends_after_its_count(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--where", "price > 20", "--count", "3", "--ack", "client-individual", "--json", "--server", server)
    with started("subscribe", "quotes.>", *where) as subscriber:
        assert line(subscriber.stderr) == f"subscribed to quotes.> where price > 20 at {server}\n"
        low = here(monkeypatch, "publish", "quotes.tokyo", "low", "-a", "price=10", "--server", server)
        assert (low.code, low.out) == (0, "")
        assert low.err.startswith("published 1 message in ")
        high = run(
            "publish", "quotes.tokyo", "-a", "price=30", "--stdin-lines", "--receipt", "--json", "--server", server,
            lines="one\n\nthree",
        )  # fmt: skip
        *ids, summary = map(json.loads, high.out.splitlines())
        assert (high.code, summary["published"], high.err) == (0, 3, "")
        out, err = subscriber.communicate(timeout=SECONDS)
    got = [json.loads(text) for text in out.splitlines()]
    assert [message.pop("id") for message in got] == [given["id"] for given in ids]
    assert MessageId.parse(ids[0]["id"]).broker == 9
    attributes = {"price": "30"}
    bodies = ["one", "", "three"]
    assert got == [{"topic": "quotes.tokyo", "attributes": attributes, "body": body} for body in bodies]
    assert (subscriber.returncode, err) == (0, "")


def test_queue_and_durable_subscription_keep_messages_for_the_next_program(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = ("--count", "1", "--quiet", "--server", server)
    # It is acknowledged, and gone: the second program gets the second message.
    for body in ("one", "two"):
        here(monkeypatch, "publish", "/queue/work", body, "--receipt", "--server", server)
        got = here(monkeypatch, "subscribe", "/queue/work", "--prefetch", "1", *ends)
        assert (got.code, got.out) == (0, f"/queue/work {body}\n")
    with started("subscribe", "kept", "--durable", "mine", "--server", server) as subscriber:
        line(subscriber.stderr)
        subscriber.send_signal(signal.SIGINT)
        subscriber.communicate(timeout=SECONDS)
    here(monkeypatch, "publish", "kept", "meanwhile", "--receipt", "--server", server)
    got = here(monkeypatch, "subscribe", "kept", "--durable", "mine", *ends)
    assert (got.code, got.out) == (0, "kept meanwhile\n")


def test_subscriber_ends_quietly_by_ctrl_c_and_by_a_broken_pipe(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with started("subscribe", "a.*", "--server", server) as one, started("subscribe", "a.b", "--server", server) as two:
        for process in (one, two):
            assert "subscribed" in line(process.stderr)
        assert two.stdout is not None
        two.stdout.close()
        published = here(
            monkeypatch, "publish", "a.b", "x", "y", "--count", "3", "--rate", "200", "--receipt", "--server", server
        )
        assert (published.code, len(published.out.splitlines())) == (0, 6)
        assert [line(one.stdout) for _ in range(6)] == ["a.b x\n", "a.b y\n"] * 3
        one.send_signal(signal.SIGINT)
        assert one.communicate(timeout=SECONDS) == ("", "")
        assert one.returncode == 130
        assert two.wait(SECONDS) == 1
        assert two.stderr is not None
        assert two.stderr.read() == ""


def test_mistakes_of_the_user_are_a_line_and_the_code_2(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = here(monkeypatch, "subscribe", "a", "--where", "price >", "--server", server)
    assert (selector.code, selector.out) == (2, "")
    first, text, caret, _ = selector.err.splitlines()
    assert first.startswith("postroad: ")
    assert (text, caret) == ("  price >", "         ^")
    config = tmp_path / "broker.toml"
    config.write_text("prot = 1\n")
    unknown = here(monkeypatch, "broker", "--config", str(config))
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith(f"postroad: {config}: ")
    assert "prot" in unknown.err


def test_options_come_before_the_file(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('number = 3\nport = 5\nusers_file = "people"\n[limits]\nsessions = 4\n')
    chosen = settings(config, {"port": 6, "log_level": "debug"})
    assert (chosen.number, chosen.port, chosen.log_level) == (3, 6, "debug")
    assert (chosen.users_file, chosen.limits.sessions) == ("people", 4)
    assert settings(None, {}).port == 61613


@pytest.mark.parametrize("given", [{"port": 70_000}, {"log_level": "loud"}, {"number": -1}])
def test_option_that_cannot_be_is_refused_with_its_name(given: dict[str, object]) -> None:
    option, value = next(iter(given.items()))
    with pytest.raises(ConfigError, match=f"^--{option.replace('_', '-')} {value}: (this has to be|log_level is)"):
        settings(None, given)


def test_program_is_installed_under_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, function = project["scripts"]["postroad"].partition(":")
    assert getattr(importlib.import_module(module), function) is main
