"""What durable subscriptions wanted before: messages that others accepted then still come, and are matched against it.

A *version* of a subscription is its topic and selector, from one state of the standing interest to before another
(`standing_interest`). Another broker accepts a message under the state that it knows, and says which one it was when it
puts the message here.

Rule 1: a message that is put here is for the subscriptions whose version of that state wants it. Where its broker knows
    only that it was one of several states, it is for those that wanted it in any of them.
Rule 2: a version is kept for as long as something of its states may come. They are stored with their subscription.
    After that, the next version counts for its states: what comes all the same is of a broker with an older store.
Rule 3: messages that were accepted under the latest change, or after it, cost nothing more for that. Others are matched
    once more, against the former versions alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.budgets import NANOSECONDS, estimated_bytes
from postroad.broker.row_groups import Grouping
from postroad.errors import PostroadError
from postroad.matching import SubscriptionIndex
from postroad.selectors import Selector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.core import Broker
    from postroad.broker.durables import DurableTerms
    from postroad.broker.sessions import Subscription
    from postroad.messages import Batch

    Rows = NDArray[np.int64]

__all__ = ["FormerVersion", "FormerVersions", "PutMatch"]

# Former versions of one subscription. Only those count of which something may still come, so it takes a broker that
# learns of that many changes and cannot put what it accepts in between.
MAX_FORMERS = 16
# They may take this part of `limits.subscription_bytes` besides, so that nobody's subscriptions are refused for them.
FORMER_SHARE = 4
# Those of one principal may take this part of that, and of `limits.matching_ms`, so that nobody's versions are dropped
# because somebody else changes thousands of subscriptions while a broker is away.
PRINCIPAL_SHARE = 4
# Subscriptions whose former versions one tick looks through: a millisecond or two.
LOOKED_AT_PER_TICK = 100


class FormerVersion(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription wanted before.

    Attributes:
        topic: of it.
        selector: as the policy let it pass; empty for none.
        since: the first state in which it counts.
        until: the first state after it in which it does not.
    """

    topic: str
    selector: str
    since: int
    until: int


class PutMatch(NamedTuple):
    """Who wants the first rows of a put.

    Attributes:
        offsets: where the slots of each row begin.
        slots: of local subscriptions.
        formers: subscriptions whose former versions want some of the rows, with these.
    """

    offsets: NDArray[np.int64]
    slots: NDArray[np.int32]
    formers: list[tuple[Subscription, Rows]]


class _IndexedVersion:
    """A former version in the index."""

    __slots__ = ("size", "slot", "subscription", "version", "work")

    def __init__(self, subscription: Subscription, version: FormerVersion, slot: int, size: int, work: int) -> None:
        self.subscription = subscription
        self.version = version
        self.slot = slot
        self.size = size
        self.work = work


