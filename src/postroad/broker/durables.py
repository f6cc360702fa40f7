"""Durable subscriptions: they have a name, outlive their sessions and the broker's process, and miss nothing.

Rule 1: a durable subscription is named by a client and a name of its own, and belongs to the principal that made it.
Rule 2: it is in the index from its SUBSCRIBE until it is deleted. Matching messages are stored, whether its client is
    connected or not, and delivered from the store.
Rule 3: at most one session has it at a time. Another session of the same principal takes it over.
Rule 4: with another topic or selector it is the same subscription: messages that matched before stay. What other
    brokers have accepted before they learned of the change is matched as before (`former_versions`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.broker.errors import BrokerError
from postroad.broker.former_versions import FormerVersion, FormerVersions
from postroad.broker.named_queues import is_queue
from postroad.broker.outgoing_queue import is_outgoing, is_remote_interest
from postroad.broker.queue_returns import given_up_because
from postroad.broker.reception import is_reception
from postroad.broker.replays import ReplayTerms  # noqa: TC001 - msgspec reads the annotation
from postroad.broker.retentions import is_retention
from postroad.broker.sessions import NO_PREFETCH, AckMode, OverflowPolicy, Session, Subscription
from postroad.broker.standing_interest import is_standing
from postroad.broker.stored_queues import Discard
from postroad.errors import PostroadError
from postroad.messages.headers import escape
from postroad.selectors import Selector, TopicPattern, check_topic
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.broker.core import Broker
    from postroad.broker.outbox import Outbox
    from postroad.broker.replays import ReplayStart
    from postroad.broker.stored_queues import StoredQueues
    from postroad.messages import Batch

__all__ = ["MAX_DURABLES", "MAX_NAME_BYTES", "DurableTerms", "Durables"]

# Names are kept in the store, in every checkpoint of it.
MAX_NAME_BYTES = 255
# A durable subscription outlives its client: without a bound, clients with ever new names would fill the index. Each
# takes some kilobytes.
MAX_DURABLES = 10_000
# So that one login does not take all of them.
MAX_DURABLES_PER_PRINCIPAL = 1_000
# Whose cursors are in the same store.
_OTHERS = (is_retention, is_queue, is_outgoing, is_remote_interest, is_reception, is_standing)


class DurableTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a durable subscription.

    Attributes:
        client: the client's name for itself.
        name: the client's name for the subscription.
        principal: who made it.
        topic: what it wants.
        selector: as the policy let it pass; empty for none.
        created: when, in ms.
        deleted: why it is over; what waits for it is being given up.
        stopped: when it exceeded its limit and stopped matching, in ms; 0 while it matches.
        replay: how much of its history has been read.
        replayed: when more history last began to wait, in ms; 0 if it began without history.
        since: the first state of the standing interest in which it wants this; 0 for all. One that begins in the past
            wants what others accepted before they knew of it, too: it is not in the history yet.
        formers: what it wanted before, oldest first, as far as something of it may still come.
    """

    client: str
    name: str
    principal: str
    topic: str
    selector: str = ""
    created: int = 0
    deleted: str = ""
    stopped: int = 0
    replay: ReplayTerms | None = None
    replayed: int = 0
    since: int = 0
    formers: tuple[FormerVersion, ...] = ()


