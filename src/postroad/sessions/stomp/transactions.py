"""The open transactions of one connection: what was sent and acknowledged in them, until they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import BrokerError
from postroad.errors import LimitError

if TYPE_CHECKING:
    from postroad.protocols.stomp import Ack, Nack

__all__ = ["MAX_TRANSACTIONS", "MAX_TRANSACTION_BYTES", "OpenTransaction", "Transactions"]

# Open at once on one connection: a client uses one or two, and each may keep a lot.
MAX_TRANSACTIONS = 16
# Frames kept for all open transactions of a connection: the memory that one client can occupy this way.
MAX_TRANSACTION_BYTES = 16 * 1024 * 1024
# About the memory of an acknowledgement: its event, its id, and the texts of its headers.
ACKNOWLEDGEMENT_BYTES = 512


class OpenTransaction:
    """What is kept until the end of a transaction."""

    __slots__ = ("acknowledgements", "frames")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.acknowledgements: list[Ack | Nack] = []


class Transactions:
    """The open transactions by name.

    Attributes:
        held_bytes: the memory they take.
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenTransaction] = {}
        self._bytes = 0
        self.held_bytes = 0

    def begin(self, name: str) -> None:
        """Open a transaction."""
        if name in self._open:
            raise BrokerError(f"transaction {name!r} is open already; commit or abort it first")
        if len(self._open) >= MAX_TRANSACTIONS:
            raise LimitError("the number of open transactions", len(self._open) + 1, MAX_TRANSACTIONS)
        self._open[name] = OpenTransaction()

    def send(self, name: str, frame: bytes) -> None:
        """Keep a SEND."""
        transaction = self._named(name)
        if self._bytes + len(frame) > MAX_TRANSACTION_BYTES:
            raise LimitError("what open transactions hold", self._bytes + len(frame), MAX_TRANSACTION_BYTES, "bytes")
        transaction.frames.append(frame)
        self._bytes += len(frame)
        self.held_bytes += len(frame)

    def acknowledge(self, name: str, event: Ack | Nack) -> None:
        """Keep an acknowledgement."""
        transaction = self._named(name)
        if len(transaction.acknowledgements) >= MAX_TRANSACTION_ACKNOWLEDGEMENTS:
            raise LimitError(
                "the number of acknowledgements in a transaction",
                len(transaction.acknowledgements) + 1,
                MAX_TRANSACTION_ACKNOWLEDGEMENTS,
            )
        transaction.acknowledgements.append(event)
        self.held_bytes += ACKNOWLEDGEMENT_BYTES

    def end(self, name: str) -> OpenTransaction:
        """Close a transaction and return what it kept."""
        transaction = self._named(name)
        del self._open[name]
        kept = sum(map(len, transaction.frames))
        self._bytes -= kept
        self.held_bytes -= kept + ACKNOWLEDGEMENT_BYTES * len(transaction.acknowledgements)
        return transaction

    def _named(self, name: str) -> OpenTransaction:
        transaction = self._open.get(name)
        if transaction is None:
            raise BrokerError(f"transaction {name!r} is not open; BEGIN it first")
        return transaction


# As many as a subscription may have unacknowledged by default: beyond that there are only repetitions.
MAX_TRANSACTION_ACKNOWLEDGEMENTS = 10_000