class FormerVersions:
    """The former versions of the durable subscriptions of a broker.

    Args:
        core: the broker.

    Attributes:
        latest: the latest state that a version begins with, or ends before.
        bytes: what they take, about.
        dropped: how many were dropped because there was no room while something of their states could come.
    """

    def __init__(self, core: Broker) -> None:
        self._core = core
        self._index = SubscriptionIndex(secret=core.index_secret)
        self._grouping = Grouping()
        self._at_slot: dict[int, _IndexedVersion] = {}
        # Of each subscription that has some, by its number: oldest first.
        self._of: dict[int, list[_IndexedVersion]] = {}
        # What those of each principal take, and add to the work of the index.
        self._bytes_of: Counter[str] = Counter()
        self._work_of: Counter[str] = Counter()
        self._to_look_at: list[int] = []
        self.latest = self.bytes = self.dropped = 0

    def __len__(self) -> int:
        return len(self._at_slot)

    # --- changes -----------------------------------------------------------------------------------------------------

    def enter(self, subscription: Subscription) -> None:
        """Restore those of a subscription; one that there is no room for is dropped."""
        terms = subscription.durable
        assert terms is not None
        self.latest = max(self.latest, terms.since, *(each.until for each in terms.formers))
        dropped: FormerVersion | None = None
        for each in terms.formers:
            version = each if dropped is None else msgspec.structs.replace(each, since=dropped.since)
            dropped = None if self._add(subscription, version) else version
            self.dropped += dropped is not None
        if dropped is not None:
            # The next version counts for what was accepted under this one, too.
            subscription.durable = msgspec.structs.replace(terms, since=dropped.since)

    def replaced(self, subscription: Subscription, before: DurableTerms, state: int) -> DurableTerms:
        """Keep what a subscription wanted, which counts no more from a state on.

        Returns:
            its terms, of which only the former versions and the state that the next version begins with are new.
        """
        self.latest = max(self.latest, state)
        since, standing = state, None if self._core.peers is None else self._core.peers.standing
        # One that was never said has nothing that could come.
        is_needed = not before.stopped and standing is not None and standing.may_come(before.since, state)
        version = FormerVersion(before.topic, before.selector, before.since, state)
        if not before.stopped and not (is_needed and self._add(subscription, version)):
            # The next version counts for what was accepted under this one, too.
            self.dropped += is_needed
            since = before.since
        kept = self._of.get(subscription.number, [])
        if len(kept) > MAX_FORMERS:
            # A version that perhaps no other broker has ever heard of goes first; the next one counts for it, too.
            assert standing is not None
            unheard = (
                at for at, each in enumerate(kept[:-1]) if not standing.is_known(each.version.since, each.version.until)
            )
            at = next(unheard, 0)
            gone, following = kept[at], kept[at + 1]
            self._remove(gone)
            self.dropped += 1
            following.version = msgspec.structs.replace(following.version, since=gone.version.since)
        return msgspec.structs.replace(before, since=since, formers=self._versions(subscription))

    def leave(self, subscription: Subscription) -> None:
        """Forget those of a subscription that ends."""
        for each in list(self._of.get(subscription.number, ())):
            self._remove(each)

    def forget(self) -> list[tuple[Subscription, DurableTerms]]:
        """Forget those of which nothing can come any more, as far as one tick goes; return the terms that change."""
        standing = None if self._core.peers is None else self._core.peers.standing
        if standing is None:
            return []
        if standing.waits_less and not self._to_look_at:
            standing.waits_less, self._to_look_at = False, list(self._of)
        looked_at, self._to_look_at = (
            self._to_look_at[:LOOKED_AT_PER_TICK],
            self._to_look_at[LOOKED_AT_PER_TICK:],
        )
        changed = []
        for number in looked_at:
            kept = self._of.get(number, [])
            gone = [each for each in kept if not standing.may_come(each.version.since, each.version.until)]
            if gone:
                changed.append((gone[0].subscription, self._without(gone)))
        return changed

    def _without(self, gone: list[_IndexedVersion]) -> DurableTerms:
        """Remove versions of a subscription; return its terms, in which the next versions count for their states."""
        subscription, before = gone[0].subscription, None
        terms = subscription.durable
        assert terms is not None
        for each in list(self._of[subscription.number]):
            each.version = _beginning_with(before, each.version)
            before = None
            if each in gone:
                before = each.version
                self._remove(each)
        since = before.since if before is not None and before.until == terms.since else terms.since
        return msgspec.structs.replace(terms, since=since, formers=self._versions(subscription))

    def _versions(self, subscription: Subscription) -> tuple[FormerVersion, ...]:
        return tuple(each.version for each in self._of.get(subscription.number, ()))

    def _add(self, subscription: Subscription, version: FormerVersion) -> bool:
        """Add one to the index; return whether there was room for it."""
        limits, index, principal = self._core.limits, self._index, _principal(subscription)
        try:
            selector = Selector.parse(version.selector) if version.selector else None
            size = estimated_bytes("", version.topic, selector)
            taken = max(self.bytes + size, PRINCIPAL_SHARE * (self._bytes_of[principal] + size))
            if FORMER_SHARE * taken > limits.subscription_bytes:
                return False
            most, before = limits.matching_ms * NANOSECONDS, index.work
            allowance = max(0, min(most - before, most // PRINCIPAL_SHARE - self._work_of[principal]))
            slot = index.add((subscription.number, version.until), selector, version.topic, allowance)
        except PostroadError:
            return False
        kept = self._at_slot[slot] = _IndexedVersion(subscription, version, slot, size, index.work - before)
        self._of.setdefault(subscription.number, []).append(kept)
        self._count(kept, 1)
        return True

    def _remove(self, kept: _IndexedVersion) -> None:
        number = kept.subscription.number
        self._index.remove((number, kept.version.until))
        del self._at_slot[kept.slot]
        self._of[number].remove(kept)
        if not self._of[number]:
            del self._of[number]
        self._count(kept, -1)

    def _count(self, kept: _IndexedVersion, sign: int) -> None:
        principal = _principal(kept.subscription)
        self.bytes += sign * kept.size
        self._bytes_of[principal] += sign * kept.size
        self._work_of[principal] += sign * kept.work
        if not self._bytes_of[principal]:
            del self._bytes_of[principal], self._work_of[principal]

    # --- matching ----------------------------------------------------------------------------------------------------

    def match(self, batch: Batch, oldest: int, newest: int) -> PutMatch:
        """Match rows that were accepted under some states, as far as one turn goes.

        Args:
            batch: the rows.
            oldest: the first of the states.
            newest: the last one.
        """
        offsets, slots = self._core.matched_here(batch)
        if oldest >= self.latest:
            return PutMatch(offsets, slots, [])
        offsets, slots = self._without_later(offsets, slots, newest)
        if not self._at_slot:
            return PutMatch(offsets, slots, [])
        # With this, the turn may take twice its time: no more, for there are no more indexes.
        part, budget = batch.take(np.arange(len(offsets) - 1)), self._core.turn_budget
        former_offsets, former_slots = self._index.match(part, budget)
        done = len(former_offsets) - 1
        offsets = offsets[: done + 1]
        return PutMatch(offsets, slots[: offsets[-1]], self._grouped(former_offsets, former_slots, oldest, newest))

    def _without_later(
        self, offsets: NDArray[np.int64], slots: NDArray[np.int32], newest: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return a match without the subscriptions whose version is later than a state."""
        found: list[int] = np.unique(slots).tolist()
        later = [slot for slot in found if self._core.residents.since(slot) > newest]
        if not later:
            return offsets, slots
        stays = ~np.isin(slots, np.array(later, np.int32))
        return np.concatenate([[0], np.cumsum(stays)])[offsets], slots[stays]

    def _grouped(
        self, offsets: NDArray[np.int64], slots: NDArray[np.int32], oldest: int, newest: int
    ) -> list[tuple[Subscription, Rows]]:
        """Return the rows of each subscription that it wanted in one of some states."""
        found: dict[Subscription, list[Rows]] = {}
        for slot, rows in self._grouping.by_slot(offsets, slots, 1 + max(self._at_slot)):
            subscription, version = self._at_slot[slot].subscription, self._at_slot[slot].version
            assert subscription.durable is not None
            if version.since <= newest and version.until > oldest and not subscription.durable.stopped:
                found.setdefault(subscription, []).append(rows)
        return [
            (subscription, rows[0] if len(rows) == 1 else np.unique(np.concatenate(rows)))
            for subscription, rows in found.items()
        ]


def _beginning_with(before: FormerVersion | None, version: FormerVersion) -> FormerVersion:
    """Return a version that counts for the states of the one before, too, unless there was a stop between the two."""
    if before is None or before.until != version.since:
        return version
    return msgspec.structs.replace(version, since=before.since)


def _principal(subscription: Subscription) -> str:
    """Return who made a subscription."""
    assert subscription.durable is not None
    return subscription.durable.principal
