"""The contract between a client's protocol, the driver that moves its bytes, and the dispatcher.

A protocol is one class, a `ClientSession`: it turns the bytes of one connection into calls of the core, and the core's
deliveries into bytes. It opens no socket and reads no clock: the driver gives it a `Transport`, the dispatcher time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from postroad.sessions.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker import Delivery, Outbox
    from postroad.messages import Batch
    from postroad.messages.columns import Bytes
    from postroad.sessions.shared_bytes import Piece, SharedBytes

__all__ = [
    "BatchTimer",
    "ClientSession",
    "LoginVerdict",
    "Logins",
    "OutboxSender",
    "RecordSafety",
    "Renderer",
    "StoreSafety",
    "Terms",
    "Transport",
    "WebSocketProfile",
]


class Renderer(Protocol):
    """How messages look to the clients of one protocol version.

    Sessions with the same renderer share what it prepares: a message for ten of them is encoded once.
    """

    def prepare(self, batch: Batch, rows: NDArray[np.int64]) -> object:
        """Encode what sessions with this renderer share of these rows; passed back to `ClientSession.render`."""


class ClientSession(Protocol):
    """One connection's side of a protocol."""

    # --- called by the driver

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the socket; none of `data` may be kept after the call."""

    def writable(self, yes: bool) -> None:
        """Note whether the socket takes more now."""

    def tick(self, now: int) -> None:
        """Handle the time that the session asked for by `Transport.wake_at`."""

    def ended(self, reason: str) -> None:
        """End the session, because its client sends no more; close once it has the receipts of what it sent."""

    def lost(self, reason: str) -> None:
        """Handle the loss of the connection."""

    @property
    def protocol(self) -> str:
        """Return the protocol and its version, for people."""

    @property
    def login(self) -> str:
        """Return the login that the client has proved; empty without."""

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes are kept of what was received: unfinished frames, open transactions."""

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes wait for the session's subscriptions."""

    @property
    def has_waiting(self) -> bool:
        """Return whether messages wait that the socket could take now."""

    # --- called by the dispatcher

    @property
    def renderer(self) -> Renderer:
        """Return the renderer of its protocol version: the same object for all sessions that can share a rendering."""

    def render(self, delivery: Delivery, prepared: object | None) -> Bytes:
        """Return the bytes of a delivery.

        Args:
            delivery: rows of a batch for one subscription of this session.
            prepared: from this session's renderer, for at least these rows; None if no other session needs them.
        """

    def pieces(self, delivery: Delivery, prepared: object) -> list[Piece]:
        """Return the bytes of a delivery of large messages, of which as much as possible is shared.

        Args:
            delivery: rows of a batch for one subscription of this session.
            prepared: from this session's renderer, for at least these rows.
        """

    def write(self, data: Bytes, shared: SharedBytes | None = None) -> None:
        """Pass rendered bytes to the transport; `shared` if they are a part of what others get too."""

    def pause_reading(self) -> None:
        """Read no more for now."""

    def resume_reading(self) -> None:
        """Read again."""

    # --- called by both

    def refuse(self, reason: str, again: bool = False) -> None:
        """Tell the client why, and close; with `again`, also that a later connection may work."""

    def broke(self, error: Exception) -> None:
        """End this session, and no other, because of a defect of the broker: tell the client, and close."""


class Transport(Protocol):
    """The connection under a session: TCP, TLS or WebSocket."""

    @property
    def peer(self) -> str:
        """Return the other end, for logs."""

    @property
    def address(self) -> str:
        """Return the address that limits count by."""

    @property
    def shares(self) -> bool:
        """Return whether parts of a frame may be written one by one, so that large ones need no copy."""

    def connected(self) -> str:
        """Admit the client; return why it is refused, or an empty text."""

    def write(self, data: bytes | memoryview, shared: SharedBytes | None = None) -> None:
        """Pass bytes to the socket; they may be sent later, in order.

        With `shared` they are a part of what others get too, and stay as they are until then.
        """

    def pause_reading(self) -> None:
        """Deliver no more data for now."""

    def resume_reading(self) -> None:
        """Deliver data again."""

    def wake_at(self, when: int) -> None:
        """Call `tick` at this time of the dispatcher's timer; this replaces an earlier request."""

    def close(self) -> None:
        """Send what is written, then close; soon in any case."""


class WebSocketProfile(NamedTuple):
    """How a protocol travels in WebSocket messages.

    Attributes:
        subprotocols: the names of its versions, newest first.
        max_message_bytes: the largest message taken from a client.
        pieces: cuts outgoing bytes into messages.
    """

    subprotocols: tuple[str, ...]
    max_message_bytes: int
    pieces: Callable[[bytes], Iterable[bytes]]


class LoginVerdict(NamedTuple):
    """The result of a login.

    Attributes:
        refusal: the reason for the client; empty if it is admitted.
        principal: of a client that is admitted.
        login: the login that was proved; empty if logins are not checked.
        again: whether a later connection may be admitted with the same login and passcode.
    """

    refusal: str
    principal: str = ""
    login: str = ""
    again: bool = False


class Logins(Protocol):
    """Checks logins."""

    def check(self, login: str, passcode: str, address: str, answer: Callable[[LoginVerdict], None]) -> None:
        """Check a login, and call `answer`, now or later."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every session of a broker, whatever its protocol.

    Attributes:
        gate: checks logins; None lets every client in, unverified.
        audit: logs and counts refusals.
        heart_beat_ms: the shortest heart-beat either way.
        connect_ms: how long a connection may take until its client has introduced itself.
        push_back: whether subscribers may keep publishers waiting.
    """

    gate: Logins | None = None
    audit: Audit = msgspec.field(default_factory=Audit)
    heart_beat_ms: int = 1_000
    connect_ms: int = 10_000
    push_back: bool = True


class OutboxSender(Protocol):
    """The links to other brokers, as the dispatcher sees them."""

    def send(self, outbox: Outbox) -> None:
        """Send the control frames and parcels of an outbox, and dial or hang up as it says."""

    def send_packets(self, packets: Iterable[tuple[int, bytes]]) -> None:
        """Send packets about queues, each to its destination broker, as far as there are routes."""


class RecordSafety(Protocol):
    """The record, as receipts depend on it."""

    @property
    def trouble(self) -> str:
        """Return what keeps the record from being written; empty while all is well."""

    @property
    def waits(self) -> bool:
        """Return whether all receipts have to wait until the record is safe."""

    def when_safe(self, action: Callable[[bool], None], *, in_trail: bool = False) -> None:
        """Call `action` with True once all that was recorded so far survives a crash, with False if it would not.

        With `in_trail` a journal does not suffice.
        """


class StoreSafety(Protocol):
    """The store, as receipts depend on it."""

    @property
    def mark(self) -> int:
        """Return a number that changes whenever something was stored that a receipt has to wait for."""

    def when_safe(self, action: Callable[[str], None]) -> None:
        """Call `action` with an empty text once all that was stored so far is safe, or with the reason if it is not."""


class BatchTimer(Protocol):
    """Times some reads of sockets, from the system call until the bytes of their messages are with other sockets."""

    def begin(self) -> None:
        """A socket is about to be read, or was just read."""

    def count(self, batch: Batch, outbox: Outbox, relayed: bool = False) -> None:
        """A batch was carried out; `relayed` if a neighbour sent it."""

    def end(self, source: int) -> None:
        """The read is finished; `source` identifies its socket."""
