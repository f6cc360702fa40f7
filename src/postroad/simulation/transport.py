"""Carries out what simulated brokers say: rows to subscribers, rows and control frames over links to each other."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.queues import copied_out
from postroad.routing import decode_frame, encode_frame
from postroad.simulation.arrivals import ArrivedFrame, joined
from postroad.simulation.host import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.broker import Outbox, Sending
    from postroad.messages import Batch, MessageId, Untyped
    from postroad.routing import Frame
    from postroad.simulation.events import Timeline
    from postroad.simulation.host import Host, Observer
    from postroad.simulation.links import Direction
    from postroad.simulation.service import ServiceTimes

    # A broker wants a link to another one, or no longer wants it.
    ChangeLink = Callable[[int, int], None]

__all__ = ["ROW_BYTES", "SimulatedTransport"]

# What a data frame costs besides its messages: the envelope of each, and a little for the frame.
ROW_BYTES = 48
_FRAME_BYTES = 48


class SimulatedTransport:
    """Carries out the outboxes of brokers.

    Args:
        timeline: the clock.
        service: how long brokers work on what arrives; None for no time at all.
        custody: brokers keep what they send until it is settled, not only until it has arrived.
        observer: gets messages delivered, instead of `delivered` and `headers`.
        connect, disconnect: called for links beyond those of the plan.

    Attributes:
        hosts: the brokers that run, by number.
        directions: (from, to) -> what one broker sends the other, of all links that ever existed.
        silent: links carry no control frames.
        events, last_learned, delivered, headers, paused: see `SimulatedNetwork`.
    """

    def __init__(
        self,
        timeline: Timeline,
        service: ServiceTimes | None,
        custody: bool,
        observer: Observer | None,
        connect: ChangeLink,
        disconnect: ChangeLink,
    ) -> None:
        self.hosts: dict[int, Host] = {}
        self.directions: dict[tuple[int, int], Direction] = {}
        self.silent = False
        self.events = 0
        self.last_learned = 0
        self.delivered: dict[str, list[MessageId]] = defaultdict(list)
        self.headers: dict[str, list[tuple[MessageId, dict[str, Untyped]]]] = defaultdict(list)
        self.paused: set[int] = set()
        self._timeline = timeline
        self._service = service
        self._custody = custody
        self._observer = observer
        self._connect = connect
        self._disconnect = disconnect
        self._outboxes: deque[tuple[Host, Outbox, Batch | None]] = deque()
        self._carrying = False

    # --- what work costs -------------------------------------------------------------------------------------------

    def batch_cost(self, host: Host, batch: Batch) -> Callable[[Outbox], int] | None:
        """Return how long a broker works on a batch, given what follows from it; None for no time at all."""
        service = self._service
        if service is None:
            return None
        messages, size, index = len(batch), batch.buffer.nbytes, host.core.index
        return lambda outbox: service.batch_us(messages, size, len(index), outbox)

    def control_cost(self) -> Callable[[Outbox], int] | None:
        """Return how long a broker works on a control frame."""
        return None if self._service is None else lambda _, cost=self._service.control_us: cost  # type: ignore[misc]

    def subscribe_cost(self) -> Callable[[Outbox], int] | None:
        """Return how long a broker works on a SUBSCRIBE."""
        return None if self._service is None else lambda _, cost=self._service.subscribe_us: cost  # type: ignore[misc]

    # --- carrying out ----------------------------------------------------------------------------------------------

    def carry_out(self, host: Host, outbox: Outbox, frame: Batch | None = None) -> None:
        """Do what a core says; consequences, such as a full link, are handled afterwards, as in a live broker.

        Args:
            host: the broker.
            outbox: what it says.
            frame: the frame from a link that caused this, if any.
        """
        if self._carrying:
            self._outboxes.append((host, outbox, frame))
            return
        self._carrying = True
        try:
            self._carry_out_one(host, outbox, frame)
            while self._outboxes:
                self._carry_out_one(*self._outboxes.popleft())
        finally:
            self._carrying = False

    def _carry_out_one(self, host: Host, outbox: Outbox, frame: Batch | None) -> None:
        broker = host.core.number
        if outbox.deliveries:
            self._deliver(broker, outbox)
        for link, control in outbox.frames:
            self._send_frame(broker, link, control)
        for sending in outbox.parcels:
            self._send(host, sending, frame)
        for number in outbox.connects:
            self._connect(broker, number)
        for number in outbox.disconnects:
            self._disconnect(broker, number)
        if outbox.pauses and host.session.number in outbox.pauses:
            host.paused = True
            self.paused.add(broker)
        if outbox.resumes and host.session.number in outbox.resumes:
            host.paused = False
            self.paused.discard(broker)
            # Not now: a task may pause publishers again, which is noticed when its outbox is carried out.
            self._timeline.at(self._timeline.now, host.resume)
        if self._custody:
            self._settle(host)

    def work(self, host: Host) -> None:
        """Let a broker finish the work that long advertisements of others cause."""
        while host.relay.working:
            self.carry_out(host, host.relay.work(self._timeline.now_ms))

    def _deliver(self, broker: int, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            self.events += len(delivery.rows)
            if self._observer is not None:
                self._observer.delivered(
                    broker, delivery.subscription, delivery.batch, delivery.rows, self._timeline.now
                )
                continue
            key = delivery.subscription.key
            messages = [delivery.batch.message(row) for row in delivery.rows.tolist()]
            self.delivered[key] += [message.id for message in messages]
            self.headers[key] += [(message.id, message.headers) for message in messages if message.headers]

    # --- links -----------------------------------------------------------------------------------------------------

    def _send_frame(self, here: int, there: int, frame: Frame) -> None:
        direction = self.directions[here, there]
        if not direction.up or self.silent:
            return
        data = encode_frame(frame)
        direction.control_bytes += len(data)
        direction.control_frames += 1
        cost, life = self.control_cost(), direction.life

        def arrive() -> None:
            if direction.life != life:
                return
            host = self.hosts[there]

            def learn() -> Outbox:
                self.events += 1
                self.last_learned = self._timeline.now + (0 if self._service is None else self._service.control_us)
                outbox = host.relay.control(decode_frame(data), here, self._timeline.now_ms)
                self.work(host)
                return outbox

            host.give(Task(learn, cost, link=here))

        direction.carry(len(data), arrive)

    def _send(self, host: Host, sending: Sending, frame: Batch | None) -> None:
        here, there, relay = host.core.number, sending.link, host.relay
        direction = self.directions[here, there]
        carried = _written(sending, frame)
        batch, rows, destinations = carried.batch, carried.rows, carried.destinations
        count = len(rows)
        if not direction.up:
            self.give_back(host, carried)
            return
        size = batch.buffer.nbytes + ROW_BYTES * count + destinations.sets.nbytes + _FRAME_BYTES
        number = direction.hold(carried, size)
        taken = number is not None
        relay.sent(carried, count * taken, int(taken), self._timeline.now_ms)
        if sending.publisher and direction.crowded:
            direction.pause(partial(self.look_for_room, here, there))
            self.carry_out(host, relay.link_full(there, sending.publisher))
        if number is None:
            return
        self.events += count
        direction.messages += count
        life = direction.life

        def arrive() -> None:
            if direction.life == life:
                receiver = self.hosts[there]
                receiver.give(self.reading(receiver, (ArrivedFrame(here, life, number, batch, destinations),)))

        direction.carry(size, arrive)

    def reading(self, host: Host, arrivals: Sequence[ArrivedFrame]) -> Task:
        """Return the task of reading frames that arrived over one link: one, or several together."""
        alone = arrivals[0] if len(arrivals) == 1 else None
        batch, destinations = joined(arrivals) if alone is None else (alone.batch, alone.destinations)
        link, life = arrivals[0].link, arrivals[0].life
        direction = self.directions[link, host.core.number]

        def receive() -> Outbox:
            self.events += len(batch)
            consignment = None
            if self._custody:
                consignments = host.relay.consignments
                taken = [consignments.take(link, life, one.number) for one in arrivals]
                consignment = taken[0] if len(taken) == 1 else consignments.joined(taken)
            outbox = host.relay.receive(batch, destinations, link, self._timeline.now_ms, consignment)
            if consignment is None and direction.life == life:
                due = direction.confirm_arrival([one.number for one in arrivals])
                if direction.pauses:
                    self._timeline.at(due, partial(self.look_for_room, link, host.core.number))
            return outbox

        return Task(receive, self.batch_cost(host, batch), link=link, frame=batch, arrival=alone)

    def give_back(self, host: Host, sending: Sending) -> None:
        """Return rows to a broker that a link did not carry to the other end, or perhaps did not."""
        consignment, link = sending.consignment, sending.link
        now = self._timeline.now_ms
        self.carry_out(host, host.relay.returned(sending.batch, sending.destinations, now, consignment, link))

    def _settle(self, host: Host) -> None:
        """Tell neighbours that what they entrusted to a broker is settled."""
        if not host.running:
            return
        broker = host.core.number
        for consignment in host.relay.consignments.take_settled():
            sender = consignment.link
            direction = self.directions[sender, broker]
            if direction.life == consignment.epoch:
                direction.confirm([consignment.number], lambda sent, sender=sender: self._let_go(sender, sent))  # type: ignore[misc]

    def _let_go(self, here: int, sending: Sending) -> None:
        """Release a parcel that the other end has confirmed."""
        if sending.consignment is not None:
            host = self.hosts[here]
            host.relay.settled([sending.consignment])
            self._settle(host)
        self.look_for_room(here, sending.link)

    def look_for_room(self, here: int, there: int) -> None:
        """Resume publishers that wait for a link if it has room again."""
        direction = self.directions[here, there]
        if direction.pauses and direction.relaxed:
            direction.pauses = False
            host = self.hosts.get(here)
            if host is not None:
                self.carry_out(host, host.relay.link_free(there))


def _written(sending: Sending, frame: Batch | None) -> Sending:
    """Return what the other end reads: a real link only carries bytes, so nothing that may change is shared.

    A frame that is relayed with all of its rows keeps its bytes, and its columns, which nobody changes either: a hop
    writes to a copy of the envelopes.
    """
    batch, rows = sending.batch, sending.rows
    if frame is not None and batch.buffer is frame.buffer and len(rows) == len(frame):
        return sending
    own = copied_out(batch, rows)
    return sending._replace(batch=own, rows=np.arange(len(own), dtype=np.int64))
