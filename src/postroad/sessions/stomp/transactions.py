"""The open transactions of one connection: what was sent and acknowledged in them, until they end."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from postroad.broker import BrokerError
from postroad.errors import LimitError

if TYPE_CHECKING:
    from postroad.protocols.stomp import Ack, Nack

__all__ = ["MAX_TRANSACTIONS", "MAX_TRANSACTION_BYTES", "OpenTransaction", "Transactions"]

# Open at once on one connection: a client uses one or two, and each may keep a lot.
MAX_TRANSACTIONS = 16
# Frames, and names of subscriptions in acknowledgements, kept for all open transactions of a connection: the memory
# that one client can occupy this way.
MAX_TRANSACTION_BYTES = 16 * 1024 * 1024
# Messages of one transaction. They enter as one batch, so a COMMIT decodes all of them in one piece: so many of the
# shortest take some 30 ms. 16 MiB have room for 370,000, which held up everybody for 0.3 s.
MAX_TRANSACTION_MESSAGES = 65_536
# As many as a subscription may have unacknowledged by default: beyond that there are only repetitions.
MAX_TRANSACTION_ACKNOWLEDGEMENTS = 10_000
# About the memory of an acknowledgement: its event and its id.
ACKNOWLEDGEMENT_BYTES = 512
# The memory of a frame besides its bytes: the object, and its place in a list.
FRAME_BYTES = 64


class OpenTransaction:
    """What is kept until the end of a transaction.

    Attributes:
        frames: of its SENDs.
        acknowledgements: without the receipts that were asked for, and without the name of the transaction.
        counted_bytes: its part of `MAX_TRANSACTION_BYTES`.
        held_bytes: the memory it takes.
    """

    __slots__ = ("acknowledgements", "counted_bytes", "frames", "held_bytes")

    def __init__(self, name: str) -> None:
        self.frames: list[bytes] = []
        self.acknowledgements: list[Ack | Nack] = []
        self.counted_bytes = 0
        self.held_bytes = sys.getsizeof(name)


class Transactions:
    """The open transactions by name.

    Attributes:
        held_bytes: the memory they take.
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenTransaction] = {}
        self._counted = 0
        self.held_bytes = 0

    def begin(self, name: str) -> None:
        """Open a transaction."""
        if name in self._open:
            raise BrokerError(f"transaction {name!r} is open already; commit or abort it first")
        if len(self._open) >= MAX_TRANSACTIONS:
            advice = "MAX_TRANSACTIONS; commit or abort some"
            raise LimitError("the number of open transactions", len(self._open) + 1, MAX_TRANSACTIONS, advice)
        transaction = self._open[name] = OpenTransaction(name)
        self.held_bytes += transaction.held_bytes

    def send(self, name: str, frame: bytes) -> None:
        """Keep a SEND."""
        transaction = self._named(name)
        if len(transaction.frames) >= MAX_TRANSACTION_MESSAGES:
            raise LimitError(
                "the number of messages in a transaction", len(transaction.frames) + 1, MAX_TRANSACTION_MESSAGES
            )
        self._count(transaction, len(frame), FRAME_BYTES)
        transaction.frames.append(frame)

    def acknowledge(self, name: str, event: Ack | Nack) -> None:
        """Keep an acknowledgement."""
        transaction = self._named(name)
        if len(transaction.acknowledgements) >= MAX_TRANSACTION_ACKNOWLEDGEMENTS:
            raise LimitError(
                "the number of acknowledgements in a transaction",
                len(transaction.acknowledgements) + 1,
                MAX_TRANSACTION_ACKNOWLEDGEMENTS,
                "MAX_TRANSACTION_ACKNOWLEDGEMENTS; commit sooner",
            )
        # Header lines may be long, and a client chooses what is in them.
        named = 0 if event.subscription is None else sys.getsizeof(event.subscription)
        self._count(transaction, named, ACKNOWLEDGEMENT_BYTES)
        transaction.acknowledgements.append(replace(event, receipt=None, transaction=None))

    def end(self, name: str) -> OpenTransaction:
        """Close a transaction and return what it kept."""
        transaction = self._named(name)
        del self._open[name]
        self._counted -= transaction.counted_bytes
        self.held_bytes -= transaction.held_bytes
        return transaction

    def _count(self, transaction: OpenTransaction, size: int, besides: int) -> None:
        """Count bytes that a client chose, and the memory besides them.

        Raises:
            LimitError: open transactions would hold too much.
        """
        if self._counted + size > MAX_TRANSACTION_BYTES:
            advice = "bytes, MAX_TRANSACTION_BYTES; commit sooner"
            raise LimitError("what open transactions hold", self._counted + size, MAX_TRANSACTION_BYTES, advice)
        self._counted += size
        self.held_bytes += size + besides
        transaction.counted_bytes += size
        transaction.held_bytes += size + besides

    def _named(self, name: str) -> OpenTransaction:
        transaction = self._open.get(name)
        if transaction is None:
            raise BrokerError(f"transaction {name!r} is not open; BEGIN it first")
        return transaction
