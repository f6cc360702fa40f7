"""What commands print of a broker's queues, durable subscriptions and sessions, and whom they name as the operator."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
from typing import TYPE_CHECKING

import pytest

from postroad.cli.admin_requests import operator_name
from postroad.cli.output import counted
from postroad.cli.stored_items import echo_fields
from tests.cli.programs import Outcome, here
from tests.server import scene

if TYPE_CHECKING:
    from pathlib import Path


def test_times_are_printed_for_people_and_nothing_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    echo_fields("a/b", {"created": 1_794_998_202_255, "stopped": 0, "session_now": None, "shed": 2, "topic": "a\x1b"})
    rows = {name.strip(): value.strip() for _, name, value, _ in (line.split("│") for line in _lines(capsys))}
    assert rows["created"] == "2026-11-18 10:36:42.255 UTC"
    assert (rows["stopped"], rows["session now"], rows["shed"]) == ("no", "none", "2")
    assert "\x1b" not in rows["topic"]


def test_empty_field_is_printed_as_none_and_one_message_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    echo_fields("a/b", {"principal": "", "share": 1234.5})
    rows = {name.strip(): value.strip() for _, name, value, _ in (line.split("│") for line in _lines(capsys))}
    assert rows == {"principal": "none", "share": "1,234.5"}
    assert [counted(number, "message") for number in (0, 1, 1_000)] == ["0 messages", "1 message", "1,000 messages"]


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]


def test_empty_list_is_said_to_be_empty_and_stays_empty_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, tuple[Outcome, Outcome]] = {}

    async def look() -> None:
        async with scene.service(tmp_path, admin_port=0) as broker:
            for kind in ("sessions", "queues", "subscriptions"):
                asked = (kind, "list", "--admin", str(broker.admin_port))
                plain = await asyncio.to_thread(here, monkeypatch, *asked)
                told[kind] = plain, await asyncio.to_thread(here, monkeypatch, *asked, "--json")

    scene.run(look)
    assert {plain.out for plain, _ in told.values()} == {""}
    assert told["sessions"][0].err == "postroad: no client is connected\n"
    assert told["queues"][0].err == "postroad: there are no queues\n"
    assert "there are no durable subscriptions" in told["subscriptions"][0].err
    assert {(as_json.out, as_json.err) for _, as_json in told.values()} == {("", "")}


def test_purge_delete_and_close_say_in_json_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, object]] = []

    async def act() -> None:
        async with scene.service(tmp_path, admin_port=0) as broker:
            client = await scene.Client.connect(broker.port, **{"client-id": "shop"})
            durable = {"id": "1", "destination": "/topic/orders", "activemq.subscriptionName": "orders"}
            await _confirmed(client, "SUBSCRIBE", **durable, ack="client")
            await _confirmed(client, "UNSUBSCRIBE", id="1")
            for destination in ("/queue/work", "/topic/orders"):
                await _confirmed(client, "SEND", destination=destination)
            for words in (
                ("queues", "purge", "work"),
                ("queues", "delete", "work"),
                ("subscriptions", "purge", "shop", "orders"),
                ("subscriptions", "delete", "shop", "orders"),
                ("sessions", "close", "1"),
            ):
                asked = (*words, "--admin", str(broker.admin_port), "--json")
                told.append(json.loads((await asyncio.to_thread(here, monkeypatch, *asked)).out))
            await client.close()

    scene.run(act)
    who = operator_name()
    assert told == [
        {"messages": 1, "reason": f"purged by {who}"},
        {"messages": 0, "reason": f"deleted by {who}"},
        {"messages": 1, "reason": f"purged by {who}"},
        {"messages": 0, "reason": f"deleted by {who}"},
        {"closed": 1},
    ]


def test_name_that_nobody_knows_is_answered_with_the_command_that_lists_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Outcome] = []

    async def ask() -> None:
        async with scene.service(tmp_path, admin_port=0) as broker:
            for words in (
                ("queues", "show", "none"),
                ("queues", "purge", "none", "--outgoing"),
                ("subscriptions", "delete", "shop", "none"),
                ("subscriptions", "purge-outgoing", "7"),
                ("sessions", "close", "7"),
            ):
                asked = (*words, "--admin", str(broker.admin_port))
                told.append(await asyncio.to_thread(here, monkeypatch, *asked))

    scene.run(ask)
    assert [outcome.code for outcome in told] == [2] * 5
    assert ["there is no " in outcome.err for outcome in told] == [True] * 5
    listings = [outcome.err.partition("; ")[2] for outcome in told]
    wanted = ("queues", "queues", "subscriptions", "subscriptions", "sessions")
    assert listings == [f"`postroad {kind} list` shows what there is\n" for kind in wanted]


async def _confirmed(client: scene.Client, command: str, **headers: str) -> None:
    client.send(command, **headers, receipt="done")
    assert (await client.frame()).command == "RECEIPT"


def test_nobody_at_the_default_address_is_told_how_a_broker_gets_an_admin_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody listens there: port 1 needs root and is used by no service of today.
    told = here(monkeypatch, "sessions", "list", "--admin", "127.0.0.1:1")
    assert told.code == 2
    assert "started with --admin-port" in told.err


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no username")])
def test_operator_without_a_name_is_named_by_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    # As for a user who is in no list of users: KeyError before Python 3.13, OSError from then on.
    monkeypatch.setattr(getpass, "getuser", nameless)
    assert operator_name() == f"user {os.getuid()}"
