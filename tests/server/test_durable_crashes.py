"""Brokers that are killed under load: durable subscribers get all that was confirmed, and nothing that they settled.

Publishers and subscribers are plain clients in this process; what they saw is the truth. A subscriber comes back after
each crash and goes on. A publisher whose receipt did not come sends the message again, as a new one.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.server.crash_clients import DurableSubscriber, Link, Publisher, check_order
from tests.server.fleet import free_ports
from tests.server.processes import BrokerProcess, forked_brokers, wait_until
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.processes import Brokers

LIVES = 3
# Confirmed in each life, before the broker is killed.
CONFIRMED_PER_LIFE = 100


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def live(broker: BrokerProcess, publishers: list[Publisher], subscribers: list[DurableSubscriber], enough: int) -> None:
    """One life of a broker: all clients at once, until enough is confirmed; then it is killed."""
    before = sum(len(each.confirmed) for each in publishers)
    stop = threading.Event()
    threads = [threading.Thread(target=each.live, args=(broker.port(), stop)) for each in publishers]
    threads += [threading.Thread(target=each.live, args=(broker.port(),)) for each in subscribers]
    for thread in threads:
        thread.start()
    wait_until(lambda: sum(len(each.confirmed) for each in publishers) >= before + enough)
    broker.end(signal.SIGKILL)
    for thread in threads:
        thread.join(3 * PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_confirmed_messages_reach_every_durable_subscriber_through_kills(
    tmp_path: Path, brokers: Brokers, fsync: str
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"port = 0\ndata = '{tmp_path}'\n[tracking]\nrecorder = 'none'\n"
        f"[store]\nfsync = '{fsync}'\nsegment_bytes = 65536\n[limits]\nunacknowledged = 50\n"
    )
    publishers = [Publisher(f"p{number}") for number in range(2)]
    subscribers = [DurableSubscriber(f"s{number}", number) for number in range(3)]
    begun = brokers.start(settings).wait_until_ready()
    # They exist before the first message.
    for subscriber in subscribers:
        link = Link(begun.port(), subscriber.name)
        durable = {"id": "1", "activemq.subscriptionName": "all", "ack": "client-individual", "receipt": "r"}
        link.say("SUBSCRIBE", {"destination": "/topic/a", **durable})
        assert link.frame().command == "RECEIPT"
        link.close()
    for _ in range(LIVES):
        live(begun, publishers, subscribers, CONFIRMED_PER_LIFE)
        begun = brokers.start(settings).wait_until_ready()
    confirmed = {(each.name, number) for each in publishers for number in each.confirmed}
    assert len(confirmed) >= LIVES * CONFIRMED_PER_LIFE
    finish(begun, subscribers, confirmed)
    begun.end(signal.SIGTERM)
    for subscriber in subscribers:
        assert subscriber.faults == []
        check_order(subscriber)


def pair(folder: Path, brokers: Brokers) -> tuple[BrokerProcess, BrokerProcess, Path]:
    """Two linked brokers under custody; the settings of the second."""
    ports = free_ports(2)
    started, paths = [], []
    for number in (1, 2):
        other = 3 - number
        path = folder / f"broker{number}.toml"
        path.write_text(
            f"number = {number}\nport = 0\nadmin_port = 0\ndata = '{folder / str(number)}'\n"
            "[tracking]\nrecorder = 'none'\n"
            f"[network]\nport = {ports[number - 1]}\ndelivery = 'custody'\n"
            f"[[network.neighbours]]\nnumber = {other}\nport = {ports[other - 1]}\n"
        )
        paths.append(path)
        started.append(brokers.start(path))
    for one in started:
        one.wait_until_ready()
    return started[0], started[1], paths[1]


def has_confirmed(publisher: Publisher, count: int) -> bool:
    return len(publisher.confirmed) >= count


def reaches(broker: BrokerProcess) -> bool:
    return bool(broker.status()["network"]["routing"]["reached"] == 1)


def is_wanted(first: BrokerProcess, second: BrokerProcess) -> bool:
    """Whether the first broker has heard of the subscription at the second: a message of its gets there."""
    with closing(Link(first.port(), "probe")) as link:
        link.say("SEND", {"destination": "/topic/a", "receipt": "r", "by": "probe"}, b"%d" % time.monotonic_ns())
        assert link.frame().command == "RECEIPT"
    return bool(second.status()["statistics"]["stored_messages_now"] > 0)


def test_messages_from_another_broker_reach_a_durable_subscriber_once_through_kills(
    tmp_path: Path, brokers: Brokers
) -> None:
    first, second, settings = pair(tmp_path, brokers)
    publisher, subscriber = Publisher("p"), DurableSubscriber("s", 1)
    link = Link(second.port(), subscriber.name)
    durable = {"id": "1", "activemq.subscriptionName": "all", "ack": "client-individual", "receipt": "r"}
    link.say("SUBSCRIBE", {"destination": "/topic/a", **durable})
    assert link.frame().command == "RECEIPT"
    link.close()
    wait_until(lambda: reaches(first) and reaches(second))
    wait_until(lambda: is_wanted(first, second))
    for _ in range(LIVES):
        stop = threading.Event()
        before = len(publisher.confirmed)
        taking = threading.Thread(target=subscriber.live, args=(second.port(),))
        sending = threading.Thread(target=publisher.live, args=(first.port(), stop))
        taking.start()
        sending.start()
        wait_until(partial(has_confirmed, publisher, before + CONFIRMED_PER_LIFE))
        second.end(signal.SIGKILL)
        stop.set()
        taking.join(3 * PATIENCE)
        second = brokers.start(settings).wait_until_ready()
        for each in (first, second):
            wait_until(partial(reaches, each))
        publisher.leave()
        sending.join(3 * PATIENCE)
        assert not sending.is_alive()
    confirmed = {(publisher.name, number) for number in publisher.confirmed}
    finish(second, [subscriber], confirmed)
    first.end(signal.SIGKILL)
    assert subscriber.faults == []


def finish(broker: BrokerProcess, subscribers: list[DurableSubscriber], confirmed: set[tuple[str, int]]) -> None:
    """The last life: subscribers take what is left, and acknowledge all of it, or they would get no more."""
    for subscriber in subscribers:
        subscriber.share = 1.0
    threads = [threading.Thread(target=each.live, args=(broker.port(),)) for each in subscribers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 3 * PATIENCE
    while any(confirmed - each.handed for each in subscribers) and time.monotonic() < deadline:
        time.sleep(0.02)
    missing = {each.name: sorted(confirmed - each.handed)[:5] for each in subscribers if confirmed - each.handed}
    broker.end(signal.SIGKILL)
    for thread in threads:
        thread.join(3 * PATIENCE)
    assert missing == {}
