"""The core of one broker: receives batches, matches them, gives them to subscriptions, and counts what it does.

No sockets, no clocks, no threads: time is an argument, and an `Outbox` says what to write. The driver tells the core
when a connection cannot take more (`congested`) and when it can again (`drained`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker.budgets import Budgets, estimated_bytes
from postroad.broker.deliveries import Deliveries
from postroad.broker.departures import Departures
from postroad.broker.durables import Durables
from postroad.broker.errors import BrokerError
from postroad.broker.given_ids import DEFAULT_SKEW_TOLERANCE_MS, IdAdmission
from postroad.broker.limits import Limits
from postroad.broker.matching_turns import MatchingTurns
from postroad.broker.named_queues import NamedQueues
from postroad.broker.no_recorder import NoRecorder
from postroad.broker.numbers import SubscriptionNumbers
from postroad.broker.outbox import Outbox
from postroad.broker.peers import Peers
from postroad.broker.publications import LocalPublications
from postroad.broker.queue_homes import QueueHomes
from postroad.broker.queues import Load
from postroad.broker.redeliveries import QueueSettings, Redeliveries
from postroad.broker.replays import Replays
from postroad.broker.residents import Residents
from postroad.broker.retentions import Retentions
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.statistics import statistics_of
from postroad.broker.stored_queues import StoredQueues
from postroad.broker.turns import Turns, Work
from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.matching.table_hash import FIXED_SECRET
from postroad.security import AllowAll, Refusal
from postroad.selectors import Selector, TopicPattern
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker.given_ids import AssigningPublisher
    from postroad.broker.no_recorder import Recorder
    from postroad.broker.numbers import PublisherNumbers
    from postroad.broker.relay import Relay
    from postroad.broker.replays import ReplayStart
    from postroad.broker.settlements import Settlement
    from postroad.broker.statistics import BrokerStatistics
    from postroad.messages import Batch
    from postroad.security import Policy
    from postroad.store import Log

__all__ = ["Broker"]


class Broker:
    """The core of one broker.

    Args:
        number: the broker's number in the plan; part of every id it stamps.
        numbers: gives publisher numbers.
        limits: what the broker keeps at most.
        policy: who may do what.
        recorder: keeps the record.
        subscription_numbers: gives subscription numbers; by default they count from 1.
        skew_tolerance_ms: how far the time of an id that a client gives may be from the broker's.
        index_secret: 64 random bits for the hash of the index, if clients are not trusted; no result depends on it.
        in_turns: whether batches that are much work are cut (`limits.turn_ms`). The driver then calls `proceed` for as
            long as the broker is `unfinished`.

    Attributes:
        waiting: what waits for all subscriptions together.
        budgets: what its subscriptions use up of its limits.
        index_secret: of its indexes.
        turn_budget: about how many nanoseconds matching may take in one turn.
        durables: the durable subscriptions; None without a store.
        queues: the queues; None without a store.
        queue_settings: how queues treat messages that return; must be set before the store is opened.
        homes: which broker has a queue.
        timer: milliseconds that only go forward, for time-outs between brokers; None for the time of each call.
        publications: takes what sessions publish.
        residents: the local subscriptions in the index.
        departures: ends subscriptions.
        matching: the work on incoming batches, in turns.
        replaying: the subscriptions that begin in the past; None without a store.
        peers: the queues of other brokers, and their use of the queues here; None outside a network, or without a
            store.
        redeliveries: messages that returned and wait for their time; None without a store.
        matched_nobody: messages that entered here and matched no subscription.
        alias_attribute: the attribute with a message's name in another system, to be recorded; none if empty.
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
        self._subscription_numbers = subscription_numbers or SubscriptionNumbers()
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
        self.replaying: Replays | None = None
        self.queues: NamedQueues | None = None
        self.redeliveries: Redeliveries | None = None
        self.queue_settings = QueueSettings()
        self.homes = QueueHomes(number)
        self.timer: Callable[[], int] | None = None
        self.peers: Peers | None = None
        self.alias_attribute: str | None = None
        self._sessions: dict[int, Session] = {}
        self._next_session = 1
        self.waiting = Load()
        self._deliveries = Deliveries(self.limits, self.recorder, self._sessions, self._turns if in_turns else None)
        self.publications = LocalPublications(self, numbers, self._policy)
        self.residents = Residents(self, self._deliveries)
        self.departures = Departures(self, self._deliveries, self._turns)
        self.matching = MatchingTurns(self, self._deliveries, self._turns)
        self.matched_nobody = 0

    def take_limits(self, limits: Limits) -> None:
        """Use new limits from now on, except `publishers_kept`; those who exceed them keep what they have."""
        self.limits = limits
        self.budgets.take_limits(limits)
        self._deliveries.take_limits(limits)
        self.turn_budget = limits.turn_ms * 1_000_000 if self._in_turns else NO_BUDGET

    # --- sessions and subscriptions ----------------------------------------------------------------------------------

    def attached(self, principal: str, *, is_guest: bool = False) -> Session:
        """Add the session of a client that has connected, or of a consumer at another broker.

        Consumers at other brokers never take the places of clients; their number is limited for each broker.

        Raises:
            BrokerError: the broker has as many sessions as it may.
        """
        guests = 0 if self.peers is None else len(self.peers.guests)
        if not is_guest and len(self._sessions) - guests >= self.limits.sessions:
            raise BrokerError(
                f"this broker has {self.limits.sessions:,} sessions, its limit (limits.sessions); try another one"
            )
        session = Session(self._next_session, principal, self.waiting)
        self._next_session += 1
        self._sessions[session.number] = session
        return session

    def assigns_ids(
        self, session: Session, token: str, now: int, was: tuple[int, str] | None = None
    ) -> tuple[AssigningPublisher, Outbox]:
        """Let a client give its messages their ids from now on (`LocalPublications.assigns_ids`)."""
        return self.publications.assigns_ids(session, token, now, was)

    def know_publishers_again(self, secret: Callable[[], bytes]) -> None:
        """Recognise publishers that give their own ids after a restart, by a secret that survives it."""
        self.publications.know_publishers_again(secret)

    def detached(self, session: Session, now: int, for_good: bool = False) -> Outbox:
        """Remove the session of a client: its subscriptions end, and what waited for them is shed and counted.

        With `for_good` the client has said goodbye, and will not return as the same publisher.
        """
        outbox = Outbox()
        if session.assigning is not None:
            self.publications.left(session.assigning, for_good)
        if self.queues is not None:
            consumers = [each for each in session.subscriptions.values() if each.queue is not None]
            self.queues.left(consumers, outbox, now)
        del self._sessions[session.number]
        self.departures.leave(session, outbox, now)
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
            BrokerError: the key is taken, the session has too many subscriptions, the policy refuses, or the history it
                wants is not retained.
            LimitError: the index is full.
            SelectorError, TopicError: a text does not parse.
        """
        self.check_key(session, key)
        pattern = TopicPattern.parse(topic)
        allowed = self.allowed(session, topic, selector)
        self.budgets.check_bytes(session, estimated_bytes(key, topic, allowed))
        history = None if replay is None else self.replays.terms(session, topic, allowed, replay)
        subscription = Subscription(self.take_subscription_number(), session, key, topic, ack_mode, policy)
        subscription.has_history = history is not None
        self.residents.enter(subscription, allowed, pattern, now)
        if history is not None:
            self.replays.begin(subscription, history)
        session.subscriptions[key] = subscription
        if policy is OverflowPolicy.PUSH_BACK and ack_mode is not AckMode.AUTO:
            session.must_acknowledge += 1
        return subscription

    def check_key(self, session: Session, key: str) -> None:
        """Refuse a further subscription of a session.

        Raises:
            BrokerError: the key is taken, or the session has too many.
        """
        if key in session.subscriptions:
            raise BrokerError(f"this session has a subscription {key!r} already; unsubscribe it or choose another id")
        if len(session.subscriptions) >= self.limits.subscriptions_per_session:
            limit = self.limits.subscriptions_per_session
            raise BrokerError(f"this session has {limit:,} subscriptions, the limit (limits.subscriptions_per_session)")

    def allowed(self, session: Session, topic: str, selector: str, queued: bool = False) -> Selector | None:
        """Return the selector that the policy lets a session subscribe with, to a topic or, if `queued`, a queue.

        Raises:
            BrokerError: the policy refuses.
            SelectorError: the text does not parse.
        """
        wanted = Selector.parse(selector) if selector.strip() else None
        allowed = self._policy.may_subscribe(session.principal, topic, wanted, queued)
        if isinstance(allowed, Refusal):
            destination = f"/queue/{topic}" if queued else topic
            raise BrokerError(f"subscription to {destination!r} refused: {allowed.reason}")
        if allowed is not None and allowed is not wanted:
            # What a policy has put together has to parse at other brokers and in later processes too.
            allowed = Selector.parse(str(allowed))
        return allowed

    def take_subscription_number(self) -> int:
        """Return a new number for a subscription."""
        return self._subscription_numbers.take()

    def release_publishers(self, subscription: Subscription, outbox: Outbox) -> None:
        """Resume the publishers that were paused for a subscription."""
        self._deliveries.release_publishers(subscription, outbox)

    def unsubscribe(self, session: Session, key: str, now: int, deletes: bool = False) -> Outbox:
        """End a subscription; a durable one continues without its client, unless this `deletes` it.

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
            self.departures.end(subscription, Loss.UNSUBSCRIBED, outbox, now)
        else:
            assert self.durables is not None
            self.durables.left(subscription, now)
            if deletes:
                self.durables.delete(subscription, Loss.UNSUBSCRIBED, outbox, now)
        return outbox

    def delete_durable(self, session: Session, name: tuple[str, str], now: int) -> Outbox:
        """End a durable subscription that the session does not use at the moment.

        Raises:
            BrokerError: there is none of this name, or it belongs to another principal.
        """
        found = None if self.durables is None else self.durables.find(*name)
        if found is None or found.session.principal != session.principal:
            raise BrokerError(f"there is no durable subscription {name[1]!r} of client {name[0]!r}")
        assert self.durables is not None
        self.durables.delete(found, Loss.UNSUBSCRIBED, outbox := Outbox(), now)
        return outbox

    # --- the way of a message ----------------------------------------------------------------------------------------

    def receive(self, batch: Batch, source: Session, now: int, queued: bool = False) -> Outbox:
        """Take a batch from a local publisher: stamp ids, match, and deliver or enqueue (`LocalPublications.receive`).

        Raises:
            BrokerError: a queue cannot be made.
        """
        return self.publications.receive(batch, source, now, queued)

    def receive_identified(
        self, batch: Batch, source: Session, now: int, together: bool = False, queued: bool = False
    ) -> tuple[Outbox, IdAdmission]:
        """Take a batch whose publisher has given the ids (`LocalPublications.receive_identified`)."""
        return self.publications.receive_identified(batch, source, now, together, queued)

    def take_up(self, work: Work, outbox: Outbox, now: int) -> None:
        """Match rows and pass them on, as far as one turn goes; the rest, and all that follows it, waits."""
        self.matching.take_up(work, outbox, now)

    @property
    def unfinished(self) -> bool:
        """Return whether `proceed` has something to do."""
        return self.matching.unfinished

    def proceed(self, now: int, outbox: Outbox | None = None) -> Outbox:
        """Do one more turn of what was too much work before (`MatchingTurns.proceed`)."""
        return self.matching.proceed(now, outbox)

    def matched_here(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the slots of local subscriptions that want each of the first rows, as far as one turn goes."""
        offsets, slots = self.index.match(batch, self.turn_budget)
        return (offsets, slots) if self.relay is None else self.relay.interests.local(offsets, slots)

    def wanted(self, offsets: NDArray[np.int64], slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the offsets of a match without those that only retention wants."""
        retentions = self._retentions
        return retentions.left_out(offsets, slots) if retentions is not None and retentions.topics else offsets

    # --- flow --------------------------------------------------------------------------------------------------------

    def congested(self, session: Session) -> None:
        """Note that the session's connection takes no more for now."""
        session.congested = True

    def drained(self, session: Session, now: int) -> Outbox:
        """Deliver what waited for a session whose connection takes more again, one turn's worth."""
        session.congested = False
        outbox = Outbox()
        self._deliveries.drain_session(session, outbox, now)
        return outbox

    # --- the store ---------------------------------------------------------------------------------------------------

    def open_store(self, store: Log, recent: NDArray[np.uint64], now: int) -> list[str]:
        """Use a store from now on, and restore the durable subscriptions in it; return what could not be restored.

        `recent` are ids that are already stored, and that neighbours may send again. The driver commits and reads for
        the store, and calls `stored` after either.
        """
        self._deliveries.stored = StoredQueues(store, self.recorder)
        self._deliveries.stored.remember(recent)
        stored = self._deliveries.stored
        if self.homes.home is not None:
            self.peers = self._deliveries.peers = Peers(self, self._deliveries, now)
        self._retentions = Retentions(self, stored)
        self.replaying = Replays(stored, self._retentions, self.recorder, self.turn_budget, self.index_secret)
        problems = self._retentions.restore(now)
        self.redeliveries = Redeliveries(self.queue_settings, store)
        self.queues = self._deliveries.queues = NamedQueues(self, self._deliveries, self.redeliveries)
        self.queues.restore(now)
        self.durables = self._deliveries.durables = Durables(self, stored)
        problems += self.durables.restore(now)
        self.homes.dead_letter = self.queue_settings.dead_letter
        if self.peers is not None:
            self.peers.restore(now)
        return problems

    @property
    def retentions(self) -> Retentions:
        """Return the retained topics.

        Raises:
            BrokerError: this broker has no store.
        """
        if self._retentions is None:
            raise BrokerError("this broker has no store, so it retains nothing (setting store)")
        return self._retentions

    @property
    def replays(self) -> Replays:
        """Return the subscriptions that begin in the past.

        Raises:
            BrokerError: this broker has no store.
        """
        if self.replaying is None:
            raise BrokerError("this broker has no store, so it cannot replay anything (setting store)")
        return self.replaying

    @property
    def store(self) -> StoredQueues | None:
        """Return what subscriptions have in the store; None without one."""
        return self._deliveries.stored

    def stored(self, now: int) -> Outbox:
        """Continue what waited for the store: it has written or read something."""
        outbox = Outbox()
        self._deliveries.proceed_stored(outbox, now)
        if self.peers is not None:
            self.peers.stored(now)
        self.replays.read()
        return outbox

    def redeliver(self, now: int) -> Outbox:
        """Deliver again what returned and whose time has come; `Redeliveries.due` says when that is."""
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
        """Deliver what waits in the queue of a new consumer."""
        outbox = Outbox()
        self._deliveries.drain(subscription, self.limits.drain_messages, outbox, now)
        return outbox

    def has_waiting(self, session: Session) -> bool:
        """Return whether `drained` would have more to deliver."""
        return self._deliveries.has_waiting(session)

    def acknowledge(
        self, session: Session, key: str, head: int, tail: int, positive: bool, now: int, requeues: bool = True
    ) -> Outbox:
        """Acknowledge or refuse a message for a client; in mode `client`, also all earlier ones.

        Unless it `requeues`, no consumer gets a refused message again.

        Raises:
            BrokerError: the subscription does not exist, or the message does not wait for an acknowledgement.
        """
        subscription = session.subscriptions.get(key)
        if subscription is None:
            raise BrokerError(f"acknowledgement for subscription {key!r}, which this session does not have")
        outbox = Outbox()
        acknowledgements = self._deliveries.acknowledgements
        acknowledgements.acknowledge(subscription, head, tail, positive, now, requeues)
        acknowledgements.deliver_next(subscription, outbox, now)
        return outbox

    def settle(self, session: Session, settlements: Iterable[Settlement], now: int) -> Outbox:
        """Acknowledge or refuse many messages at once; those that no longer wait for it are left out."""
        outbox = Outbox()
        self._deliveries.acknowledgements.settle_all(session, settlements, outbox, now)
        return outbox

    # --- what it holds -----------------------------------------------------------------------------------------------

    def session(self, number: int) -> Session | None:
        """Return the session of a number, if there is one."""
        return self._sessions.get(number)

    def sessions(self) -> list[Session]:
        """Return the sessions, oldest first."""
        return list(self._sessions.values())

    def take_overflowed(self) -> set[Subscription]:
        """Return the subscriptions whose queues were full since the last call, except those that have ended."""
        deliveries = self._deliveries
        taken, deliveries.overflowed = deliveries.overflowed, set()
        return taken

    def statistics(self) -> BrokerStatistics:
        """Return counts for people and for metrics."""
        return statistics_of(self, self._deliveries, self.matched_nobody, self._turns.messages)
