"""A trail that is moved, deleted, or restored from an older copy under brokers that run: nothing is said for certain
of what is no longer there, and what comes afterwards is on record again."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from postroad.trail import Trail, pin
from postroad.trail.coverage import GapReason
from tests.server.fleet import free_ports
from tests.server.processes import BrokerProcess, PlainClient, forked_brokers, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.messages import MessageId
    from tests.server.processes import Brokers

TOPIC = "/topic/quotes"
# What may be said of a message whose record is gone, in whole or in part.
VAGUE = {"recorded in part", "not recorded", "unanswered"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def breaks_more_than(broker: BrokerProcess, count: int) -> bool:
    return bool(broker.status()["tracking"]["trail_breaks"] > count)


class Pair:
    """Two linked brokers that write to one trail; somebody publishes at the first, somebody listens at the second."""

    def __init__(self, brokers: Brokers, folder: Path, recorder: str) -> None:
        self.trail = folder / "trail"
        ports = free_ports(2)
        started = []
        for number, other in ((1, 2), (2, 1)):
            settings = folder / f"{number}.toml"
            settings.write_text(
                f"number = {number}\nport = 0\nadmin_port = 0\ndata = '{folder / str(number)}'\n"
                f"[tracking]\npersist_seconds = 0.1\nrecorder = '{recorder}'\ntrail = '{self.trail}'\n"
                f"[network]\nport = {ports[number - 1]}\n"
                f"[[network.neighbours]]\nnumber = {other}\nport = {ports[other - 1]}\n"
            )
            started.append(brokers.start(settings))
        self.first, self.second = (one.wait_until_ready() for one in started)
        wait_until(lambda: all(one.status()["network"]["routing"]["reached"] == 1 for one in started))
        self.publisher = PlainClient(self.first.port(), "bob")
        self.subscriber = PlainClient(self.second.port(), "ann")
        self.subscriber.subscribe(TOPIC)
        wait_until(self._is_known)

    def _is_known(self) -> bool:
        """The first broker has heard of the subscription, and passes messages on."""
        self.publisher.publish(TOPIC, 1)
        return bool(self.second.status()["statistics"]["delivered"])

    def pass_messages(self) -> list[MessageId]:
        """Messages that were delivered, and whose record is written by both brokers."""
        ids = self.publisher.publish(TOPIC, 5)
        self.subscriber.receive(5)
        wait_until(lambda: all(self.reached(number) > ids[-1].time for number in (1, 2)))
        return ids

    def reached(self, broker: int) -> int:
        return max((run.through for run in pin(self.trail, broker).runs), default=0)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing is written meanwhile."""
        for one in self.both():
            os.kill(one.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in self.both():
                os.kill(one.pid, signal.SIGCONT)

    def both(self) -> tuple[BrokerProcess, BrokerProcess]:
        return self.first, self.second

    def end(self) -> None:
        for client in (self.publisher, self.subscriber):
            client.close()
        for one in self.both():
            one.end()


def move(trail: Path) -> None:
    trail.rename(trail.with_name("archive"))


def delete(trail: Path) -> None:
    shutil.rmtree(trail)


def delete_one_manifest(trail: Path) -> None:
    shutil.rmtree(trail / "manifests" / "broker=1")


def restore(trail: Path) -> None:
    """An older copy takes its place."""
    move(trail)
    shutil.copytree(trail.with_name("copy"), trail)


HARMS = [move, delete, delete_one_manifest, restore]


def test_nothing_is_certain_of_messages_whose_record_was_taken_away(tmp_path: Path, brokers: Brokers) -> None:
    pair = Pair(brokers, tmp_path, "exact")
    for harm in HARMS:
        pair.pass_messages()
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.rmtree(tmp_path / "archive", ignore_errors=True)
        with pair.frozen():
            shutil.copytree(pair.trail, tmp_path / "copy")
        before = pair.pass_messages()
        known = [one.status()["tracking"]["trail_breaks"] for one in pair.both()]
        with pair.frozen():
            harm(pair.trail)
        live = pair.first.trace(before[0])
        after = pair.pass_messages()
        harmed = 1 if harm is delete_one_manifest else 2
        for one, count in list(zip(pair.both(), known, strict=True))[:harmed]:
            wait_until(partial(breaks_more_than, one, count))

        assert live["verdict"] in VAGUE, (harm, live)
        trail = Trail(pair.trail)
        for message in before:
            journey = trail.trace(message).journey
            assert journey.verdict.value in VAGUE, (harm, journey)
            assert journey.lost == ()
            assert any(gap.reason == GapReason.GONE for _, gap in journey.gaps)
            assert pair.first.trace(message)["verdict"] in VAGUE
        # A commit that was under way names files that went with the old trail; the next run says so.
        assert all(warning.endswith("No such file or directory") for warning in trail.warnings), trail.warnings
        for message in after:
            told = trail.trace(message)
            assert [stop.broker for stop in told.journey.stops] == [1, 2]
            ((broker, hit),) = told.journey.delivered
            assert (told.publisher, told.subscriptions[broker, hit.number].principal) == (
                "unverified:bob",
                "unverified:ann",
            )
    assert "the trail was moved, deleted or replaced" in pair.first.page("/health")
    assert "tracking degraded" in pair.first.stderr
    assert "postroad_tracking_trail_breaks_total" in pair.first.page("/metrics")
    pair.end()


def test_an_idle_broker_notices_that_its_trail_is_gone_and_receipts_do_not_rest_on_a_moved_journal(
    tmp_path: Path, brokers: Brokers
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"port = 0\nadmin_port = 0\ndata = '{tmp_path / 'data'}'\n[tracking]\npersist_seconds = 600\njournal = true\n"
    )
    broker = brokers.start(settings).wait_until_ready()
    client = PlainClient(broker.port())
    client.subscribe(TOPIC)
    (tmp_path / "data" / "trail").rename(tmp_path / "archive")
    ids = client.publish(TOPIC, 3)
    wait_until(lambda: "the trail was moved" in broker.page("/health"))
    broker.end(signal.SIGKILL)
    client.close()
    # What the receipts promised is in the new journal, and recovered from there.
    broker = brokers.start(settings).wait_until_ready()
    broker.end()
    trail = Trail(tmp_path / "data" / "trail")
    assert all(trail.findings(1, message).accepted is not None for message in ids)


def test_a_broker_whose_trail_was_moved_while_it_was_stopped_says_what_is_missing(
    tmp_path: Path, brokers: Brokers
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"port = 0\nadmin_port = 0\ndata = '{tmp_path / 'data'}'\ntracking.trail = '{tmp_path / 'trail'}'\n"
    )
    brokers.start(settings).wait_until_ready().end()
    brokers.start(settings).wait_until_ready().end()
    assert not pin(tmp_path / "trail", 1).holes
    move(tmp_path / "trail")
    brokers.start(settings).wait_until_ready().end()
    state = pin(tmp_path / "trail", 1)
    assert [(hole.since, hole.until, hole.reason) for hole in state.holes] == [
        (0, state.runs[0].since + 1, GapReason.MOVED)
    ]
