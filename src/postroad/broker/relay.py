"""A broker among others: the core joined with a routing strategy.

Messages that enter here are matched once, against local subscriptions and the interests of all brokers together.
Messages that arrive over a link are matched against local subscriptions only if this broker is a destination, and are
relayed unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.advertised_interest import AdvertisedInterest
from postroad.broker.advertisements import Advertisements
from postroad.broker.budgets import NANOSECONDS
from postroad.broker.consignments import Consignments
from postroad.broker.held_messages import HELD_MS, HeldMessages
from postroad.broker.interests import Interests
from postroad.broker.link_pauses import pause_for_link, resume_for_link
from postroad.broker.marks import LATE, MAYBE_TWICE, have_room, marked
from postroad.broker.outbox import LinkRefusal, Outbox, Sending
from postroad.broker.publisher_order import OrderStatistics, PublisherOrder
from postroad.broker.row_groups import has_flag
from postroad.broker.turns import Deferred, Work
from postroad.messages.columns import FLAGS, OVERTAKING, QUEUED
from postroad.routing import Delta, Digest, Interest, InterestChange, InterestDelta, LinkRecord
from postroad.routing.envelopes import overtaking
from postroad.topology import LARGEST_BROKER
from postroad.tracking.reasons import Detour, Loss

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeGuard

    from numpy.typing import NDArray

    from postroad.broker.advertisements import Learned
    from postroad.broker.consignments import Consignment
    from postroad.broker.core import Broker
    from postroad.broker.interests import Matched
    from postroad.broker.sessions import Session
    from postroad.matching.encoding import Scheme
    from postroad.messages import Batch
    from postroad.routing import Destinations, Frame, Reaction, Routed, Strategy, UnicastRoutes
    from postroad.selectors import Selector

__all__ = ["Relay", "RelayStatistics"]

# No broker has this number: rows that are kept in order wait in one queue, whatever link they arrived over.
_IN_ORDER = LARGEST_BROKER + 1
# What an honest neighbour may relay.
NOT_BELIEVED = "a record counts far ahead of the clock here, or is of a broker that this network does not list"


class RelayStatistics(NamedTuple):
    """Counts of messages since the start.

    `held_now` wait for a route. `open_frames_now`, under custody, are frames of neighbours that are not settled yet.
    `maybe_duplicates` were delivered, and may have been delivered before. With `order = "publisher"`: `late` were
    delivered after later ones, `unordered` left early for lack of room, `order_held_now` wait for earlier ones.
    """

    sent: int
    relayed: int
    duplicates: int
    maybe_duplicates: int
    exhausted: int
    unreachable: int
    shed_link_full: int
    held_now: int
    held_bytes_now: int
    open_frames_now: int
    late: int
    unordered: int
    order_held_now: int


class _Origin(NamedTuple):
    """Where rows come from; see `Sending`."""

    publisher: int = 0
    consignment: Consignment | None = None
    returned: bool = False


class Relay:
    """Connects a core with a strategy.

    Args:
        core: the broker; from now on it passes what it accepts to this relay.
        strategy: decides where messages go.
        scheme: how brokers encode their interests; None if they advertise them exactly.
        order_wait_ms: how long rows wait for earlier ones of their publisher after routes have changed; 0 for no wait.
        hold_ms: how long rows wait for a route to a broker that cannot be reached.
        unicast: routes to single brokers, if the strategy keeps no link state; None for none.

    Attributes:
        interests: what other brokers want.
    """

    def __init__(
        self,
        core: Broker,
        strategy: Strategy,
        scheme: Scheme | None = None,
        order_wait_ms: int = 0,
        hold_ms: int = HELD_MS,
        unicast: UnicastRoutes | None = None,
    ) -> None:
        self._core = core
        self._order = PublisherOrder(order_wait_ms) if order_wait_ms else None
        self._order_wait = order_wait_ms
        self._hold_ms = hold_ms
        self._unsteady_until = 0  # what passes until then may overtake what passed before
        self.interests = Interests(core.index, scheme, core.limits.matching_ms * NANOSECONDS)
        self._advertised = AdvertisedInterest(scheme)
        self.strategy = strategy
        state = strategy.link_state
        self._advertisements = None if state is None else Advertisements(self.interests, state)
        self._unicast = unicast
        self._subscribed: dict[int, tuple[str, Selector | None]] = {}
        self._added: list[str] = []
        self._removed: list[str] = []
        self._changed = False
        self._held = HeldMessages(core)
        self._sent = self._relayed = self._duplicates = self._maybe_duplicates = self._exhausted = self._shed = 0
        self.consignments = Consignments()
        core.relay = self

    # --- messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: Batch, matched: Matched, source: Session, outbox: Outbox, now: int) -> Deferred | None:
        """Route messages that enter the network here; `matched` is the result of the index. As `Residents.deliver`."""
        split = self.interests.split(batch, matched, entering=self.strategy.link_state is not None)
        routed = self.strategy.publish(batch, split.destinations, now)
        deferred = self._core.residents.deliver(routed.batch, split.offsets, split.slots, source, outbox, now)
        wanted = self._core.wanted(split.offsets, split.slots)
        unwanted = wanted[1:] == wanted[:-1]
        for parcel in (*routed.parcels, *(() if routed.held is None else (routed.held,))):
            unwanted[parcel.rows] = False
        self._core.matched_nobody += int(unwanted.sum())
        self._sent += self._send(routed, outbox, now, _Origin(publisher=source.number))
        return deferred

    def receive(
        self,
        batch: Batch,
        destinations: Destinations,
        link: int,
        now: int,
        consignment: Consignment | None = None,
    ) -> Outbox:
        """Take messages that arrived over a link; under custody, with what `consignments.take` gave for their frame.

        Raises:
            RoutingError: the destinations make no sense; the link should be closed.
        """
        outbox = Outbox()
        try:
            self._receive(batch, destinations, link, now, consignment, outbox)
        finally:
            if consignment is not None:
                consignment.release()
        return outbox

    def _receive(
        self,
        batch: Batch,
        destinations: Destinations,
        link: int,
        now: int,
        consignment: Consignment | None,
        outbox: Outbox,
    ) -> None:
        routed = self.strategy.relay(batch, destinations, link, now)
        self._duplicates += routed.duplicates
        self._core.recorder.arrived(batch, link, now)
        local, doubtful = routed.local, routed.doubtful
        if len(local) and has_flag(routed.batch.envelopes, QUEUED):
            # Clients reach queues only at their own broker: an honest neighbour sends nothing for them.
            queued = local[routed.batch.envelopes[local, FLAGS] & QUEUED != 0]
            self._core.recorder.dropped(routed.batch, queued, link, Loss.QUEUE_NOT_HERE, now)
            local = np.setdiff1d(local, queued)
            doubtful = None if doubtful is None else np.setdiff1d(doubtful, queued)
        if len(local):
            whole = len(local) == len(routed.batch)
            here = routed.batch if whole else routed.batch.take(local)
            work = Work(here, None, link, consignment)
            if doubtful is not None:
                doubtful = np.searchsorted(local, doubtful)
                here, mask = self._with_room_for_marks(here, doubtful, now)
                work = Work(here, None, link, consignment, mask)
            if self._order is None:
                self._core.take_up(work, outbox, now)
            else:
                self._take_up_in_order(self._order, work, outbox, now)
        self._relayed += self._send(routed, outbox, now, _Origin(consignment=consignment))

    def _with_room_for_marks(
        self, here: Batch, doubtful: NDArray[np.int64], now: int
    ) -> tuple[Batch, NDArray[np.bool_]]:
        """Mark rows that may have been delivered before; drop those without room for the mark."""
        self._maybe_duplicates += len(doubtful)
        room = have_room(here, doubtful, MAYBE_TWICE)
        mask = np.zeros(len(here), np.bool_)
        mask[doubtful] = True
        if room.all():
            return here, mask
        self._core.recorder.dropped(here, doubtful[~room], 0, Loss.MAYBE_DUPLICATE, now)
        kept = np.ones(len(here), np.bool_)
        kept[doubtful[~room]] = False
        return here.take(np.flatnonzero(kept)), mask[kept]

    def _take_up_in_order(self, order: PublisherOrder, work: Work, outbox: Outbox, now: int) -> None:
        """Deliver rows that are in order, keep those that may be early, and mark those that are late.

        Rows that may have been delivered before are out of order anyway. All rows wait in one queue, whatever their
        link.
        """
        here, consignment = work.batch, work.consignment
        if work.doubtful is not None:
            again = here.take(work.doubtful)
            here = here.take(~work.doubtful)
            marks = np.ones(len(again), np.bool_)
            self._core.take_up(Work(again, None, _IN_ORDER, consignment, marks, marks), outbox, now)
        early = (here.envelopes[:, FLAGS] & OVERTAKING) != 0
        if now < self._unsteady_until:
            early[:] = True
        passing, late = order.take(here, early, now, consignment)
        if len(passing) < len(here):
            waits = np.ones(len(here), np.bool_)
            waits[passing] = False
            self._core.recorder.dropped(here, np.flatnonzero(waits), 0, Detour.KEPT_FOR_ORDER, now)
        if len(passing):
            ready = here if len(passing) == len(here) else here.take(passing)
            marked_late = np.isin(passing, late) if len(late) else None
            self._core.take_up(Work(ready, None, _IN_ORDER, consignment, None, marked_late), outbox, now)
        if order.full:
            self._release(order, outbox, now, everything=True)

    def _release(self, order: PublisherOrder, outbox: Outbox, now: int, *, everything: bool = False) -> None:
        """Deliver rows that have waited long enough for earlier ones."""
        released = order.release(now, everything=everything)
        if released is None:
            return
        consignment = self.consignments.joined(released.consignments) if released.consignments else None
        self._core.recorder.dropped(released.batch, np.arange(len(released.batch)), 0, Detour.IN_ORDER, now)
        self._core.take_up(Work(released.batch, None, _IN_ORDER, consignment), outbox, now)
        if consignment is not None:
            consignment.release()

    def deliver(self, work: Work, matched: Matched, outbox: Outbox, now: int) -> Deferred | None:
        """Deliver what arrived over a link to local subscriptions, as `Residents.deliver`."""
        batch = work.batch
        offsets, slots = self.interests.local(*matched)
        # Marked after matching: a mark is only for the subscriber.
        for line, mask in ((MAYBE_TWICE, work.doubtful), (LATE, work.late)):
            if mask is not None and mask.any():
                rows = np.flatnonzero(mask)
                batch = marked(batch, rows[have_room(batch, rows, line)], line)
        return self._core.residents.deliver(batch, offsets, slots, None, outbox, now, work.consignment)

    def returned(
        self, batch: Batch, destinations: Destinations, now: int, consignment: Consignment | None = None, link: int = 0
    ) -> Outbox:
        """Reroute messages that a lost link had not confirmed (under custody: settled), and mark them."""
        outbox = Outbox()
        self._core.recorder.dropped(batch, np.arange(len(batch)), link, Detour.RETURNED, now)
        self._ways_changed(now)
        routed = self.strategy.reroute(batch, destinations, now, returned=True)
        self._send(routed, outbox, now, _Origin(consignment=consignment, returned=True))
        if consignment is not None:
            consignment.release()
        return outbox

    def sent(self, sending: Sending, taken: int, frames: int, now: int) -> None:
        """Note that a link has taken the first `taken` rows, in some frames. The rest does not fit, and is shed."""
        recorder, rows = self._core.recorder, sending.rows
        if taken:
            recorder.relayed(sending.batch, rows[:taken], sending.link, now)
        if taken < len(rows):
            self._shed += len(rows) - taken
            recorder.dropped(sending.batch, rows[taken:], sending.link, Loss.LINK_FULL, now)
        if sending.consignment is not None:
            sending.consignment.hold(frames)
            sending.consignment.release()

    def settled(self, consignments: Iterable[Consignment]) -> None:
        """Note that links have settled one frame of each of these consignments; one that occurs twice had two."""
        for consignment in consignments:
            consignment.release()

    def link_full(self, link: int, publisher: int) -> Outbox:
        """Pause a local publisher until `link_free`: a link has no room for it."""
        pause_for_link(self._core, publisher, link, outbox := Outbox())
        return outbox

    def link_free(self, link: int) -> Outbox:
        """Resume publishers: a link has room again."""
        resume_for_link(self._core, link, outbox := Outbox())
        return outbox

    def _send(self, routed: Routed, outbox: Outbox, now: int, origin: _Origin, until: int = 0, wait: int = 0) -> int:
        sent = 0
        batch = routed.batch
        if now < self._unsteady_until and routed.parcels:
            batch = overtaking(batch)
        for parcel in routed.parcels:
            outbox.parcels.append(Sending(parcel.link, batch, parcel.rows, parcel.destinations, *origin))
            if origin.consignment is not None:
                origin.consignment.hold()
            sent += len(parcel.rows)
        if routed.exhausted is not None:
            lost = routed.exhausted.rows
            self._exhausted += len(lost)
            self._core.recorder.dropped(routed.batch, lost, 0, Loss.HOP_LIMIT, now)
        if routed.held is not None:
            self._held.add(routed.batch, routed.held, until or now + self._hold_ms, origin.consignment, now, wait)
        return sent

    # --- what brokers tell each other ------------------------------------------------------------------------------

    def control(self, frame: Frame, link: int, now: int) -> Outbox:
        """Take a control frame that arrived over a link.

        Raises:
            PostroadError: the frame is false or makes no sense; the link should be closed.
        """
        outbox = Outbox()
        if self._advertisements is not None and _is_advertisement(frame, self._core.number):
            self._learned(self._advertisements.receive(frame, link, now), outbox, now, link)
        elif self._unicast is not None and isinstance(frame, LinkRecord | Digest):
            self._apply(self._unicast.control(frame, link, now), outbox, now, link)
        else:
            self._apply(self.strategy.control(frame, link, now), outbox, now, link)
        return outbox

    def next_hop(self, broker: int) -> int:
        """Return the neighbour on the way to another broker; 0 if no route is known."""
        known = self._unicast if self.strategy.link_state is None else self.strategy.link_state
        return 0 if known is None else known.next_hop(broker)

    @property
    def is_informed(self) -> bool:
        """Return whether this broker knows all that its neighbours know, so that messages miss nobody they know."""
        state = self.strategy.link_state
        return not self.working and (state is None or state.is_synchronised)

    @property
    def working(self) -> bool:
        """Return whether `work` has something to do."""
        return self._advertisements is not None and self._advertisements.working

    def work(self, now: int) -> Outbox:
        """Work for a few milliseconds on long advertisements of other brokers; to be called while `working`."""
        outbox = Outbox()
        if self._advertisements is not None:
            self._learned(self._advertisements.work(now), outbox, now)
        return outbox

    def _learned(self, learned: Learned, outbox: Outbox, now: int, link: int = 0) -> None:
        outbox.refusals += [LinkRefusal(at, reason, grave=True) for at, reason in learned.faults if at]
        self._apply(learned.reaction, outbox, now, link)

    def adopt(self, known: Interests) -> None:
        """Know at once what all brokers want, this one among them: for networks that begin agreed."""
        self.interests.fill_from(known)
        self.interests.replace(self._core.number, None)
        self._core.residents.enter_again(self._subscribed)

    def link_up(self, link: int, cost: int, now: int) -> Outbox:
        """Add a link to another broker."""
        self._core.recorder.linked(link, cost, now)
        self._ways_changed(now)
        outbox = self._react(self.strategy.link_up(link, cost, now), now)
        if self._unicast is not None:
            self._apply(self._unicast.link_up(link, cost, now), outbox, now)
        return outbox

    def link_down(self, link: int, now: int) -> Outbox:
        """Remove a link."""
        self._core.recorder.unlinked(link, now)
        self._ways_changed(now)
        outbox = self._react(self.strategy.link_down(link, now), now)
        if self._unicast is not None:
            self._apply(self._unicast.link_down(link, now), outbox, now)
        return outbox

    def tick(self, now: int) -> Outbox:
        """Advertise what changed here, and give up what waited too long."""
        outbox = Outbox()
        if self._changed:
            self._changed = False
            change = InterestChange(
                None, tuple(self._added), tuple(self._removed), self._advertised.take(), self._advertised.whole
            )
            self._added, self._removed = [], []
            self._apply(self.strategy.interest(change, now), outbox, now)
        self._apply(self.strategy.tick(now), outbox, now)
        if self._unicast is not None:
            self._apply(self._unicast.tick(now), outbox, now)
        self._held.expire(now)
        self.consignments.tick(now)
        if self._order is not None:
            self._release(self._order, outbox, now)
        return outbox

    def leave(self, now: int, returns: bool = False) -> Outbox:
        """Tell the others that this broker stops, and whether it `returns`; deliver what waits for its turn."""
        outbox = self._react(self.strategy.leave(now, returns), now)
        if self._unicast is not None:
            self._apply(self._unicast.leave(now), outbox, now)
        if self._order is not None:
            self._release(self._order, outbox, now, everything=True)
        return outbox

    def _react(self, reaction: Reaction, now: int) -> Outbox:
        self._apply(reaction, outbox := Outbox(), now)
        return outbox

    def _apply(self, reaction: Reaction, outbox: Outbox, now: int, link: int = 0) -> None:
        outbox.frames += reaction.frames
        outbox.connects += reaction.connect
        outbox.disconnects += reaction.disconnect
        if reaction.refused:
            outbox.refusals.append(LinkRefusal(link, NOT_BELIEVED, grave=False))
        for broker, summary in reaction.interests:
            if summary is None and self._advertisements is not None:
                self._advertisements.forget(broker, now)
            elif isinstance(summary, Delta):
                self.interests.change(broker, summary)
            else:
                self.interests.replace(broker, summary)
        if reaction.retry:
            self._ways_changed(now)
            self._retry(outbox, now)

    def _ways_changed(self, now: int) -> None:
        """Note that routes changed: messages sent from now on may overtake earlier ones."""
        if self._order is not None:
            self._unsteady_until = now + self._order_wait

    def _retry(self, outbox: Outbox, now: int) -> None:
        for held in self._held.take_all():
            routed = self.strategy.reroute(held.batch, held.destinations, now, returned=False)
            going = np.ones(len(routed.batch), np.bool_)
            if routed.held is not None:
                going[routed.held.rows] = False
            self._core.recorder.dropped(routed.batch, np.flatnonzero(going), held.wait, Detour.SENT_ON, now)
            self._send(routed, outbox, now, _Origin(consignment=held.consignment), held.until, held.wait)
            if held.consignment is not None:
                held.consignment.release()

    # --- what subscribers here want --------------------------------------------------------------------------------

    def subscribed(self, number: int, topic: str, selector: Selector | None) -> None:
        """Add a local subscription; the next tick advertises it."""
        self._subscribed[number] = (topic, selector)
        self._advertised.add(topic, selector)
        self._added.append(topic)
        self._changed = True

    def unsubscribed(self, number: int) -> None:
        """Remove a local subscription."""
        topic, selector = self._subscribed.pop(number)
        self._advertised.remove(topic, selector)
        self._removed.append(topic)
        self._changed = True

    def routing_statistics(self) -> dict[str, int]:
        """Return counts of the strategy, and how many brokers have a route to them."""
        counts = self.strategy.statistics()
        return counts if self._unicast is None else {**counts, "reached": self._unicast.reached}

    def statistics(self) -> RelayStatistics:
        """Return counts for people and for metrics."""
        order = OrderStatistics(0, 0, 0, 0) if self._order is None else self._order.statistics()
        return RelayStatistics(
            self._sent,
            self._relayed,
            self._duplicates,
            self._maybe_duplicates,
            self._exhausted,
            self._held.unreachable,
            self._shed,
            self._held.messages,
            self._held.bytes,
            self.consignments.statistics().open_now,
            order.late,
            order.given_up,
            order.waiting_now,
        )


def _is_advertisement(frame: Frame, number: int) -> TypeGuard[Interest | InterestDelta]:
    # This broker's own go to link state.
    return isinstance(frame, Interest | InterestDelta) and frame.broker != number
