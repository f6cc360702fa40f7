"""The control frames of clients, as events. Messages are rows of a batch, not events.

Each event has `row`: how many rows of the read's batch are before it. A session first handles those rows, then the
event. `receipt` is the id that the client asks to see in a RECEIPT, as the bytes on the wire: they are sent back
unchanged in every version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from postroad.messages import MessageId
    from postroad.protocols.stomp.versions import Version

__all__ = [
    "Abort",
    "Ack",
    "Begin",
    "Commit",
    "Connect",
    "Disconnect",
    "Event",
    "Nack",
    "ProtocolError",
    "Subscribe",
    "TransactionSend",
    "Unsubscribe",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    row: int
    receipt: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect(_Frame):
    """A client connects.

    Attributes:
        version: the highest version that both sides know; CONNECTED names it.
        host: the virtual host; None if the client names none, as in 1.0.
        login: the user; None for none.
        passcode: the password, kept out of `repr`.
        heart_beat: (interval in ms that the client can keep, interval in ms that it asks for); 0 is never.
        headers: all headers except the passcode, the first of each name.
    """

    version: Version
    host: str | None
    login: str | None
    passcode: str | None = field(repr=False)
    heart_beat: tuple[int, int]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe(_Frame):
    """A client subscribes.

    Attributes:
        id: the client's name for the subscription; None in 1.0 only, where it may be left out.
        topic: the topic or pattern (what follows `/topic/` in the destination), or the name of a queue; not checked
            further.
        queue: whether it is a queue.
        ack: "auto", "client" or "client-individual".
        selector: the text of the selector; None for none. Not checked here.
        headers: all headers, the first of each name.
    """

    id: str | None
    topic: str
    ack: str
    selector: str | None
    headers: dict[str, str]
    queue: bool = False

    @property
    def destination(self) -> str:
        """The destination as the client named it."""
        return f"/queue/{self.topic}" if self.queue else f"/topic/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe(_Frame):
    """A client unsubscribes; in 1.0 it may name the destination instead of the subscription's id."""

    id: str | None
    destination: str | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acknowledgement(_Frame):
    """Which message is acknowledged or refused.

    Attributes:
        message_id: the message.
        number: the number that the broker gave the subscription, from the `ack` header of the MESSAGE (1.2).
        subscription: the client's name for the subscription (1.1; optional in 1.0).
        transaction: the transaction it belongs to, or None.
    """

    message_id: MessageId
    number: int | None
    subscription: str | None
    transaction: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(_Acknowledgement):
    """A client acknowledges a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack(_Acknowledgement):
    """A client refuses a message; unless it `requeues`, no consumer gets it again."""

    requeues: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transaction(_Frame):
    transaction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(_Transaction):
    """A transaction starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(_Transaction):
    """A transaction is committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort(_Transaction):
    """A transaction is aborted: what was sent in it is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSend(_Transaction):
    """A SEND inside a transaction: checked like any other, and kept as bytes for `decode_frames`."""

    frame: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(_Frame):
    """A client disconnects, and waits for its receipt if it asked for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolError(_Frame):
    """What a client sent is not STOMP, or is over a limit. It is the last event of its connection.

    Attributes:
        text: what was wrong and what to do about it, for the `message` header of an ERROR.
        frame: the beginning of the frame, at most `MAX_SHOWN_BYTES`.
        versions: the versions known here, if there is no common one; else None.
    """

    text: str
    frame: bytes
    versions: str | None = None


Event: TypeAlias = (
    Connect
    | Subscribe
    | Unsubscribe
    | Ack
    | Nack
    | Begin
    | Commit
    | Abort
    | TransactionSend
    | Disconnect
    | ProtocolError
)
