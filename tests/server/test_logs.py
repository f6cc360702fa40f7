"""What the log says, and how often."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.broker import Limits
from postroad.broker.consignments import Consignments
from postroad.config import BrokerConfig
from postroad.messages import Batch
from postroad.server import Service, log_to_stderr, queue_watch
from postroad.server.logs import JsonLogFormatter
from tests.server.people import PlainGate
from tests.server.scene import Client, Scene, run, service, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("postroad", "asyncio")]
    kept = [(each, each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for logger, handlers, propagate, level in kept:
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("restored_loggers")
def test_each_line_is_one_json_object_with_the_fields_that_were_given() -> None:
    stream = io.StringIO()
    log_to_stderr("info", stream)
    log = logging.getLogger("postroad.server")
    log.info("connected", extra={"session": 7, "peer": "here:1", "odd": object})
    log.debug("too fine")
    try:
        raise ValueError("a defect\nin two lines")
    except ValueError:
        log.exception("internal error")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["level"], first["event"], first["session"], first["peer"]) == ("info", "connected", 7, "here:1")
    assert first["time"].endswith("+00:00")
    assert "a defect\nin two lines" in second["traceback"]


@pytest.mark.usefixtures("restored_loggers")
def test_text_lines_are_for_people_and_each_event_is_one_line() -> None:
    stream = io.StringIO()
    log_to_stderr("info", stream, "text")
    log = logging.getLogger("postroad.server")
    log.info("connected", extra={"session": 7, "peer": "here:1", "login": "ann b", "odd": "", "ports": [1, 2]})
    log.warning("slow\nsubscriber", extra={"topic": 'a"b', "new": "two\nlines", "known": True})
    try:
        raise ValueError("a defect")
    except ValueError:
        log.exception("internal error")
    first, second, third, *traceback = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.split(" ")[0])
    assert first.split(" ", 1)[1] == 'INFO    connected session=7 peer=here:1 login="ann b" odd="" ports=[1,2]'
    assert second.split(" ", 1)[1] == 'WARNING slow subscriber topic="a\\"b" new="two\\nlines" known=true'
    assert third.split(" ", 1)[1] == "ERROR   internal error"
    assert all(line.startswith("  ") for line in traceback)
    assert "ValueError: a defect" in traceback[-1]


def test_formatter_keeps_the_names_of_records_out() -> None:
    record = logging.makeLogRecord({"msg": "x %d", "args": (1,), "levelname": "INFO"})
    assert set(json.loads(JsonLogFormatter().format(record))) == {"time", "level", "event"}


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.message, vars(record)) for record in caplog.records if record.name == "postroad.server"]


def test_connections_and_their_ends_are_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "postroad.server")
    scene = Scene()
    polite, rude, wrong = scene.client(login="ann"), scene.client(), scene.client()
    polite.say("DISCONNECT")
    rude.conversation.lost("the client closed the connection")
    wrong.conversation.received(b"NONSENSE\n")
    told = events(caplog)
    assert [event for event, _ in told] == ["connected"] * 3 + ["disconnected"] * 3
    assert (told[0][1]["login"], told[0][1]["version"], told[0][1]["peer"]) == ("ann", "1.2", "test:1")
    reasons = [fields["reason"] for _, fields in told[3:]]
    assert reasons[:2] == ["DISCONNECT", "the client closed the connection"]
    assert "not a command" in reasons[2]


def test_nobody_reads_a_passcode_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    scene = Scene(gate=PlainGate(ann="geheim"))
    scene.client(login="ann", passcode="geheim")
    wrong = scene.talker()
    wrong.say("CONNECT", {"accept-version": "1.2", "host": "h", "login": "ann", "passcode": "geheimer"})
    assert "geheim" not in str([vars(record) for record in caplog.records])


def test_slow_subscribers_are_named_once_per_look_with_what_was_shed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_watch, "MOST_LINES", 2)
    running = Service(BrokerConfig(data=str(tmp_path), limits=Limits(queue_messages=2)))
    scene = Scene()
    scene.core, scene.dispatcher = running.dispatcher.core, running.dispatcher
    scene.dispatcher.timer = scene.clock
    readers, writer = [scene.client() for _ in range(4)], scene.client()
    for number, reader in enumerate(readers):
        reader.subscribe(f"s{number}", "a", overflow="drop-oldest")
        reader.conversation.writable(False)
    watch = queue_watch.QueueWatch(scene.core, running)
    for _ in range(2):
        for _ in range(5):
            writer.send("a")
        watch.look()
    watch.look()
    told = [(event, fields) for event, fields in events(caplog) if "slow" in event]
    assert [event for event, _ in told] == ["slow subscriber", "slow subscriber", "more slow subscribers"] * 2
    first, _, others, again, *_ = (fields for _, fields in told)
    assert (first["subscription"], first["topic"], first["overflow"]) == ("s0", "a", "drop-oldest")
    assert (first["waiting"], first["stored"], first["shed"], first["shed_in_all"]) == (2, 0, 3, 3)
    assert (again["shed"], again["shed_in_all"]) == (5, 8)
    assert (others["subscriptions"], others["shed"]) == (2, 6)


def test_full_store_and_retention_cut_short_are_told_in_the_log_and_by_health(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            core = broker.dispatcher.core
            watch = queue_watch.QueueWatch(core, broker)
            assert core.store is not None
            subscription = core.subscribe(core.attached("reader"), "s", "a")
            batch = Batch.build([("a", {}), ("a", {})])
            core.store.backlog.push(batch, [(subscription, np.arange(2))], Consignments().take(9, 1, 1))
            core.retentions.cut += 3
            assert core.durables is not None
            core.durables.formers.dropped += 4
            for _ in range(2):
                watch.look()
            assert broker.troubles() == [
                f"store: it is full (store.max_bytes is {broker.config.store.max_bytes:,}), and 2 messages of "
                "neighbours wait for room"
            ]

    run(talk)
    told = [(event, fields["messages"]) for event, fields in events(caplog) if event in ("store full", "retention cut")]
    assert told == [("store full", 2), ("retention cut", 3)]
    assert [fields["count"] for event, fields in events(caplog) if event == "former versions dropped"] == [4]


def test_turned_away_connections_and_expired_messages_are_counted_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_watch, "LOOK_SECONDS", 0.05)
    caplog.set_level(logging.INFO, "postroad.server")

    async def talk() -> None:
        async with service(tmp_path, limits=Limits(sessions=1)) as broker:
            client = await Client.connect(broker.port)
            await client.subscribe("s", "a")
            client.publish("a", expires="1")
            for _ in range(3):
                refused = await Client.open(broker.port)
                refused.send("CONNECT", **{"accept-version": "1.2", "host": "here"})
                assert (await refused.frame()).command == "ERROR"
                await refused.close()
            # A look may come between two of them.
            await until(lambda: "messages expired" in dict(events(caplog)) and turned_away() >= 3)
            await client.close()

    def turned_away() -> int:
        return sum(fields["count"] for event, fields in events(caplog) if event == "connections turned away")

    run(talk)
    assert turned_away() == 3
