"""Commands that need no broker, run in this process; and what goes to the terminal."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad import __version__
from postroad.cli.network_plan import NetworkShape, Order, Promise
from postroad.cli.output import printable
from postroad.cli.standard_input import input_lines
from postroad.cli.subscriber import AckChoice, Overflow, as_line, as_object
from postroad.client import ReceivedMessage
from postroad.errors import LimitError
from postroad.messages import Untyped
from postroad.topology import Plan, Settings
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert here(monkeypatch, "--version") == (0, f"postroad {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "out"),
    [
        (["price>20 and stock='S1'"], 0, "price > 20 AND stock = 'S1'\n"),
        (["price > 20", "-a", "price=30"], 0, "price > 20\ntrue\n"),
        (["price > 20", "-a", "price=3"], 1, "price > 20\nfalse\n"),
        (["price > 20", "-a", "stock=S1"], 1, "price > 20\nunknown\n"),
        (["a = 'x=y'", "-a", "a=x=y", "--json"], 0, '{"selector": "a = \'x=y\'", "result": "true"}\n'),
        (["a", "--json"], 0, '{"selector": "a"}\n'),
    ],
)
def test_match(monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, out: str) -> None:
    assert here(monkeypatch, "match", *arguments) == (code, out, "")


def test_match_points_at_the_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = here(monkeypatch, "match", "price > AND")
    assert (outcome.code, outcome.out) == (2, "")
    lines = outcome.err.splitlines()
    assert lines[0].startswith("postroad: ")
    assert lines[1:3] == ["  price > AND", "          ^"]


@pytest.mark.parametrize("texts", [["novalue"], ["=1"], ["a=1", "a=2"]])
def test_attribute_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, texts: list[str]) -> None:
    outcome = here(monkeypatch, "match", "a = 1", *(word for text in texts for word in ("-a", text)))
    assert outcome.code == 2
    assert outcome.err.startswith(f"postroad: --attribute {texts[-1]!r}: ")


@pytest.mark.parametrize("shape", list(NetworkShape))
def test_every_shape_makes_a_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: NetworkShape) -> None:
    path = tmp_path / "plan.toml"
    outcome = here(monkeypatch, "network", "plan", shape.value, "--out", str(path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    told = json.loads(outcome.out)
    plan = Plan.parse(path.read_text())
    graph = plan.graph()
    assert (told["brokers"], told["links"]) == (len(graph.brokers), len(graph.links))
    assert told["most_links_at_one_broker"] == max(len(graph.neighbours(one)) for one in graph.brokers)
    assert plan.strategy == (shape.value if shape in (NetworkShape.TREE, NetworkShape.CLUSTER) else "drp")
    assert told["file"] == str(path)


def test_plan_goes_to_the_output_and_its_summary_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--brokers", "42", "--seed", "5", "--name", "wan", "--strategy", "flood", "--delivery", "custody")
    outcome = here(monkeypatch, "network", "plan", "waxman", *arguments, "--first-port", "30000", "--host", "::1")
    plan = Plan.parse(outcome.out)
    assert (plan.name, plan.strategy, plan.delivery, len(plan.brokers)) == ("wan", "flood", "custody", 42)
    assert (plan.brokers[0].host, plan.brokers[0].port) == ("::1", 30_000)
    assert "network wan" in outcome.err
    assert "most links at one broker" in outcome.err
    again = here(monkeypatch, "network", "plan", "waxman", "--brokers", "42", "--seed", "6")
    assert Plan.parse(again.out).graph() != plan.graph()


def test_plan_keeps_the_order_of_publishers_if_told(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = here(monkeypatch, "network", "plan", "ring", "--order", "publisher")
    assert Plan.parse(outcome.out).settings == Settings(order="publisher")
    assert "publisher" in outcome.err
    plain = here(monkeypatch, "network", "plan", "ring")
    assert Plan.parse(plain.out).settings == Settings()
    assert "order" not in plain.err


def test_plan_does_not_write_over_a_file_unless_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("mine")
    refused = here(monkeypatch, "network", "plan", "ring", "--out", str(path))
    assert refused == (2, "", f"postroad: {path} exists already; name another file, or overwrite it with --force\n")
    assert path.read_text() == "mine"
    forced = here(monkeypatch, "network", "plan", "ring", "--out", str(path), "--force")
    assert forced.code == 0
    assert "network ring, written to" in forced.out
    assert Plan.parse(path.read_text()).name == "ring"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["square", "--brokers", "5"], "a square has 4 brokers, not 5"),
        (["cluster", "--brokers", "5"], "follows from --sizes"),
        (["cluster", "--sizes", "1,2,3"], "four whole numbers"),
        (["cluster", "--sizes", "0,1,1,1"], "1 or more per level"),
        (["ring", "--sizes", "1,1,1,1"], "--sizes is for a cluster"),
        (["ring", "--brokers", "70000"], "between 1 and 65,535 brokers"),
        (["ring", "--brokers", "30000"], "two ports each"),
        (["ring", "--out", "/nowhere/at/all"], "cannot be written"),
        (["ring", "--strategy", "tree"], "one broker without parents"),
        (["ring", "--strategy", "x"], "choose one of drp, flood, tree, cluster"),
    ],
)
def test_plan_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str) -> None:
    outcome = here(monkeypatch, "network", "plan", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err
    assert outcome.err.startswith("postroad: ")


def test_experiments_are_listed_by_names_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [json.loads(each)["name"] for each in here(monkeypatch, "lab", "list", "--json").out.splitlines()]
    monkeypatch.setenv("COLUMNS", "80")
    drawn = here(monkeypatch, "lab", "list").out
    assert max(map(len, drawn.splitlines())) <= 80
    assert "…" not in drawn
    assert [name for name in names if f"│ {name} " not in drawn] == []


def test_publisher_without_a_broker_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = here(monkeypatch, "publish", "a", "--server", "stomp://127.0.0.1:1")
    assert outcome == (
        2,
        "",
        "postroad: stomp://127.0.0.1:1: cannot connect (Connection refused); is a broker running there?\n",
    )
    monkeypatch.setenv("POSTROAD_SERVER", "http://x")
    assert "write it like stomp://" in here(monkeypatch, "subscribe", "a").err


@pytest.mark.parametrize(
    "arguments", [["publish"], ["publish", "a", "--count", "no"], ["subscribe", "a", "--ack", "no"], ["gone"]]
)
def test_wrong_usage_is_shown_with_the_code_2(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    outcome = here(monkeypatch, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert "Usage: postroad" in outcome.err


def test_certificate_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = here(monkeypatch, "publish", "a", "--server", "stomps://127.0.0.1:1", "--ca", "/nowhere.pem")
    assert outcome == (2, "", "postroad: --ca /nowhere.pem: not a readable PEM file (No such file or directory)\n")


def test_choices_are_those_of_the_rooms_they_go_to() -> None:
    from typing import get_args, get_type_hints

    from postroad.client import AckMode
    from postroad.client import Overflow as Overflows
    from postroad.topology import Delivery

    assert [one.value for one in Promise] == list(get_args(Delivery))
    assert [one.value for one in Order] == list(get_args(get_type_hints(Settings)["order"]))
    assert [one.value for one in AckChoice] == list(get_args(AckMode))
    assert [one.value for one in Overflow] == list(get_args(Overflows))


def received(body: bytes, **attributes: str) -> ReceivedMessage:
    typed = {name: Untyped(value) for name, value in attributes.items()}
    return ReceivedMessage("a.b", typed, body, "00000001-00000002-000000000003-0004", "s1")


def test_message_cannot_change_the_terminal() -> None:
    message = received(b"\x1b[2J\xff\r\nend", name="\x1b]0;title\x07")
    assert as_line(message) == r"a.b name=\x1b]0;title\x07 \x1b[2J\xff\r\nend"


def test_message_as_json_keeps_bodies_that_are_no_text() -> None:
    fields = {"id": "00000001-00000002-000000000003-0004", "topic": "a.b", "attributes": {"n": "1"}}
    assert as_object(received("tschüß".encode(), n="1")) == {**fields, "body": "tschüß"}
    assert as_object(received(b"\xff", n="1")) == {**fields, "body_base64": "/w=="}


@given(st.text())
def test_printable_text_stays_on_one_line_and_plain_text_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"x" * 99_999 + b"\ny\n", [b"x" * 99_999, b"y"]),
    ],
    ids=["nothing", "no line end", "one", "empty line", "more than a read"],
)
def test_input_comes_line_by_line(tmp_path: Path, data: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)

    async def read() -> list[bytes]:
        return [line async for part in input_lines(100_000, descriptor) for line in part]

    assert asyncio.run(read()) == lines
    os.close(descriptor)


def test_line_without_end_is_refused_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * 100)
    descriptor = os.open(path, os.O_RDONLY)

    async def read() -> None:
        async for _ in input_lines(99, descriptor):
            pass

    with pytest.raises(LimitError, match="a line of the input is 100; the limit is 99"):
        asyncio.run(read())
    os.close(descriptor)


@pytest.mark.parametrize("more", [(), ("--detach",)])
def test_recorder_that_is_not_known_is_refused_with_the_choices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: tuple[str, ...]
) -> None:
    plan = tmp_path / "plan.toml"
    here(monkeypatch, "network", "plan", "line", "--out", str(plan))
    told = here(monkeypatch, "network", "up", str(plan), "--recorder", "exakt", *more)
    assert told.code == 2
    assert "which is none of bloom, exact, log, none, sealed; did you mean exact?" in told.err
    assert not (tmp_path / "plan.network").exists()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('strategy = "drp"', 'strategy = "dip"', "strategy is 'dip', which is none of cluster, drp, flood, tree; did"),
        (
            "link_port",
            "linkport",
            "[brokers]: there is no setting linkport; did you mean link_port?; the settings there",
        ),
        ("version = 1", "version = 2", "version: this is for plans of version 1"),
    ],
)
def test_mistake_in_a_plan_names_the_file_the_section_and_the_choices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str, told: str
) -> None:
    plan = tmp_path / "plan.toml"
    here(monkeypatch, "network", "plan", "line", "--out", str(plan))
    assert old in plan.read_text()
    plan.write_text(plan.read_text().replace(old, new))
    outcome = here(monkeypatch, "network", "up", str(plan))
    assert outcome.code == 2
    assert outcome.err.startswith(f"postroad: {plan}: ")
    assert told in outcome.err
