"""A network as its operator has it: up, used through the directory, one broker killed, seen, stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import time
from typing import TYPE_CHECKING, Any

from postroad.client import ClientError, Reconnect, connect
from postroad.config import read_config
from postroad.messages import MessageId
from postroad.network import Place, credentials_of, make_credentials
from postroad.network.processes import is_alive
from postroad.topology import Plan
from tests.cli.programs import here
from tests.network.operated import event, plan_of_a_line, state_of, up
from tests.server.people import users_file

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import pytest


# A bound for a process that hangs. Kernels may have to be compiled first, on a busy machine.
SECONDS = 280
TOKEN = ("--admin-token-file", "token")


async def use(directory: str, plan: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Publish and subscribe through the directory, and go on after the subscriber's broker was killed."""
    again = Reconnect(first=0.05, longest=0.2)
    async with connect(directory=directory, reconnect=again) as subscriber, connect(directory=directory) as publisher:
        assert subscriber.server != publisher.server
        async with subscriber.subscribe("quotes.>", "price > 20") as quotes:
            # Until the publisher's broker has heard of the subscription, nobody there wants the message.
            await _published(publisher, quotes)
            first = subscriber.server
            entry = next(each for each in state_of(plan).brokers if each.address == first)
            assert entry.process is not None
            os.kill(entry.process.pid, signal.SIGKILL)
            died = await asyncio.to_thread(event, process)
            assert (died["event"], died["broker"], died["how"]) == ("died", entry.number, "ended by SIGKILL")
            assert "listening" in died["log"]
            await _published(publisher, quotes)
            assert subscriber.server == publisher.server != first
    return died


async def _published(publisher: Any, quotes: Any) -> None:
    waiting = asyncio.ensure_future(quotes.get())
    while not waiting.done():
        await publisher.publish("quotes.tokyo", {"price": 30}, "hello")
        await asyncio.wait([waiting], timeout=0.1)
    assert waiting.result().text == "hello"


def test_a_network_is_used_loses_a_broker_is_looked_at_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of_a_line(tmp_path, 2)
    with up(plan, "--no-restart") as process:
        told = event(process)
        assert (told["event"], told["network"], len(told["brokers"])) == ("up", "small", 2)
        died = asyncio.run(asyncio.wait_for(use(told["directory"], plan, process), SECONDS))
        nothing = str(MessageId(7, 3 - died["broker"], 1, 0))
        for network in (str(plan), told["directory"], told["directory"].removeprefix("http://")):
            traced = here(monkeypatch, "trace", nothing, "--network", network)
            assert (traced.code, traced.err) == (1, "")
            assert "not recorded" in traced.out
        outcome = here(monkeypatch, "network", "status", str(plan), "--json")
        shown = json.loads(outcome.out)
        assert (outcome.code, shown["network"]) == (1, "small")
        conditions = {view["broker"]: view["condition"] for view in shown["brokers"]}
        assert conditions == {died["broker"]: "dead", 3 - died["broker"]: "degraded"}
        refused = here(monkeypatch, "network", "up", str(plan))
        assert refused.code == 2
        assert "a network is up in" in refused.err
        marks = [each.process for each in state_of(plan).brokers]
        assert here(monkeypatch, "network", "stop", str(plan)).out == "stopped 1 broker\n"
        assert process.wait(SECONDS) == 0
        assert not any(is_alive(mark) for mark in marks if mark is not None)
        assert here(monkeypatch, "network", "status", str(plan)).code == 2


def test_brokers_that_nobody_watches_any_more_are_found_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of_a_line(tmp_path, 1)
    with up(plan, "--alias", "order") as process:
        assert event(process)["event"] == "up"
        settings = read_config(Place(plan.with_suffix(".network")).config_file(1))
        assert settings.tracking.alias_attribute == "order"
        everything = [plan.with_suffix(".network"), *plan.with_suffix(".network").rglob("*")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in everything} == {0o700, 0o600}
        process.kill()
        process.wait()
        (entry,) = state_of(plan).running()
        refused = here(monkeypatch, "network", "up", str(plan))
        assert (refused.code, "1 brokers of an earlier run" in refused.err) == (2, True)
        shown = here(monkeypatch, "network", "status", str(plan.with_suffix(".network")))
        assert (shown.code, "ready" in shown.out) == (0, True)
        assert here(monkeypatch, "network", "stop", str(plan), "--json").out == (
            '{"event": "stopped", "brokers": 1, "killed": 0}\n'
        )
        assert entry.process is not None
        assert not is_alive(entry.process)


async def told(address: str, login: str) -> str:
    """What a broker says to a login with the passcode "secret": its principal is let in, or the refusal."""
    try:
        async with connect(address, login=login, passcode="secret"):
            return "connected"
    except ClientError as error:
        return str(error)


