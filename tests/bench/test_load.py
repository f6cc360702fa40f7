"""The load generator against a relay of known behaviour, over sockets of this machine."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from bench.load import Job, run
from bench.peers.relay import Relay
from bench.traffic import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator


class Forgetful(Relay):
    """Drops one message."""

    forgotten = False

    def relay(self, rest: bytes, reached: set[Relay]) -> None:
        if not self.forgotten and MARKER + b"00000007" in rest:
            self.forgotten = True
            return
        super().relay(rest, reached)


@contextmanager
def relaying(kind: type[Relay]) -> Iterator[int]:
    """A relay in a thread; its port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(kind, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        # One more turn, for connections to notice that they are closed.
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


def job(port: int, **settings: int) -> Job:
    return Job("bare stomp", port, os.getpid(), "bench.1", warm_up=0.02, seconds=0.1, **settings)


@pytest.mark.parametrize(("publishers", "subscribers"), [(1, 1), (1, 3), (4, 3)])
def test_generator_gets_back_all_it_sends(publishers: int, subscribers: int) -> None:
    with relaying(Relay) as port:
        outcome = run(job(port, publishers=publishers, subscribers=subscribers))
    assert outcome.sent > 0
    assert outcome.lost == 0
    assert outcome.deliveries_per_s == pytest.approx(subscribers * outcome.messages_per_s)


def test_generator_measures_latency_of_a_paced_load() -> None:
    with relaying(Relay) as port:
        outcome = run(job(port, rate=2_000))
    assert outcome.sent == 240
    assert outcome.lost == 0
    assert 0 < outcome.p50_ms <= outcome.p99_ms


@pytest.mark.parametrize("rate", [0, 2_000])
def test_generator_notices_a_lost_message(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.load.DRAIN_SECONDS", 0.6)
    with relaying(Forgetful) as port:
        outcome = run(job(port, rate=rate))
    assert outcome.lost == 1
