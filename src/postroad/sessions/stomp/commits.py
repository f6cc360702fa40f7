"""COMMIT: publishes what a transaction holds, then settles what was consumed for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from postroad.broker import settlements
from postroad.protocols import stomp

if TYPE_CHECKING:
    from postroad.broker import Settlement
    from postroad.protocols.stomp import StompLimits
    from postroad.sessions.stomp.connected_client import ConnectedClient
    from postroad.sessions.stomp.publications import StompPublications
    from postroad.sessions.stomp.subscriptions import StompSubscriptions
    from postroad.sessions.stomp.transactions import OpenTransaction

__all__ = ["Commits"]


class Commits:
    """Carries out the transactions of one client.

    Args:
        client: the client, admitted.
        publications: publishes its messages.
        subscriptions: knows what it acknowledges.
        limits: of its frames.
    """

    def __init__(
        self,
        client: ConnectedClient,
        publications: StompPublications,
        subscriptions: StompSubscriptions,
        limits: StompLimits,
    ) -> None:
        self._client = client
        self._publications = publications
        self._subscriptions = subscriptions
        self._limits = limits

    def commit(self, transaction: OpenTransaction) -> dict[str, str]:
        """Carry out a transaction as a whole; return the headers of its receipt.

        Raises:
            PostroadError: an acknowledgement is wrong, or a message may not be sent.
        """
        session, dispatcher = self._client.session, self._client.dispatcher
        acknowledged = [self._subscriptions.acknowledgement(each) for each in transaction.acknowledgements]
        settled = settlements(session, acknowledged)
        headers = {"message-count": "0"}
        if transaction.frames:
            found = stomp.decode_frames(transaction.frames, self._client.version, self._limits)
            assert found.batch is not None
            # Consumed messages are settled only after the messages made from them are accepted.
            if not self._publications.publish_committed(found, found.batch):
                return {}
            headers = {"message-id": str(found.batch.message(0).id), "message-count": str(len(found.batch))}
        # A refused publication may have ended the session.
        if self._is_there and settled:
            settle = functools.partial(self._settle, settled)
            if session.unfinished and dispatcher.store is not None:
                # Messages that are not matched yet may have to be stored, and the store may have no room by then.
                dispatcher.after_turns(session, settle)
            else:
                settle()
        return headers

    @property
    def _is_there(self) -> bool:
        """Return whether the client's session has not ended."""
        session = self._client.session
        return self._client.dispatcher.core.session(session.number) is session

    def _settle(self, settled: list[Settlement]) -> None:
        """Carry out the acknowledgements of a transaction, unless one of its messages was not stored."""
        session, dispatcher = self._client.session, self._client.dispatcher
        if self._is_there and not session.unstored:
            dispatcher.carry_out(dispatcher.core.settle(session, settled, dispatcher.clock()))