def test_a_network_asks_for_logins_and_tokens_over_tls_and_takes_a_change_of_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of_a_line(tmp_path, 1)
    refused = here(monkeypatch, "network", "up", str(plan), "--admin-tls")
    assert (refused.code, "the plan has no certificates" in refused.err) == (2, True)
    plan.write_text(make_credentials(Plan.parse(plan.read_text()), credentials_of(plan), tls=True).to_toml())
    (tmp_path / "token").write_text("0123456789abcdef")
    # Names that mean something else from another directory: brokers are started again from anywhere.
    monkeypatch.chdir(tmp_path)
    users_file(tmp_path, ann="secret")
    with up(plan, "--users-file", "users.toml", *TOKEN, "--admin-tls") as process:
        address = event(process)["brokers"][0]["address"]
        assert asyncio.run(told(address, "ann")) == "connected"
        assert "login or passcode is wrong" in asyncio.run(told(address, "bob"))
        traced = ("trace", str(MessageId(7, 1, 1, 0)), "--network")
        admin, vouching = state_of(plan).brokers[0].admin, ("--admin-ca", str(credentials_of(plan) / "authority.pem"))
        assert admin.startswith("https://127.0.0.1:")
        refused = here(monkeypatch, *traced, admin, *TOKEN)
        assert (refused.code, "certificate" in refused.err) == (2, True)
        refused = here(monkeypatch, *traced, admin, *vouching)
        assert (refused.code, "token" in refused.err) == (2, True)
        # A plan or a data directory says where the token is, and who vouches for the certificates.
        for more in ((admin, *vouching, *TOKEN), (str(plan),)):
            shown = here(monkeypatch, *traced, *more)
            assert (shown.code, shown.err) == (1, "")
        assert here(monkeypatch, "network", "status", str(plan)).code == 0
        for named in (f"{plan}:1", str(plan), f"{plan.with_suffix('.network')}:1"):
            assert here(monkeypatch, "sessions", "list", "--admin", named) == (
                0,
                "",
                "postroad: no client is connected\n",
            )
        other = here(monkeypatch, "queues", "list", "--admin", f"{plan}:7")
        assert (other.code, f"it has no broker 7; name one of them, such as {plan}:1" in other.err) == (2, True)
        with monkeypatch.context() as variables:
            variables.setenv("POSTROAD_ADMIN", f"{plan}:1")
            assert here(monkeypatch, "sessions", "list").code == 0
            seen = here(monkeypatch, "top", "--once", "--interval", "0.1", "--json")
            assert [broker["state"] for broker in json.loads(seen.out)["brokers"]] == ["ready"]
            assert here(monkeypatch, *traced[:2]) == shown
            # What the command says counts, not the variable.
            missing = here(monkeypatch, *traced[:2], "--trail", str(tmp_path / "none"))
            assert (missing.code, str(tmp_path / "none") in missing.err) == (2, True)
        looked = here(monkeypatch, "doctor", "--network", f"{plan}:1", "--json")
        found = [one for one in json.loads(looked.out)["findings"] if one["what"] == "network"]
        assert [one["health"] for one in found] == ["good"]
        seen = here(monkeypatch, "top", str(plan), "--once", "--interval", "0.1", "--json")
        assert [broker["state"] for broker in json.loads(seen.out)["brokers"]] == ["ready"]
        looked = here(monkeypatch, "doctor", "--network", str(plan), "--json")
        found = [one for one in json.loads(looked.out)["findings"] if one["what"] in ("network", "clocks")]
        assert [one["health"] for one in found] == ["good", "good"]
        users_file(tmp_path, bob="secret")
        assert here(monkeypatch, "network", "reload", str(plan)).out.startswith("told 1 broker to read")
        log = Place(plan.with_suffix(".network")).log_file(1)
        while '"users reloaded"' not in log.read_text():
            time.sleep(0.05)
        assert asyncio.run(told(address, "bob")) == "connected"
        assert "login or passcode is wrong" in asyncio.run(told(address, "ann"))
    assert here(monkeypatch, "network", "reload", str(plan)).code == 2


def test_what_cannot_be_recorded_is_refused_by_the_name_of_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of_a_line(tmp_path, 1)
    refused = here(monkeypatch, "network", "up", str(plan), "--alias", "")
    assert (refused.code, "--alias ''" in refused.err) == (2, True)
    refused = here(monkeypatch, "network", "up", str(plan), "--recorder", "stone")
    assert (refused.code, "--recorder" in refused.err, "sealed" in refused.err) == (2, True, True)
    refused = here(monkeypatch, "network", "up", str(plan), "--persist", "100000")
    assert (refused.code, "--persist 100000" in refused.err, "at most 86,400" in refused.err) == (2, True, True)


def test_a_broker_that_cannot_start_ends_the_start_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of_a_line(tmp_path, 2)
    blocked = Place(plan.with_suffix(".network")).data(2)
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a directory should be")
    outcome = here(monkeypatch, "network", "up", str(plan), "--directory-port", "0")
    assert outcome.code == 2
    assert "broker 2 did not start (exit code 2); its log is" in outcome.err
    assert "postroad: " in outcome.err.partition("\n")[2]
    assert not Place(plan.with_suffix(".network")).state_file.exists()
