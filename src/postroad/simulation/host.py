"""One simulated broker: its core and relay, and a processor that does one thing after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Outbox, Relay, Session, Subscription
    from postroad.messages import Batch
    from postroad.routing.sets import Integers

__all__ = ["Host", "Observer", "Task"]


class Observer(Protocol):
    """Sees what happens to messages, with times in microseconds. Batches and rows are not to be changed or kept."""

    def accepted(self, broker: int, client: int, batch: Batch, offered: int) -> None:
        """A broker accepted what a client had offered at that time."""

    def delivered(self, broker: int, subscription: Subscription, batch: Batch, rows: Integers, now: int) -> None:
        """Rows were delivered to a subscription."""


class Task(NamedTuple):
    """Something that a broker has to do.

    Attributes:
        run: does it; the answer says what follows.
        cost: microseconds that it took, given what follows.
        pausable: whether it waits while publishers are paused.
    """

    run: Callable[[], Outbox]
    cost: Callable[[Outbox], int]
    pausable: bool = False


class Host:
    """A broker that runs.

    Attributes:
        core: the broker.
        relay: joins it with its strategy.
        session: the client that publishes, and subscribes where no other session is named.
        tasks: what waits for the processor, oldest first.
        offered: what clients want to publish and may not yet, because publishers are paused.
        paused: whether publishers are.
        busy: whether the processor works on something.
        busy_us: for how long it has worked so far, in microseconds.
        frozen: what has come since the broker froze; None while it runs.
        given_up_by: neighbours that took it for dead while it was frozen.
    """

    __slots__ = (
        "busy",
        "busy_us",
        "core",
        "frozen",
        "given_up_by",
        "offered",
        "paused",
        "relay",
        "session",
        "tasks",
    )

    def __init__(self, core: Broker, relay: Relay) -> None:
        self.core = core
        self.relay = relay
        self.session: Session = core.attached("")
        self.tasks: deque[Task] = deque()
        self.offered: deque[Task] = deque()
        self.paused = False
        self.busy = False
        self.busy_us = 0
        self.frozen: list[Task] | None = None
        self.given_up_by: list[int] = []