class Durables:
    """The durable subscriptions of a broker.

    Args:
        core: the broker.
        stored: its store.

    Attributes:
        formers: what they wanted before.
    """

    def __init__(self, core: Broker, stored: StoredQueues) -> None:
        self._core = core
        self.formers = FormerVersions(core)
        self._stored = stored
        self._retentions = core.retentions
        self._named: dict[tuple[str, str], Subscription] = {}
        # Those that have refused something, by the number of their cursor.
        self._refusing: dict[int, Subscription] = {}

    def __len__(self) -> int:
        return len(self._named)

    def listed(self) -> list[Subscription]:
        """Return all of them, oldest first."""
        return sorted(self._named.values(), key=lambda each: each.number)

    def find(self, client: str, name: str) -> Subscription | None:
        """Return the one of this name."""
        return self._named.get((client, name))

    def refuses(self, batch: Batch, outbox: Outbox) -> bool:
        """Return whether a batch must not enter because it cannot be stored as needed; the outbox says why."""
        # Called for every batch: the cheapest checks first.
        retentions, peers = self._retentions, self._core.peers
        remote = None if peers is None else peers.remote_durables
        if not (self._named or retentions.topics or remote) or not (refusal := self._stored.refusal_of(batch)):
            return False
        offsets, slots = self._core.index.match(batch, self._core.turn_budget)
        wanting = {each.slot for each in self._named.values() if each.durable and not each.durable.stopped}
        elsewhere = remote.slots if remote else set()
        if (wanting | retentions.slots() | elsewhere).isdisjoint(slots.tolist()):
            if len(offsets) - 1 == len(batch):
                return False
            # The rest would take longer than a turn, and may hold rows that cannot be stored.
            outbox.unstorable = f"it takes too long to tell whether this must be stored, and it could not be: {refusal}"
            return True
        outbox.unstorable = f"a durable subscription or a retained topic wants this, and it cannot be stored: {refusal}"
        return True

    # --- a new process -----------------------------------------------------------------------------------------------

    def restore(self, now: int) -> list[str]:
        """Restore what an earlier process left; return what could not be restored, in words."""
        problems = []
        for cursor in list(self._stored.log.cursors.values()):
            if any(is_others(cursor.terms) for is_others in _OTHERS):
                continue
            try:
                terms = msgspec.msgpack.decode(cursor.terms, type=DurableTerms)
                subscription = self._away(cursor.number, terms)
                subscription.cursor = cursor
                subscription.waiting.stored = cursor.waiting.count
                if terms.deleted:
                    self._discard_all(subscription, terms.deleted)
                    continue
                self.formers.enter(subscription)
                if terms.stopped:
                    # Nothing new matches it; the history that it asked for before is still delivered.
                    self._named[terms.client, terms.name] = subscription
                else:
                    self._enter(subscription, Selector.parse(terms.selector) if terms.selector else None, now)
                if terms.replay is not None:
                    self._core.replays.begin(subscription, terms.replay)
            except (msgspec.DecodeError, PostroadError) as error:
                problems.append(f"the durable subscription {cursor.number} cannot be taken up: {error}")
        return problems

    def _away(self, number: int, terms: DurableTerms) -> Subscription:
        """Return the subscription without its client: in a session of its own that takes nothing."""
        session = Session(0, terms.principal)
        session.congested = True
        subscription = Subscription(number, session, terms.name, terms.topic, AckMode.AUTO, OverflowPolicy.SPOOL)
        subscription.durable = terms
        subscription.stores = True
        return subscription

    def _enter(self, subscription: Subscription, selector: Selector | None, now: int) -> None:
        assert subscription.durable is not None
        terms = subscription.durable
        self._core.residents.enter(subscription, selector, TopicPattern.parse(terms.topic), now)
        self._named[terms.client, terms.name] = subscription

    # --- sessions ----------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        session: Session,
        key: str,
        name: tuple[str, str],
        topic: str,
        selector: str,
        ack_mode: AckMode,
        now: int,
        outbox: Outbox,
        replay: ReplayStart | None = None,
    ) -> Subscription:
        """Give a durable subscription to a session; make it if there is none of this name.

        Only a new one begins in the past (`replay`); an existing one continues where it was.

        Raises:
            BrokerError: the name is not valid or belongs to another principal; a limit is reached; the policy refuses.
            LimitError: the index is full.
            SelectorError, TopicError: a text does not parse.
        """
        self._core.check_key(session, key)
        _check_name(*name)
        pattern = TopicPattern.parse(topic)
        wanted = self._core.allowed(session, topic, selector)
        subscription = self._named.get(name)
        if subscription is None:
            subscription = self._make(session, name, topic, wanted, now, replay)
        else:
            # In this order: what is refused leaves the subscription with the session that has it.
            self._check_owner(subscription, session)
            self._change(subscription, topic, pattern, wanted, now)
            self._take_from(subscription, outbox, now)
        self._attach(subscription, session, key, ack_mode)
        return subscription

    def _make(
        self,
        session: Session,
        name: tuple[str, str],
        topic: str,
        selector: Selector | None,
        now: int,
        replay: ReplayStart | None,
    ) -> Subscription:
        if len(self._named) >= MAX_DURABLES:
            raise BrokerError(
                f"this broker has {MAX_DURABLES:,} durable subscriptions, the limit (MAX_DURABLES); delete some that "
                "nobody needs (postroad subscriptions list)"
            )
        mine = sum(each.session.principal == session.principal for each in self._named.values())
        if mine >= MAX_DURABLES_PER_PRINCIPAL:
            raise BrokerError(
                f"{session.principal or 'clients without a login'} has {mine:,} durable subscriptions here, the limit "
                "(MAX_DURABLES_PER_PRINCIPAL); delete some (UNSUBSCRIBE with the headers of a durable subscription)"
            )
        if refusal := self._stored.refusal:
            raise BrokerError(f"no durable subscription can be made now: {refusal}")
        text = "" if selector is None else str(selector)
        terms = DurableTerms(
            client=name[0],
            name=name[1],
            principal=session.principal,
            topic=topic,
            selector=text,
            created=now,
            replay=None if replay is None else self._core.replays.terms(session, topic, selector, replay),
            replayed=0 if replay is None else now,
            since=self._next_state() if replay is None else 0,
        )
        subscription = self._away(self._core.take_subscription_number(), terms)
        self._enter(subscription, selector, now)
        self.formers.enter(subscription)
        subscription.cursor = self._stored.log.open_cursor(subscription.number, msgspec.msgpack.encode(terms))
        if terms.replay is not None:
            self._core.replays.begin(subscription, terms.replay)
        return subscription

    def _check_owner(self, subscription: Subscription, session: Session) -> None:
        terms = subscription.durable
        assert terms is not None
        if terms.principal != session.principal:
            raise BrokerError(
                f"the durable subscription {terms.name!r} of client {terms.client!r} belongs to "
                f"{terms.principal or 'a client without a login'}; choose another client-id or name"
            )
        if subscription.session is session:
            raise BrokerError(f"this session has the durable subscription {terms.name!r} already")

    def _take_from(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        """Take a subscription from the session that has it, if one does, and close that session."""
        terms, holder = subscription.durable, subscription.session
        assert terms is not None
        if holder.number:
            self.left(subscription, now)
            outbox.closes.append((holder.number, f"the durable subscription {terms.name!r} was taken over by another"))

    def _change(
        self, subscription: Subscription, topic: str, pattern: TopicPattern, selector: Selector | None, now: int
    ) -> None:
        """Change what the same subscription wants from now on; messages that matched before stay."""
        terms = subscription.durable
        assert terms is not None
        text = "" if selector is None else str(selector)
        if (terms.topic, terms.selector, terms.stopped) == (topic, text, 0):
            return
        if not terms.stopped:
            self._core.residents.leave(subscription, now)
        subscription.durable = changed = msgspec.structs.replace(terms, topic=topic, selector=text, stopped=0)
        subscription.topic = topic
        try:
            self._core.residents.enter(subscription, selector, pattern, now)
        except PostroadError:
            # It wants the same as before.
            subscription.durable, subscription.topic = terms, terms.topic
            if terms.stopped:
                raise
            before = Selector.parse(terms.selector) if terms.selector else None
            self._core.residents.enter(subscription, before, TopicPattern.parse(terms.topic), now)
            raise
        kept = self.formers.replaced(subscription, terms, self._next_state())
        changed = msgspec.structs.replace(changed, since=kept.since, formers=kept.formers)
        self._store(subscription, changed)

    def _next_state(self) -> int:
        """Return the state of the standing interest with which other brokers learn of a change; 0 if they do not."""
        standing = None if self._core.peers is None else self._core.peers.standing
        return 0 if standing is None else standing.change()

    def _store(self, subscription: Subscription, terms: DurableTerms) -> None:
        assert subscription.cursor is not None
        subscription.durable = terms
        self._stored.log.change_cursor(subscription.cursor, msgspec.msgpack.encode(terms))

    def forget_formers(self) -> None:
        """Forget what subscriptions wanted before, where nothing of it can come any more."""
        for subscription, terms in self.formers.forget():
            self._store(subscription, terms)

    def _attach(self, subscription: Subscription, session: Session, key: str, ack_mode: AckMode) -> None:
        cursor = subscription.cursor
        assert cursor is not None
        self._core.residents.move(subscription, session)
        subscription.key, subscription.ack_mode = key, ack_mode
        session.subscriptions[key] = subscription
        self._stored.log.attach(cursor)
        self._stored.block(subscription)
        self._core.replays.resume(subscription)

    def left(self, subscription: Subscription, now: int) -> None:
        """Take it from a session: messages that were sent and not acknowledged wait again."""
        terms, cursor, queues = subscription.durable, subscription.cursor, self._core.queues
        assert terms is not None
        assert cursor is not None
        assert queues is not None
        queues.returns.note_return(subscription.unacknowledged, now)
        del subscription.session.subscriptions[subscription.key]
        session = Session(0, terms.principal)
        session.congested = True
        self._core.residents.move(subscription, session)
        subscription.key = terms.name
        subscription.unacknowledged = {}
        subscription.prefetch = NO_PREFETCH
        self._recall(subscription)
        self._stored.log.detach(cursor)
        subscription.waiting.stored = self._stored.log.unread(cursor)

    def refused(self, subscription: Subscription, rows: Mapping[int, int], now: int, for_good: bool) -> None:
        """Deliver refused messages again after a while, but only a number of times.

        Args:
            subscription: whose they are.
            rows: their ids, as 128-bit integers, with their places.
            now: the time in ms.
            for_good: the client does not want them again.
        """
        terms, cursor, queues = subscription.durable, subscription.cursor, self._core.queues
        assert terms is not None
        assert cursor is not None
        assert queues is not None
        places = np.array(list(rows.values()), np.int64)
        _, exhausted = queues.redeliveries.came_back(cursor, places, now, refused=True, for_good=for_good)
        gone = set(exhausted.tolist())
        if gone:
            reason = given_up_because(queues.settings.max_deliveries, refused=True, for_good=for_good)
            who = escape(f"{terms.client}/{terms.name}")
            note = f"dead-letter-subscription:{who}\ndead-letter-reason:{reason}\n".encode()
            lost = {each: place for each, place in rows.items() if place in gone}
            queues.returns.give_up(cursor, _dead_letter_name(terms, cursor.number), lost, reason, note, now)
        queues.returns.note_return({each: place for each, place in rows.items() if place not in gone}, now)
        self._refusing[cursor.number] = subscription
        subscription.waiting.stored = self._stored.log.unread(cursor)

    def due(self, cursor: int) -> Subscription | None:
        """Return the subscription that can get refused messages again now that their time has come, if it can."""
        subscription = self._refusing.get(cursor)
        if subscription is None or subscription.cursor is None:
            return None
        subscription.waiting.stored = self._stored.log.unread(subscription.cursor)
        return None if subscription.session.congested else subscription

    def _recall(self, subscription: Subscription) -> None:
        """Let refused messages wait no longer for their time."""
        cursor = subscription.cursor
        assert cursor is not None
        if self._refusing.pop(cursor.number, None) is not None:
            assert self._core.redeliveries is not None
            self._core.redeliveries.recall(cursor)
            subscription.waiting.stored = self._stored.log.unread(cursor)

    # --- the end -----------------------------------------------------------------------------------------------------

    def delete(self, subscription: Subscription, reason: str, outbox: Outbox, now: int) -> int:
        """End a durable subscription; return how many messages waited for it, which are given up."""
        terms = subscription.durable
        assert terms is not None
        if subscription.session.number:
            self.left(subscription, now)
        self._core.replays.ended(subscription)
        if not terms.stopped:
            self._core.residents.leave(subscription, now)
        self.formers.leave(subscription)
        del self._named[terms.client, terms.name]
        self._core.release_publishers(subscription, outbox)
        return self._discard_all(subscription, reason)

    def _discard_all(self, subscription: Subscription, reason: str) -> int:
        terms, cursor = subscription.durable, subscription.cursor
        assert terms is not None
        assert cursor is not None
        # Store this first: a crash before all is given up must not bring it back.
        self._stored.log.change_cursor(cursor, msgspec.msgpack.encode(msgspec.structs.replace(terms, deleted=reason)))
        left = self._stored.log.unread(cursor)
        self._stored.discard(Discard(cursor, subscription.number, left, reason, ends=True))
        return left

    def stop(self, subscriptions: list[Subscription], now: int) -> None:
        """Stop subscriptions over their limit: no message matches them until their clients subscribe again."""
        for subscription in subscriptions:
            terms = subscription.durable
            assert terms is not None
            if not terms.stopped:
                self._core.residents.leave(subscription, now)
                kept = self.formers.replaced(subscription, terms, self._next_state())
                self._store(subscription, msgspec.structs.replace(kept, stopped=now))

    def purge(self, subscription: Subscription, reason: str) -> int:
        """Give up all that waits for it; return how many messages that is. What was sent stays with its client."""
        self._core.replays.ended(subscription)
        self._recall(subscription)
        return self._stored.purge(subscription, reason)

    def expire(self, now: int) -> None:
        """Give up messages that have waited longer than they may."""
        log = self._stored.log
        age = log.settings.max_age_seconds
        for subscription in self._named.values() if age else ():
            terms, cursor = subscription.durable, subscription.cursor
            assert terms is not None
            assert cursor is not None
            # History is old, but has only waited since it was read; newer messages could not be delivered before it.
            late = 0 if terms.replayed > now - 1_000 * age else log.older_than(cursor, now - 1_000 * age)
            if late and not self._stored.is_discarding(cursor):
                discard = Discard(cursor, subscription.number, late, Loss.TOO_OLD, ends=False, owner=subscription)
                self._stored.discard(discard)


def _dead_letter_name(terms: DurableTerms, number: int) -> str:
    """Return the name of the queue for messages that a subscription refuses, after the prefix of the settings.

    It is the subscription's own name, if that can be the name of a queue and no other subscription can have the same.
    """
    name = f"{terms.client}/{terms.name}"
    if name.count("/") == 1 and len(name.encode()) <= MAX_NAME_BYTES // 2:
        with contextlib.suppress(PostroadError):
            check_topic(name)
            return name
    return f"subscription-{number}"


def _check_name(client: str, name: str) -> None:
    for what, text in (("client-id", client), ("name", name)):
        if not text or len(text.encode()) > MAX_NAME_BYTES:
            raise BrokerError(f"the {what} of a durable subscription has 1 to {MAX_NAME_BYTES} bytes")
