"""What local publishers send: who gives the ids, what is accepted, and where it goes from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.aliases import record_aliases
from postroad.broker.errors import BrokerError
from postroad.broker.given_ids import FAR_MS, AssigningPublishers, IdAdmission
from postroad.broker.outbox import Outbox
from postroad.broker.turns import Work
from postroad.messages import IdGenerator
from postroad.messages.columns import SOURCE
from postroad.messages.id_columns import TIME_SHIFT
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.broker.core import Broker
    from postroad.broker.given_ids import AssigningPublisher
    from postroad.broker.numbers import PublisherNumbers
    from postroad.broker.sessions import Session
    from postroad.messages import Batch
    from postroad.security import Policy

__all__ = ["LocalPublications"]


class LocalPublications:
    """Takes what sessions publish.

    Args:
        core: the broker.
        numbers: gives publisher numbers.
        policy: who may publish what.

    Attributes:
        numbers: of publishers.
        accepted: how many messages were accepted.
        ids_skewed: how many had an id whose time is off.
        resent: how many were sent again, and left out.
    """

    def __init__(self, core: Broker, numbers: PublisherNumbers, policy: Policy) -> None:
        self._core = core
        self.numbers = numbers
        self._policy = policy
        self._assigning = AssigningPublishers(core.number, numbers, core.limits.publishers_kept)
        self.accepted = self.ids_skewed = self.resent = 0

    @property
    def away(self) -> int:
        """Return how many publishers with ids of their own may return."""
        return self._assigning.away

    def left(self, publisher: AssigningPublisher, for_good: bool) -> None:
        """Note that the connection of a publisher with ids of its own is gone."""
        self._assigning.left(publisher, for_good)

    def assigns_ids(
        self, session: Session, token: str, now: int, was: tuple[int, str] | None = None
    ) -> tuple[AssigningPublisher, Outbox]:
        """Let a client give its messages their ids from now on.

        Args:
            session: the client.
            token: what it has to show after a lost connection to continue under the same publisher number.
            now: the time in ms.
            was: number and token of the publisher that it was before, if any. It gets a new number if they are not
                known here (any more).

        Returns:
            the publisher it is, and what to do: close an earlier connection of that publisher, if there is one.
        """
        outbox = Outbox()
        publisher = None if was is None else self._assigning.find(*was, session.principal)
        if publisher is None:
            publisher = self._assigning.new(session.principal, token)
            self._core.recorder.publishes(publisher.number, session.principal, now)
        elif publisher.session is not None and (earlier := self._core.session(publisher.session)) is not None:
            earlier.assigning = None
            outbox.closes.append((earlier.number, "this publisher has connected again"))
        publisher.speaks_over(session.number)
        session.assigning = publisher
        return publisher, outbox

    def know_publishers_again(self, secret: Callable[[], bytes]) -> None:
        """Recognise publishers that give their own ids after a restart, by a secret that survives it."""
        self._assigning.secret = secret

    def receive(self, batch: Batch, source: Session, now: int, queued: bool = False) -> Outbox:
        """Take a batch from a local publisher: stamp ids, match, and deliver or enqueue.

        When this returns, the rows that the policy accepts have their ids; the others stay as they were. With `queued`,
        some rows may be for queues.

        Raises:
            BrokerError: a queue cannot be made.
        """
        outbox = Outbox()
        if self._core.durables is not None and self._core.durables.refuses(batch, outbox):
            return outbox
        whole, allowed, admitted = batch, self._policy.may_publish(source.principal, batch), None
        if allowed is not None:
            batch = batch.take(allowed)
            outbox.refused = len(whole) - len(batch)
        if queued:
            if self._core.queues is None:
                raise BrokerError("this broker has no store, so it has no queues (setting store)")
            admitted = self._core.queues.admit(batch, source, outbox, now)
            if outbox.unstorable:
                return outbox
        count = len(batch)
        if not count:
            return outbox
        self._identify(batch, source, now)
        if allowed is not None:
            whole.ids[allowed] = batch.ids
        self._core.recorder.accepted(batch, now)
        if self._core.alias_attribute is not None:
            record_aliases(self._core.recorder, batch, self._core.alias_attribute, now)
        self.accepted += count
        source.accepted += count
        if admitted:
            assert self._core.queues is not None
            batch = self._core.queues.enqueue(batch, admitted, source, outbox, now)
            if not len(batch):
                return outbox
        self._core.matching.take_up(Work(batch, source), outbox, now)
        return outbox

    def receive_identified(
        self, batch: Batch, source: Session, now: int, together: bool = False, queued: bool = False
    ) -> tuple[Outbox, IdAdmission]:
        """Take a batch whose publisher has given the ids, after `assigns_ids`.

        Rows that it sends again are left out. A row that it may not send is refused with all that follow it; with
        `together` all rows are refused. With `queued`, some rows may be for queues.
        """
        publisher = source.assigning
        if publisher is None:
            raise BrokerError("this session does not give ids (any more); it cannot publish with ids of its own")
        if not len(batch):
            return Outbox(), IdAdmission(0, 0)
        admission = publisher.admit(batch.ids, now, self._core.skew_tolerance_ms)
        self.resent += admission.resent
        self.ids_skewed += admission.skewed
        if queued and admission.resent:
            self._sent_again(batch.take(np.arange(admission.resent)), source, now)
        if admission.end == admission.resent or (together and admission.refusal is not None):
            return Outbox(), admission
        whole = admission.end - admission.resent == len(batch)
        entering = batch if whole else batch.take(np.arange(admission.resent, admission.end))
        last = int(entering.ids[-1, 1])
        if (
            publisher.restored
            and self._core.store is not None
            and (stored := self._core.store.stored_before(entering.ids)).any()
        ):
            # It entered before this process began, and was stored.
            self.resent += int(stored.sum())
            if queued:
                self._sent_again(entering.take(stored), source, now)
            entering = entering.take(~stored)
        outbox = self.receive(entering, source, now, queued) if len(entering) else Outbox()
        if outbox.unstorable or source.unstored:
            return outbox, admission
        if admission.is_far:
            distances = np.abs((entering.ids[:, 1] >> TIME_SHIFT).astype(np.int64) - now)
            self._core.recorder.dropped(entering, np.flatnonzero(distances > FAR_MS), 0, Detour.OUT_OF_TIME, now)
        publisher.last = last
        return outbox, admission

    def _sent_again(self, batch: Batch, source: Session, now: int) -> None:
        """Let receipts of messages that are left out wait as those of new ones would."""
        if self._core.peers is not None:
            self._core.peers.outgoing.sent_again(batch, source, now)

    def _identify(self, batch: Batch, source: Session, now: int) -> None:
        batch.envelopes[:, SOURCE] = self._core.number
        if source.assigning is not None:
            return
        if source.publisher is None:
            number = self.numbers.take()
            source.publisher = IdGenerator(number, self._core.number)
            self._core.recorder.publishes(number, source.principal, now)
        batch.run = source.publisher.give(batch.ids, now)

    def note_aliases(self, batch: Batch, aliases: Iterable[tuple[int, str]], now: int) -> None:
        """Record names that rows of a received batch have in other systems; a refused row has no id."""
        for row, alias in aliases:
            head, tail = batch.ids[row].tolist()
            if tail:
                self._core.recorder.aliased(alias, head, tail, now)
