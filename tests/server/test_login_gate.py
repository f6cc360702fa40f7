"""Logins over real sockets: checked off the loop, delayed after failures, reloaded, and told to the audit."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad.config import ConfigError
from postroad.security import delays, users_text
from postroad.server import login_gate
from postroad.server.login_gate import NO_LOGIN, Gate
from postroad.sessions import Audit, LoginVerdict
from tests.server.http_client import get
from tests.server.people import record, users_file
from tests.server.scene import Client, Clock, run, service, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.server import Service


async def login(broker: Service, name: str, passcode: str, source: str = "127.0.0.1") -> str:
    """What the broker says to a login from an address: CONNECTED, or the text of its ERROR."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=(source, 0))
    client = Client(reader, writer)
    client.send("CONNECT", **{"accept-version": "1.2", "host": "here", "login": name, "passcode": passcode})
    answer = await client.frame()
    await client.close()
    return answer.headers.get("message", answer.command)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def test_client_without_a_login_is_told_that_the_broker_asks_for_one(tmp_path: Path) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret")
        async with service(tmp_path / "data", users_file=people) as broker:
            assert await login(broker, "", "") == NO_LOGIN

    run(talk)


def test_users_of_the_file_are_let_in_and_nobody_else(tmp_path: Path) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret", bob="other")
        async with service(tmp_path / "data", users_file=people, admin_port=0) as broker:
            assert await login(broker, "ann", "secret") == "CONNECTED"
            assert await login(broker, "bob", "other") == "CONNECTED"
            for name, passcode in (("ann", "other"), ("eve", "secret")):
                assert await login(broker, name, passcode) == "login or passcode is wrong"
            client = await Client.connect(broker.port, login="ann", passcode="secret")
            _, status = await get(broker.admin_port, "/status")
            assert json.loads(status)["sessions"][0]["principal"] == "ann"
            assert json.loads(status)["server"]["logins_refused"] == 2
            await client.close()

    run(talk)


def test_a_broker_does_not_start_without_the_users_file_it_was_told_of(tmp_path: Path) -> None:
    async def talk() -> None:
        with pytest.raises(ConfigError, match="postroad users add"):
            async with service(tmp_path, users_file=str(tmp_path / "missing.toml")):
                pass

    run(talk)


def test_a_slow_check_does_not_hold_the_loop(tmp_path: Path) -> None:
    async def talk() -> None:
        people = tmp_path / "users.toml"
        # Several hundred milliseconds of a processor.
        rewrite(people, users_text({"ann": record("secret", 16, 8)}))
        async with service(tmp_path / "data", users_file=str(people)) as broker:
            checking = asyncio.create_task(login(broker, "ann", "secret"))
            turns = 0
            while not checking.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert checking.result() == "CONNECTED"
            # A loop that waits for the check has one turn before it and one behind.
            assert turns > 10

    run(talk)


def test_failures_delay_their_address_and_no_other_and_known_clients_are_let_in_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret", bob="b")
        async with service(tmp_path / "data", host="0.0.0.0", users_file=people) as broker:
            assert await login(broker, "ann", "secret") == "CONNECTED"
            for _ in range(delays.FREE_FAILURES):
                assert await login(broker, "ann", "guess") == "login or passcode is wrong"
            delayed = await login(broker, "bob", "b")
            assert "too many logins from this address were wrong; try again in 1 s" in delayed
            # Its passcode was right before, so it need not wait for what others did.
            assert await login(broker, "ann", "secret") == "CONNECTED"
            assert await login(broker, "bob", "b", "127.0.0.2") == "CONNECTED"
            counts = broker.server_statistics()
            assert (counts.logins_refused, counts.logins_delayed) == (3, 1)

    with caplog.at_level(logging.INFO, "postroad.server"):
        run(talk)
    told = [vars(each) for each in caplog.records if each.getMessage() in ("login refused", "login delayed")]
    assert [each["login"] for each in told] == ["ann"] * 3 + ["bob"]
    assert "guess" not in str([vars(each) for each in caplog.records])


