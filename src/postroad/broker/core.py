"""One station: receives batches, matches them, hands them to subscriptions, and counts what it does.

No sockets, no clocks, no threads: time comes in as an argument, and what has to be written comes out in an `Outbox`.
The driver tells the core when a connection cannot take more (`congested`) and when it can again (`drained`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.aliases import record_aliases
from postroad.broker.budgets import Budgets, estimated_bytes
from postroad.broker.deliveries import Deliveries
from postroad.broker.durables import Durables
from postroad.broker.errors import BrokerError
from postroad.broker.given_ids import DEFAULT_SKEW_TOLERANCE_MS, AssigningPublishers, IdAdmission
from postroad.broker.groups import Grouping, any_expires, unmatched
from postroad.broker.limits import Limits
from postroad.broker.named_queues import NamedQueues
from postroad.broker.no_recorder import NoRecorder
from postroad.broker.numbers import SubscriptionNumbers
from postroad.broker.outbox import Outbox
from postroad.broker.peers import Peers
from postroad.broker.queue_homes import QueueHomes
from postroad.broker.queues import Load
from postroad.broker.redeliveries import QueueSettings, Redeliveries
from postroad.broker.replays import Replays
from postroad.broker.retentions import Retentions
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.statistics import BrokerStatistics
from postroad.broker.stored import StoredQueues
from postroad.broker.turns import MAX_UNFINISHED_BYTES, Turns, Work
from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.matching.table_hash import FIXED_SECRET
from postroad.messages import IdGenerator
from postroad.messages.columns import SOURCE
from postroad.security import AllowAll, Refusal
from postroad.selectors import Selector, TopicPattern
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.given_ids import AssigningPublisher
    from postroad.broker.no_recorder import Recorder
    from postroad.broker.numbers import PublisherNumbers
    from postroad.broker.relay import Relay
    from postroad.broker.replays import ReplayStart
    from postroad.broker.settlements import Settlement
    from postroad.messages import Batch
    from postroad.security import Policy
    from postroad.store import Log

__all__ = ["Broker"]


class Broker:
    """The core of one broker.

    Args:
        number: the broker's number in the plan; part of every id it stamps.
        numbers: hands out publisher numbers.
        limits: what the broker keeps at most.
        policy: who may do what.
        recorder: keeps the record.
        subscription_numbers: hands out subscription numbers; counts from 1 without.
        skew_tolerance_ms: how far the time of an id that a client gives may be from the broker's.
        index_secret: 64 random bits for the hash of the index, where clients are not trusted; no answer depends on it.
        in_turns: whether batches that are much work are cut (`limits.turn_ms`). The driver then calls `proceed` for as
            long as the broker is `unfinished`.

    Attributes:
        waiting: what waits for all subscriptions together.
        budgets: what its subscriptions use up of its limits.
        index_secret: of its indexes.
        turn_budget: what matching may take in one turn, in about nanoseconds.
        durables: the durable subscriptions; None without a store.
        queues: the queues; None without a store.
        queue_settings: how queues treat what comes back; to be set before the store is opened.
        homes: which broker has a queue.
        peers: the queues of other brokers, and what these do with the ones here; None outside a network, or without a
            store.
        redeliveries: what came back, and waits for its time; None without a store.
        alias_attribute: the attribute that has a message's name in another system, to be recorded; none without.
    """

    def __init__(
        self,
        number: int,
        numbers: PublisherNumbers,
        limits: Limits | None = None,
        policy: Policy | None = None,
        recorder: Recorder | None = None,
        subscription_numbers: SubscriptionNumbers | None = None,
        skew_tolerance_ms: int = DEFAULT_SKEW_TOLERANCE_MS,
        index_secret: int = FIXED_SECRET,
        in_turns: bool = False,
    ) -> None:
        self.number = number
        self.limits = limits or Limits()
        self._numbers = numbers
        self._subscription_numbers = subscription_numbers or SubscriptionNumbers()
        self._assigning = AssigningPublishers(number, numbers, self.limits.publishers_kept)
        self.skew_tolerance_ms = skew_tolerance_ms
        self._policy = policy or AllowAll()
        self.recorder = recorder or NoRecorder()
        self.index = SubscriptionIndex(secret=index_secret)
        self.index_secret = index_secret
        self.budgets = Budgets(self.limits)
        self._turns = Turns()
        self._in_turns = in_turns
        self.turn_budget = self.limits.turn_ms * 1_000_000 if in_turns else NO_BUDGET
        self.relay: Relay | None = None
        self.durables: Durables | None = None
        self._retentions: Retentions | None = None
        self._replays: Replays | None = None
        self.queues: NamedQueues | None = None
        self.redeliveries: Redeliveries | None = None
        self.queue_settings = QueueSettings()
        self.homes = QueueHomes(number)
        self.peers: Peers | None = None
        self.alias_attribute: str | None = None
        self._grouping = Grouping()
        self._sessions: dict[int, Session] = {}
        self._by_slot: list[Subscription | None] = []
        self._next_session = 1
        self.waiting = Load()
        self._deliveries = Deliveries(self.limits, self.recorder, self._sessions, self._turns if in_turns else None)
        self._accepted = self._matched_nobody = 0
        self._ids_skewed = self._resent = 0

    def take_limits(self, limits: Limits) -> None:
        """Other limits count from now on, but for `publishers_kept`; whoever is beyond them keeps what it has."""
        self.limits = limits
        self.budgets.take_limits(limits)
        self._deliveries.take_limits(limits)
        self.turn_budget = limits.turn_ms * 1_000_000 if self._in_turns else NO_BUDGET

    # --- sessions and subscriptions ----------------------------------------------------------------------------------

    def attached(self, principal: str) -> Session:
        """A client has connected.

        Raises:
            BrokerError: the broker has as many sessions as it may.
        """
        if len(self._sessions) >= self.limits.sessions:
            raise BrokerError(
                f"this broker has {self.limits.sessions:,} sessions, its limit (sessions); try another one"
            )
        session = Session(self._next_session, principal, self.waiting)
        self._next_session += 1
        self._sessions[session.number] = session
        return session

    def assigns_ids(
        self, session: Session, token: str, now: int, was: tuple[int, str] | None = None
    ) -> tuple[AssigningPublisher, Outbox]:
        """A client gives its messages their ids itself, from now on.

        Args:
            session: the client.
            token: what it has to show, should it lose its connection, to go on under the same publisher number.
            now: the time in ms.
            was: the number and the token of the publisher that it was before, if it was one. It gets a new number if
                they are not known here (any more).

        Returns:
            the publisher it is, and what to do: an earlier connection of that publisher is closed, if there is one.
        """
        outbox = Outbox()
        publisher = None if was is None else self._assigning.find(*was, session.principal)
        if publisher is None:
            publisher = self._assigning.new(session.principal, token)
            self.recorder.publishes(publisher.number, session.principal, now)
        elif publisher.session is not None and (earlier := self._sessions.get(publisher.session)) is not None:
            earlier.assigning = None
            outbox.closes.append((earlier.number, "this publisher has connected again"))
        publisher.speaks_over(session.number)
        session.assigning = publisher
        return publisher, outbox

    def know_publishers_again(self, secret: Callable[[], bytes]) -> None:
        """Publishers that give their own ids are to be known again after a restart, by a secret that survives it."""
        self._assigning.secret = secret

    def detached(self, session: Session, now: int, for_good: bool = False) -> Outbox:
        """A client is gone: its subscriptions end, and what waited for them is shed and counted.

        With `for_good` it took its leave, and will not come back as the same publisher.
        """
        outbox = Outbox()
        if session.assigning is not None:
            self._assigning.left(session.assigning, for_good)
        if self.queues is not None:
            consumers = [each for each in session.subscriptions.values() if each.queue is not None]
            self.queues.left(consumers, outbox, now)
        for subscription in list(session.subscriptions.values()):
            if subscription.durable is None:
                self._end_subscription(subscription, "session closed", outbox, now)
            else:
                assert self.durables is not None
                self.durables.left(subscription)
        del self._sessions[session.number]
        if session.number in outbox.resumes:
            outbox.resumes.remove(session.number)
        return outbox

    def subscribe(
        self,
        session: Session,
        key: str,
        topic: str,
        selector: str = "",
        ack_mode: AckMode = AckMode.AUTO,
        policy: OverflowPolicy = OverflowPolicy.DROP_OLDEST,
        now: int = 0,
        replay: ReplayStart | None = None,
    ) -> Subscription:
        """Add a subscription to a session; with `replay` it begins in the past, and the driver calls `proceed`.

        Raises:
            BrokerError: the key is taken, the session has too many subscriptions, the policy refuses, or what it wants
                of the past is not retained.
            LimitError: the index is full.
            SelectorError, TopicError: a text does not parse.
        """
        self.check_key(session, key)
        pattern = TopicPattern.parse(topic)
        allowed = self.allowed(session, topic, selector)
        self.budgets.check_bytes(session, estimated_bytes(key, topic, allowed))
        history = None if replay is None else self.replays.terms(session, topic, allowed, replay)
        subscription = Subscription(self.take_subscription_number(), session, key, topic, ack_mode, policy)
        self.enter_index(subscription, allowed, pattern, now)
        if history is not None:
            self.replays.begin(subscription, history)
        session.subscriptions[key] = subscription
        if policy is OverflowPolicy.PUSH_BACK and ack_mode is not AckMode.AUTO:
            session.must_acknowledge += 1
        return subscription

    def check_key(self, session: Session, key: str) -> None:
        """Refuse one subscription more of a session.

        Raises:
            BrokerError: the key is taken, or the session has too many.
        """
        if key in session.subscriptions:
            raise BrokerError(f"this session has a subscription {key!r} already; unsubscribe it or choose another id")
        if len(session.subscriptions) >= self.limits.subscriptions_per_session:
            limit = self.limits.subscriptions_per_session
            raise BrokerError(f"this session has {limit:,} subscriptions, the limit (subscriptions_per_session)")

    def allowed(self, session: Session, topic: str, selector: str, queued: bool = False) -> Selector | None:
        """The selector that the policy lets a session subscribe with, to a topic or, if it is `queued`, a queue.

        Raises:
            BrokerError: it refuses.
            SelectorError: the text does not parse.
        """
        wanted = Selector.parse(selector) if selector.strip() else None
        allowed = self._policy.may_subscribe(session.principal, topic, wanted, queued)
        if isinstance(allowed, Refusal):
            destination = f"/queue/{topic}" if queued else topic
            raise BrokerError(f"subscription to {destination!r} refused: {allowed.reason}")
        return allowed

    def take_subscription_number(self) -> int:
        """A number for a subscription."""
        return self._subscription_numbers.take()

    def enter_index(
        self, subscription: Subscription, selector: Selector | None, pattern: TopicPattern, now: int
    ) -> None:
        """From now on messages match a subscription.

        Raises:
            BrokerError, LimitError: that would be too much for its session, or for the broker.
        """
        topic = subscription.topic
        size = estimated_bytes(subscription.key, topic, selector)
        self.budgets.check_bytes(subscription.session, size)
        self.budgets.enter(self.index, subscription, selector, pattern, size)
        if subscription.slot >= len(self._by_slot):
            self._by_slot.extend([None] * (subscription.slot + 1 - len(self._by_slot)))
        self._by_slot[subscription.slot] = subscription
        if self.relay is not None:
            self.relay.subscribed(subscription.number, topic, selector)
        subscription.selector = "" if selector is None else str(selector)
        if not subscription.retains:
            principal, text = subscription.session.principal, subscription.selector
            self.recorder.subscribed(subscription.number, principal, topic, text, now)

    def leave_index(self, subscription: Subscription, now: int) -> None:
        """From now on no message matches a subscription."""
        self.index.remove(subscription.number)
        self.budgets.remove(subscription)
        self._by_slot[subscription.slot] = None
        if self.relay is not None:
            self.relay.unsubscribed(subscription.number)
        self.recorder.unsubscribed(subscription.number, now)

    def move_to(self, subscription: Subscription, session: Session) -> None:
        """A subscription changes its session; what it costs counts for the new one."""
        size, work = subscription.bytes, subscription.work
        self.budgets.remove(subscription)
        subscription.session = session
        self.budgets.add(subscription, size, work)

    def release_publishers(self, subscription: Subscription, outbox: Outbox) -> None:
        """Those who were paused for a subscription go on."""
        self._deliveries.release_publishers(subscription, outbox)

    def unsubscribe(self, session: Session, key: str, now: int, deletes: bool = False) -> Outbox:
        """End a subscription; a durable one stays without its client, unless this `deletes` it.

        Raises:
            BrokerError: the session has no such subscription.
        """
        subscription = session.subscriptions.get(key)
        if subscription is None:
            raise BrokerError(f"this session has no subscription {key!r}")
        outbox = Outbox()
        if subscription.queue is not None:
            assert self.queues is not None
            self.queues.left([subscription], outbox, now)
        elif subscription.durable is None:
            self._end_subscription(subscription, "unsubscribed", outbox, now)
        else:
            assert self.durables is not None
            self.durables.left(subscription)
            if deletes:
                self.durables.delete(subscription, "unsubscribed", outbox, now)
        return outbox

    def delete_durable(self, session: Session, name: tuple[str, str], now: int) -> Outbox:
        """End a durable subscription that the session does not have at the moment.

        Raises:
            BrokerError: there is none of this name, or it belongs to another principal.
        """
        found = None if self.durables is None else self.durables.find(*name)
        if found is None or found.session.principal != session.principal:
            raise BrokerError(f"there is no durable subscription {name[1]!r} of client {name[0]!r}")
        assert self.durables is not None
        outbox = Outbox()
        self.durables.delete(found, "unsubscribed", outbox, now)
        return outbox

    def _end_subscription(self, subscription: Subscription, reason: str, outbox: Outbox, now: int) -> None:
        if subscription.remote is not None:
            assert self.peers is not None
            self.peers.consumers.left(subscription, outbox, now)
            return
        self.leave_index(subscription, now)
        if subscription.replays:
            self.replays.ended(subscription)
        del subscription.session.subscriptions[subscription.key]
        if subscription.policy is OverflowPolicy.PUSH_BACK and subscription.ack_mode is not AckMode.AUTO:
            subscription.session.must_acknowledge -= 1
        self._deliveries.ended(subscription, reason, outbox, now)

    # --- the way of a message ----------------------------------------------------------------------------------------

    def receive(self, batch: Batch, source: Session, now: int, queued: bool = False) -> Outbox:
        """Take a batch from a local publisher: stamp ids, match, and deliver or enqueue.

        The ids of the rows that the policy lets in are set when this returns; the others stay as they were. With
        `queued`, some rows may be for queues.

        Raises:
            BrokerError: a queue cannot be made.
        """
        outbox = Outbox()
        if self.durables is not None and self.durables.refuses(batch, outbox):
            return outbox
        whole, allowed, admitted = batch, self._policy.may_publish(source.principal, batch), None
        if allowed is not None:
            batch = batch.take(allowed)
            outbox.refused = len(whole) - len(batch)
        if queued:
            if self.queues is None:
                raise BrokerError("this broker has no store, so it has no queues (setting store)")
            admitted = self.queues.admit(batch, source, outbox, now)
            if outbox.unstorable:
                return outbox
        self._identify(batch, source, now)
        if allowed is not None:
            whole.ids[allowed] = batch.ids
        count = len(batch)
        if not count:
            return outbox
        self.recorder.accepted(batch, now)
        if self.alias_attribute is not None:
            record_aliases(self.recorder, batch, self.alias_attribute, now)
        self._accepted += count
        source.accepted += count
        if admitted:
            assert self.queues is not None
            batch = self.queues.enqueue(batch, admitted, source, outbox, now)
        if len(batch):
            self.take_up(Work(batch, source), outbox, now)
        return outbox

    def take_up(self, work: Work, outbox: Outbox, now: int) -> None:
        """Match rows and hand them on, as far as one turn goes; the rest, and all that follows it, has to wait."""
        # Asked of an attribute first: with small reads, each call here is felt.
        waits = self._turns.messages and self._turns.has(work.origin)
        done = 0 if waits else self._advance(work, outbox, now)
        if done < len(work.batch):
            # Recorded at once: a crash before their turn would otherwise leave rows that arrived and matched nothing.
            self.recorder.dropped(work.batch, np.arange(done, len(work.batch)), 0, Detour.DEFERRED, now)
            self._turns.push(work, done)
            if work.source is not None:
                if not work.source.paused:
                    outbox.pauses.append(work.source.number)
                work.source.unfinished = True
            while self._turns.bytes > MAX_UNFINISHED_BYTES:
                self._go_on(outbox, now)

    @property
    def unfinished(self) -> bool:
        """Whether `proceed` has something to do."""
        replays = self._replays
        return bool(self._turns) or (replays is not None and bool(replays.line) and replays.is_ready)

    def proceed(self, now: int) -> Outbox:
        """One more turn for what was too much work before."""
        outbox = Outbox()
        self._deliveries.pay_owed(outbox, now, self.turn_budget)
        self._go_on(outbox, now)
        for subscription in () if self._replays is None else self._replays.proceed(now):
            self._deliveries.go_on(subscription, outbox, now)
        return outbox

    def _go_on(self, outbox: Outbox, now: int) -> None:
        work = self._turns.pull()
        if work is None:
            return
        done = self._advance(work, outbox, now)
        self.recorder.dropped(work.batch, np.arange(done), 0, Detour.RESUMED, now)
        if done < len(work.batch):
            self._turns.push(work, done, first=True)
            return
        if work.consignment is not None:
            work.consignment.release()
        source = work.source
        if source is not None and not self._turns.has(work.origin):
            source.unfinished = False
            if not source.paused and self._sessions.get(source.number) is source:
                outbox.resumes.append(source.number)

    def _advance(self, work: Work, outbox: Outbox, now: int) -> int:
        """Match the first rows and hand them on; how many they were."""
        matched = offsets, slots = self.index.match(work.batch, self.turn_budget)
        done = len(offsets) - 1
        part = work if done == len(work.batch) else work.part(0, done)
        if part.source is None:
            assert self.relay is not None
            self.relay.deliver(part, matched, outbox, now)
        elif self.relay is not None:
            self.relay.publish(part.batch, matched, part.source, outbox, now)
        else:
            self.count_unmatched(unmatched(self.wanted(offsets, slots)))
            self.hand_out(part.batch, offsets, slots, part.source, outbox, now)
        return done

    def receive_identified(
        self, batch: Batch, source: Session, now: int, together: bool = False, queued: bool = False
    ) -> tuple[Outbox, IdAdmission]:
        """Take a batch whose ids its publisher has given; `assigns_ids` came before.

        What it sends again is left out. A row that it may not send is refused with all that follow it; with `together`
        all rows are. With `queued`, some rows may be for queues.
        """
        publisher = source.assigning
        if publisher is None:
            raise BrokerError("this session does not give ids (any more); it cannot publish with ids of its own")
        if not len(batch):
            return Outbox(), IdAdmission(0, 0)
        admission = publisher.admit(batch.ids, now, self.skew_tolerance_ms)
        self._resent += admission.resent
        self._ids_skewed += admission.skewed
        if admission.end == admission.resent or (together and admission.refusal is not None):
            return Outbox(), admission
        whole = admission.end - admission.resent == len(batch)
        entering = batch if whole else batch.take(np.arange(admission.resent, admission.end))
        last = int(entering.ids[-1, 1])
        if publisher.restored and self.store is not None and (stored := self.store.stored_before(entering.ids)).any():
            # It entered before this process began, and was stored.
            self._resent += int(stored.sum())
            entering = entering.take(~stored)
        outbox = self.receive(entering, source, now, queued) if len(entering) else Outbox()
        if outbox.unstorable:
            return outbox, admission
        publisher.last = last
        return outbox, admission

    def hand_out(
        self,
        batch: Batch,
        offsets: NDArray[np.int64],
        slots: NDArray[np.int32],
        source: Session | None,
        outbox: Outbox,
        now: int,
        consignment: Consignment | None = None,
    ) -> None:
        """Give each local subscription the rows that matched it; `source` is None for what came over a link.

        The consignment that the rows came in, if any, hears when rows that have to wait leave their queues.
        """
        expires, deliveries = any_expires(batch.envelopes), self._deliveries
        stored = deliveries.stored
        repeated = stored.repeats(batch) if source is None and stored is not None and len(stored.recent) else None
        for slot, rows in self._grouping.by_slot(offsets, slots, len(self._by_slot)):
            subscription = self._by_slot[slot]
            assert subscription is not None
            if repeated is not None and (subscription.durable is not None or subscription.retains):
                assert stored is not None
                stored.repeated += int(repeated[rows].sum())
                rows = rows[~repeated[rows]]
            if expires:
                rows = deliveries.unexpired(subscription, batch, rows, now)
            deliveries.hand_over(subscription, batch, rows, source, outbox, now, consignment)
        if stored is not None and stored.is_storing:
            deliveries.flush_stored(batch, source, outbox, now, consignment)
            if outbox.stops:
                assert self.durables is not None
                self.durables.stop(outbox.stops, now)
                outbox.stops = []

    def note_aliases(self, batch: Batch, aliases: Iterable[tuple[int, str]], now: int) -> None:
        """Rows of a batch that was received have names in other systems; a row that was refused has no id."""
        for row, alias in aliases:
            head, tail = batch.ids[row].tolist()
            if tail:
                self.recorder.aliased(alias, head, tail, now)

    def wanted(self, offsets: NDArray[np.int64], slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """The offsets of a match without what only retention wants."""
        return offsets if self._retentions is None else self._retentions.left_out(offsets, slots)

    def count_unmatched(self, messages: int) -> None:
        """Count messages that entered here and matched no subscription."""
        self._matched_nobody += messages

    def _identify(self, batch: Batch, source: Session, now: int) -> None:
        batch.envelopes[:, SOURCE] = self.number
        if source.assigning is not None:
            return
        if source.publisher is None:
            number = self._numbers.take()
            source.publisher = IdGenerator(number, self.number)
            self.recorder.publishes(number, source.principal, now)
        if len(batch):
            batch.run = source.publisher.give(batch.ids, now)

    # --- flow --------------------------------------------------------------------------------------------------------

    def congested(self, session: Session) -> None:
        """The session's connection takes no more for now."""
        session.congested = True

    def drained(self, session: Session, now: int) -> Outbox:
        """The session's connection takes more again: hand out what waited, one turn's worth."""
        session.congested = False
        outbox = Outbox()
        self._deliveries.drain_session(session, outbox, now)
        return outbox

    # --- the store ---------------------------------------------------------------------------------------------------

    def open_store(self, store: Log, recent: NDArray[np.uint64], now: int) -> list[str]:
        """Use a store from now on, and take up the durable subscriptions in it; returns what could not be.

        `recent` are ids that are stored already, and that neighbours may send again.
        The driver commits and reads for the store, and calls `stored` after either.
        """
        self._deliveries.stored = StoredQueues(store, self.recorder)
        self._deliveries.stored.remember(recent)
        stored = self._deliveries.stored
        self._retentions = Retentions(self, stored)
        self._replays = Replays(
            stored, self._retentions, self.recorder, self.skew_tolerance_ms, self.turn_budget, self.index_secret
        )
        problems = self._retentions.restore(now)
        self.redeliveries = Redeliveries(self.queue_settings, store)
        self.queues = self._deliveries.queues = NamedQueues(self, self._deliveries, self.redeliveries)
        self.queues.restore(now)
        self.durables = self._deliveries.durables = Durables(self, stored)
        problems += self.durables.restore(now)
        self.homes.dead_letter = self.queue_settings.dead_letter
        if self.homes.home is not None:
            self.peers = self._deliveries.peers = Peers(self, self._deliveries, now)
            self.peers.restore(now)
        return problems

    @property
    def retentions(self) -> Retentions:
        """The retained topics.

        Raises:
            BrokerError: this broker has no store.
        """
        if self._retentions is None:
            raise BrokerError("this broker has no store, so it retains nothing (setting store)")
        return self._retentions

    @property
    def replays(self) -> Replays:
        """The subscriptions that begin in the past.

        Raises:
            BrokerError: this broker has no store.
        """
        if self._replays is None:
            raise BrokerError("this broker has no store, so it cannot replay anything (setting store)")
        return self._replays

    @property
    def store(self) -> StoredQueues | None:
        """What subscriptions have in the store; None without one."""
        return self._deliveries.stored

    def stored(self, now: int) -> Outbox:
        """The store has written or read something: continue what waited for that."""
        outbox = Outbox()
        self._deliveries.proceed_stored(outbox, now)
        if self.peers is not None:
            self.peers.stored(now)
        self.replays.read()
        return outbox

    def redeliver(self, now: int) -> Outbox:
        """Hand out what came back, and whose time has come; `Redeliveries.due` says when that is."""
        outbox = Outbox()
        if self.redeliveries is None or self.queues is None or self.durables is None:
            return outbox
        for cursor, places in self.redeliveries.take_due(now).items():
            if not self.queues.due(cursor, places, outbox, now):
                subscription = self.durables.due(cursor)
                if subscription is not None:
                    self._deliveries.drain(subscription, self.limits.drain_messages, outbox, now)
        return outbox

    # --- queues ------------------------------------------------------------------------------------------------------

    def offer(self, subscription: Subscription, now: int) -> Outbox:
        """Hand out what waits in the queue of a new consumer."""
        outbox = Outbox()
        self._deliveries.drain(subscription, self.limits.drain_messages, outbox, now)
        return outbox

    def has_waiting(self, session: Session) -> bool:
        """Whether `drained` would have more to hand out."""
        return self._deliveries.has_waiting(session)

    def pause_for_link(self, session: int, link: int, outbox: Outbox) -> None:
        """A link that a session publishes to is full: the session waits."""
        publisher = self._sessions.get(session)
        if publisher is None or link in publisher.full_links:
            return
        if not publisher.paused:
            outbox.pauses.append(session)
        publisher.full_links.add(link)

    def resume_for_link(self, link: int, outbox: Outbox) -> None:
        """A link has room again: those who waited for it go on, unless something else keeps them."""
        for number, session in self._sessions.items():
            if link in session.full_links:
                session.full_links.discard(link)
                if not session.paused:
                    outbox.resumes.append(number)

    def acknowledge(
        self, session: Session, key: str, head: int, tail: int, positive: bool, now: int, requeues: bool = True
    ) -> Outbox:
        """A client acknowledges a message (or refuses it); in mode `client`, all earlier ones with it.

        Unless it `requeues`, no consumer gets what it refuses again.

        Raises:
            BrokerError: no such subscription, or the message does not wait for an acknowledgement.
        """
        subscription = session.subscriptions.get(key)
        if subscription is None:
            raise BrokerError(f"acknowledgement for subscription {key!r}, which this session does not have")
        self._deliveries.acknowledge(subscription, head, tail, positive, now, requeues)
        outbox = Outbox()
        self._go_on_after(subscription, outbox, now)
        return outbox

    def settle(self, session: Session, settlements: Iterable[Settlement], now: int) -> Outbox:
        """A client acknowledges or refuses many messages at once; those that no longer wait for that are left out."""
        outbox = Outbox()
        for settlement in settlements:
            waiting = settlement.subscription.unacknowledged
            messages = [each for each in settlement.messages if each in waiting]
            if messages and session.subscriptions.get(settlement.subscription.key) is settlement.subscription:
                self._deliveries.settle(settlement._replace(messages=messages), now)
                self._go_on_after(settlement.subscription, outbox, now)
        return outbox

    def _go_on_after(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        """Hand out what acknowledgements let through."""
        session = subscription.session
        if subscription.queue is not None and self._in_turns:
            assert self.queues is not None
            self.queues.dispatch.owe(subscription)
        elif subscription.queue is None and session.congested:
            return
        elif subscription.cursor is not None and self._in_turns:
            # What is stored goes out when all acknowledgements of this read are counted, not row by row.
            self._turns.owe(session)
        else:
            # The whole window: a client may wait for all of it before it acknowledges again.
            self._deliveries.drain(subscription, self.limits.unacknowledged, outbox, now)

    # --- what it holds -----------------------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """The sessions there are, oldest first."""
        return list(self._sessions.values())

    def take_overflowed(self) -> set[Subscription]:
        """The subscriptions whose queues were full since the last call, except those that have ended."""
        deliveries = self._deliveries
        taken, deliveries.overflowed = deliveries.overflowed, set()
        return taken

    def statistics(self) -> BrokerStatistics:
        """Counts for people and for metrics."""
        subscriptions = [each for session in self._sessions.values() for each in session.subscriptions.values()]
        durable = [] if self.durables is None else self.durables.listed()
        away = [each for each in durable if not each.session.number]
        queues = [] if self.queues is None else self.queues.listed()
        index = self.index.statistics()
        return BrokerStatistics(
            sessions_now=len(self._sessions),
            subscriptions_now=len(subscriptions),
            waiting_messages_now=sum(each.waiting.messages for each in subscriptions),
            stored_messages_now=sum(each.waiting.stored for each in [*subscriptions, *away]),
            retained_messages_now=0 if self._retentions is None else self._retentions.rows,
            replays_now=0 if self._replays is None else len(self._replays),
            durable_now=len(durable),
            durable_away_now=len(away),
            queues_now=len(queues),
            consumers_now=sum(len(each.consumers) for each in queues),
            queued_messages_now=sum(each.holder.waiting.stored for each in queues),
            waiting_bytes_now=sum(each.waiting.bytes for each in subscriptions),
            unacknowledged_now=sum(len(each.unacknowledged) for each in subscriptions),
            paused_publishers_now=sum(session.paused for session in self._sessions.values()),
            accepted=self._accepted,
            delivered=self._deliveries.delivered,
            matched_nobody=self._matched_nobody,
            shed_queue_full=self._deliveries.shed_full,
            shed_session_closed=self._deliveries.shed_closed,
            shed_expired=self._deliveries.shed_expired,
            shed_stored=0 if self.store is None else self.store.shed,
            acknowledged=self._deliveries.acknowledged,
            refused=self._deliveries.refused,
            redelivered=0 if self.redeliveries is None else self.redeliveries.count,
            dead_lettered=0 if self.queues is None else self.queues.returns.dead_lettered,
            ids_skewed=self._ids_skewed,
            resent=self._resent,
            publishers_away_now=self._assigning.away,
            index_constraints_now=index.constraints,
            index_bytes_now=index.bytes,
            subscription_bytes_now=self.budgets.bytes,
            matching_work_now=self.budgets.work,
            unfinished_messages_now=self._turns.messages,
        )
