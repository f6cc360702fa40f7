"""A broker's core over a simulated disk, in one of its lives: what the scenes of queues and of durables start."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import Broker, PublisherNumbers, QueueSettings, SubscriptionNumbers
from postroad.store import Log, StoreSettings, recover

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Limits, Recorder
    from postroad.security import Policy
    from postroad.store import SimulatedDisk


class NumberBlocks:
    """Numbers of publishers and subscriptions that no later life of a broker uses again."""

    def __init__(self) -> None:
        self._publishers, self._subscriptions = itertools.count(1, 1_000), itertools.count(1, 1_000)

    @property
    def publishers(self) -> PublisherNumbers:
        return PublisherNumbers(lambda: next(self._publishers))

    @property
    def subscriptions(self) -> SubscriptionNumbers:
        return SubscriptionNumbers(lambda: next(self._subscriptions))


def stored_core(
    disk: SimulatedDisk,
    numbers: NumberBlocks,
    now: int,
    *,
    number: int = 1,
    store: StoreSettings | None = None,
    queues: QueueSettings | None = None,
    limits: Limits | None = None,
    policy: Policy | None = None,
    recorder: Recorder | None = None,
    in_turns: bool = False,
    home: Callable[[str], int] | None = None,
    listed: frozenset[int] = frozenset(),
    forces: bool = False,
) -> tuple[Broker, Log]:
    """Start a broker on what the disk has, which can all be restored; with `forces` it is synced first."""
    core = Broker(number, numbers.publishers, limits, policy, recorder, numbers.subscriptions, in_turns=in_turns)
    core.queue_settings = queues or QueueSettings()
    core.homes.home, core.homes.brokers = home, listed
    log = Log(store or StoreSettings(), recover(disk.segments(), disk.read, disk.sync if forces else None))
    assert core.open_store(log, np.empty((0, 2), np.uint64), now) == []
    return core, log
