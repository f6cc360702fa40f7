"""One simulated broker: its core and relay, and a processor that does one thing after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from postroad.simulation.arrivals import JOINED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Outbox, Relay, Session, Subscription
    from postroad.messages import Batch
    from postroad.routing.destinations import Integers
    from postroad.simulation.arrivals import ArrivedFrame
    from postroad.simulation.events import Timeline
    from postroad.simulation.transport import SimulatedTransport

__all__ = ["Host", "Observer", "Task"]

# Tasks to search for frames that can be taken together: a bound for when thousands wait.
_LOOKED_THROUGH = 256


class Observer(Protocol):
    """Sees what happens to messages, with times in microseconds. It must not change or keep batches and rows."""

    def accepted(self, broker: int, client: int, batch: Batch, offered: int) -> None:
        """Called when a broker accepted what a client had offered at that time."""

    def delivered(self, broker: int, subscription: Subscription, batch: Batch, rows: Integers, now: int) -> None:
        """Called when rows were delivered to a subscription."""


class Task(NamedTuple):
    """Something that a broker has to do.

    Attributes:
        run: does it, and returns what follows.
        cost: returns the microseconds that it took, given what follows; None for no time at all.
        pausable: whether it waits while publishers are paused.
        link: the neighbour that it came from; 0 for a client.
        frame: the messages that the neighbour sent; None if it is something else.
        arrival: the frame, if it arrived alone; it may be taken together with others.
    """

    run: Callable[[], Outbox]
    cost: Callable[[Outbox], int] | None = None
    pausable: bool = False
    link: int = 0
    frame: Batch | None = None
    arrival: ArrivedFrame | None = None


class Host:
    """A running broker.

    Args:
        core: the broker.
        relay: connects it with its strategy.
        timeline: says when the processor has finished something.
        transport: does what the core says, and reads frames.

    Attributes:
        core, relay: as above.
        running: whether it runs; a broker that crashed is never run again.
        session: the client that publishes, and subscribes unless another session is named.
        tasks: what waits for the processor, oldest first.
        offered: what clients want to publish and may not yet, because publishers are paused.
        paused: whether publishers are.
        busy: whether the processor works on something.
        busy_us: for how long it has worked so far, in microseconds.
        frozen: what has arrived since the broker froze; None while it runs.
        given_up_by: neighbours that considered it dead while it was frozen.
    """

    __slots__ = (
        "_timeline",
        "_transport",
        "busy",
        "busy_us",
        "core",
        "frozen",
        "given_up_by",
        "offered",
        "paused",
        "relay",
        "running",
        "session",
        "tasks",
    )

    def __init__(self, core: Broker, relay: Relay, timeline: Timeline, transport: SimulatedTransport) -> None:
        self.core = core
        self.relay = relay
        self._timeline = timeline
        self._transport = transport
        self.running = True
        self.session: Session = core.attached("")
        self.tasks: deque[Task] = deque()
        self.offered: deque[Task] = deque()
        self.paused = False
        self.busy = False
        self.busy_us = 0
        self.frozen: list[Task] | None = None
        self.given_up_by: list[int] = []

    def give(self, task: Task) -> None:
        """Give the broker something to read, now or when it can."""
        if not self.running:
            return
        if self.frozen is not None:
            self.frozen.append(task)
        elif self.busy:
            self.tasks.append(task)
        elif task.cost is not None and not self.tasks and not (task.pausable and self.paused):
            # Nothing waits, which is how most things come.
            self._begin(task, task.cost)
        else:
            self.tasks.append(task)
            self.serve()

    def serve(self) -> None:
        """Take the next task; its consequences happen when it is finished."""
        while self.tasks and not self.busy:
            task = self.tasks.popleft()
            if task.arrival is not None and self.tasks:
                task = self._with_others(task, task.arrival)
            if task.pausable and self.paused:
                self.offered.append(task)
            elif task.cost is None:
                self._transport.carry_out(self, task.run(), task.frame)
            else:
                self._begin(task, task.cost)

    def _with_others(self, task: Task, arrival: ArrivedFrame) -> Task:
        """Return the task, joined with waiting frames of the same link: the order of a link is kept."""
        taken: list[ArrivedFrame] = [arrival]
        others: list[Task] = []
        size = arrival.batch.buffer.nbytes
        while self.tasks and len(others) < _LOOKED_THROUGH:
            if self.tasks[0].link != arrival.link:
                others.append(self.tasks.popleft())
                continue
            follows = self.tasks[0].arrival
            if follows is None or not arrival.goes_with(follows) or size + follows.batch.buffer.nbytes > JOINED_BYTES:
                break
            size += follows.batch.buffer.nbytes
            taken.append(follows)
            self.tasks.popleft()
        self.tasks.extendleft(reversed(others))
        return task if len(taken) == 1 else self._transport.reading(self, taken)

    def _begin(self, task: Task, cost: Callable[[Outbox], int]) -> None:
        outbox = task.run()
        taken = cost(outbox)
        self.busy = True
        self.busy_us += taken

        def done() -> None:
            if not self.running:
                return
            self.busy = False
            self._transport.carry_out(self, outbox, task.frame)
            if self.tasks:
                self.serve()

        self._timeline.at(self._timeline.now + taken, done)

    def resume(self) -> None:
        """Resume publishers: what they offered meanwhile comes first."""
        waiting, self.offered = self.offered, deque()
        self.tasks.extendleft(reversed(waiting))
        if self.frozen is None:
            self.serve()
