"""The messages of one client on their way to the core: with ids from the broker or from the client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import BrokerError
from postroad.broker.numbers import NumbersError
from postroad.protocols import stomp
from postroad.protocols.stomp.id_headers import CLOCK_RECEIPT, MESSAGE_ID_HEADER, SERVER_TIME_HEADER
from postroad.sessions.stomp.ids import CORRECTION_MS, no_id

if TYPE_CHECKING:
    from postroad.broker import IdAdmission, Outbox
    from postroad.messages import Batch, MessageId
    from postroad.protocols.stomp.columns import Columns
    from postroad.sessions.stomp.connected_client import ConnectedClient
    from postroad.sessions.stomp.receipts import Receipts

__all__ = ["StompPublications"]

log = logging.getLogger("postroad.server")


class StompPublications:
    """What one client publishes.

    Args:
        client: the client, admitted.
        receipts: confirm what was accepted.
    """

    def __init__(self, client: ConnectedClient, receipts: Receipts) -> None:
        self._client = client
        self._dispatcher = client.dispatcher
        self._session = client.session
        self._receipts = receipts
        self._correct_from = client.dispatcher.timer()

    def publish(self, batch: Batch, found: stomp.Received) -> None:
        """Publish the batch of a read, and confirm rows that ask for it; a refusal closes the connection."""
        try:
            queued = found.has_queues
            if self._session.assigning is not None:
                self._publish_identified(batch, found.receipts, found.message_ids, queued)
                return
            named = found.message_ids if found.has_message_ids else None
            if self._accept(batch, named, queued) and found.asks_receipts:
                self._receipts.messages(batch, found.receipts, self._session)
        except (BrokerError, NumbersError) as error:
            # Not a defect: without a number reserved on disk, two publishers could use the same ids.
            log.error("publisher refused", extra={**self._client.who, "reason": str(error)})
            self._client.fail(f"SEND: {error}")

    def publish_committed(self, found: stomp.Received, batch: Batch) -> bool:
        """Publish the messages of a transaction, all or none.

        Returns:
            False if the client may not publish; then it got an ERROR.

        Raises:
            BrokerError: an id that the client gave is not one, or may not be used.
        """
        if self._session.assigning is None:
            return self._accept(batch, found.message_ids, found.has_queues)
        count = stomp.read_ids(batch, found.message_ids)
        if count < len(batch):
            raise BrokerError(f"COMMIT: {no_id(stomp.given_id_text(batch, found.message_ids, count))}")
        admission = self._accept_identified(batch, together=True, queued=found.has_queues)
        if admission is not None and admission.refusal is not None:
            raise BrokerError(f"COMMIT: {admission.refusal}")
        return admission is not None

    def _publish_identified(self, batch: Batch, receipts: Columns, message_ids: Columns, queued: bool) -> None:
        """Publish messages that have their ids, up to the first whose id is invalid or may not be used."""
        count = stomp.read_ids(batch, message_ids)
        refusal = None if count == len(batch) else no_id(stomp.given_id_text(batch, message_ids, count))
        if refusal is not None:
            batch = batch.take(np.arange(count))
        admission = self._accept_identified(batch, queued=queued)
        if admission is None:
            return
        if admission.end < len(batch):
            refusal = admission.refusal
            batch = batch.take(np.arange(admission.end))
        self._receipts.messages(batch, receipts[: admission.end], self._session, resent=admission.resent > 0)
        if refusal is not None:
            self._client.fail(f"SEND: {refusal}")

    def _accept_identified(self, batch: Batch, together: bool = False, queued: bool = False) -> IdAdmission | None:
        """Return the admission of a batch with given ids; None if the client may not publish, and got an ERROR."""
        outbox, admission = self._dispatcher.publish_identified(batch, self._session, together, queued)
        if admission.first_skewed is not None:
            self._correct(admission.first_skewed, self._dispatcher.clock())
        if admission.is_far:
            self._receipts.wait_for_record()
        return admission if self._may_publish(outbox) else None

    def _correct(self, skewed: MessageId, now: int) -> None:
        """Tell the client that its clock is off, at most once in `CORRECTION_MS`."""
        timer = self._dispatcher.timer()
        if timer >= self._correct_from:
            self._correct_from = timer + CORRECTION_MS
            headers = {SERVER_TIME_HEADER: str(now), MESSAGE_ID_HEADER: str(skewed)}
            self._client.send(stomp.receipt_frame(CLOCK_RECEIPT.encode(), self._client.version, headers))

    def _accept(self, batch: Batch, message_ids: Columns | None, queued: bool = False) -> bool:
        # The broker gives the ids; the sender's names for its messages are aliases.
        aliases = [] if message_ids is None else stomp.foreign_ids(batch, message_ids, self._client.version)
        return self._may_publish(self._dispatcher.publish(batch, self._session, aliases, queued))

    def _may_publish(self, outbox: Outbox) -> bool:
        if unstorable := outbox.unstorable or self._session.unstored:
            self._client.fail(f"SEND: {unstorable}")
            return False
        if outbox.refused:
            principal = self._session.principal
            self._client.terms.audit.refused("publication refused", **self._client.who, principal=principal)
            self._client.fail(f"{principal or 'anonymous'} may not publish to this topic")
        return not outbox.refused