def test_what_an_unknown_user_typed_is_not_logged_as_it_may_be_a_passcode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret")
        async with service(tmp_path / "data", users_file=people) as broker:
            assert await login(broker, "my passcode", "ann") == "login or passcode is wrong"

    with caplog.at_level(logging.DEBUG):
        run(talk)
    assert "my passcode" not in str([vars(each) for each in caplog.records if each.getMessage() == "login refused"])
    assert [vars(each)["known"] for each in caplog.records if each.getMessage() == "login refused"] == [False]


def test_reloading_lets_new_users_in_and_closes_connections_of_those_who_are_gone_or_changed(tmp_path: Path) -> None:
    async def talk() -> None:
        people = Path(users_file(tmp_path / "people", ann="a", bob="b", eve="e"))
        async with service(tmp_path / "data", users_file=str(people)) as broker:
            clients = [
                await Client.connect(broker.port, login=name, passcode=name[0]) for name in ("ann", "bob", "eve")
            ]
            rewrite(people, users_text({"ann": record("a"), "bob": record("new"), "zoe": record("z")}))
            await broker.reload.run()
            for client in clients[1:]:
                assert "removed or has another passcode" in (await client.frame()).headers["message"]
            assert await login(broker, "zoe", "z") == "CONNECTED"
            assert await login(broker, "bob", "b") == "login or passcode is wrong"
            assert await login(broker, "bob", "new") == "CONNECTED"
            await clients[0].subscribe("s", "still.here")
            # A file with a mistake changes nothing.
            rewrite(people, "[users]\nann = 'secret'\n")
            await broker.reload.run()
            assert await login(broker, "zoe", "z") == "CONNECTED"
            for client in clients:
                await client.close()

    run(talk)


def test_checks_at_once_are_bounded_for_all_and_for_one_address(tmp_path: Path) -> None:
    async def talk() -> None:
        clock, audit, told = Clock(), Audit(), list[str]()
        door = Gate({"ann": record("a", 12)}, clock, audit)

        def answer(key: str) -> Callable[[LoginVerdict], None]:
            return lambda verdict: told.append(f"{key}: {verdict.refusal or 'in'}")

        for number in range(login_gate.MOST_CHECKS_PER_ADDRESS + 1):
            door.check("ann", "a", "one address", answer(f"first {number}"))
        assert told == [f"first {login_gate.MOST_CHECKS_PER_ADDRESS}: " + told[0].partition(": ")[2]]
        assert "as many logins as it can" in told[0]
        for number in range(login_gate.MOST_CHECKS - login_gate.MOST_CHECKS_PER_ADDRESS):
            door.check("ann", "a", f"address {number}", answer("second"))
        assert len(told) == 1
        door.check("ann", "a", "yet another address", answer("third"))
        assert (len(told), audit.counts["login delayed"]) == (2, 2)
        await until(lambda: len(told) == 2 + login_gate.MOST_CHECKS)
        assert all(each.endswith(": in") for each in told[2:])
        await door.stop()

    run(talk)


def test_a_name_that_others_guess_waits_but_is_never_refused(tmp_path: Path) -> None:
    async def talk() -> None:
        people = users_file(tmp_path / "people", ann="secret")
        async with service(tmp_path / "data", host="0.0.0.0", users_file=people) as broker:
            for number in range(delays.FREE_FAILURES + 1):
                assert await login(broker, "ann", "guess", f"127.0.1.{number + 1}") == "login or passcode is wrong"
            assert await login(broker, "ann", "secret", "127.0.2.1") == "CONNECTED"

    run(talk)


def test_a_flood_of_refusals_is_counted_in_full_and_logged_in_part(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    with caplog.at_level(logging.WARNING, "postroad.server"):
        for number in range(50):
            audit.refused("login refused", address=str(number))
        audit.look()
        audit.refused("origin refused", peer="p")
        audit.look()
    assert audit.counts["login refused"] == 50
    events = [each.getMessage() for each in caplog.records]
    assert events == ["login refused"] * 20 + ["more refused", "origin refused"]
    assert vars(caplog.records[20])["login_refused"] == 30
