"""The load generator against a relay of known behaviour, over sockets of this machine."""

from __future__ import annotations

import os
from typing import Any

import pytest
from bench.load import Job, run
from bench.peers.relay import Relay

from tests.bench.relays import Forgetful, relaying


def job(port: int, **settings: Any) -> Job:
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
