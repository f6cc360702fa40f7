"""What brokers say to each other about queues, over their channels.

A *put* brings messages to the home of their queue, from the broker where they entered:

```
entry broker -> home   Put             store these
home -> entry broker   Stored          they are as safe as a RECEIPT promises
                       PutRefused      they are not stored, for this reason; try again later
entry broker -> home   Forget          this broker will not put them again; the home may forget their ids
```

What durable subscriptions of a broker want is known to all others, which put what they accept of it (`Put` with an
empty name):

```
broker -> others       StandingPart    this is what they want, or how it changed
other -> broker        Informed        it is stored here: nothing that is accepted from now on is missed
```

A *remote consumer* is a client of one broker that consumes a queue of another:

```
its broker -> home     Consume           from now on
                       Leave             not any more; messages it did not settle return to the queue
                       ConsumerAnswer    it has acknowledged messages, or refused them
home -> its broker     ConsumerDelivery  messages for it
                       Answered          an answer is stored
                       Dismiss           it cannot consume the queue, or not any more
```
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from postroad.errors import PostroadError

__all__ = [
    "ANY_STATE",
    "Answered",
    "ChannelError",
    "Consume",
    "ConsumerAnswer",
    "ConsumerDelivery",
    "Dismiss",
    "Forget",
    "Informed",
    "Item",
    "Leave",
    "Put",
    "PutRefused",
    "StandingPart",
    "Stored",
    "decode_item",
    "encode_item",
]

# The largest number. Messages accepted under states from 0 to this one: their broker does not know under which.
ANY_STATE = 2**62
_Number = Annotated[int, msgspec.Meta(ge=0, le=ANY_STATE)]
# The longest name of a queue, and of a client.
_Text = Annotated[str, msgspec.Meta(max_length=1_024)]
_Reason = Annotated[str, msgspec.Meta(max_length=4_096)]
# The longest SUBSCRIBE frame.
_Selector = Annotated[str, msgspec.Meta(max_length=1024 * 1024)]


# Rows of one part of an interest: far more than 64 rows of honest selectors take.
_Rows = Annotated[bytes, msgspec.Meta(max_length=2 * 1024 * 1024)]


class ChannelError(PostroadError):
    """Bytes from another broker that are not a valid item about queues."""


class Put(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Messages for a queue, or for durable subscriptions.

    Attributes:
        number: of the put.
        attempt: of the queue: a put of a refused attempt is refused too, so that order is kept.
        queue: the name; empty for durable subscriptions and retained topics.
        principal: who sent the first of them to the queue.
        again: some of them may already be stored.
        rows: the messages (`rows_payload`).
        oldest: the first state of the target's standing interest under which any of them was accepted.
        newest: the last one. For a queue, neither means anything.
    """

    number: _Number
    attempt: _Number
    queue: _Text
    principal: _Text
    again: bool
    rows: bytes
    oldest: _Number = 0
    newest: _Number = ANY_STATE


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A put is safe."""

    number: _Number


class PutRefused(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A put is not stored."""

    number: _Number
    reason: _Reason


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Puts up to a number are finished; 0 for all from before this session."""

    number: _Number


class Consume(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A client consumes a queue.

    Attributes:
        consumer: its number at its broker.
        queue: the name.
        principal: who it is.
        selector: what it wants; empty for everything.
        prefetch: how many unsettled messages it may have; 0 for the most that is allowed.
        exclusive: while it consumes, nobody else gets anything.
    """

    consumer: _Number
    queue: _Text
    principal: _Text
    selector: _Selector
    prefetch: _Number
    exclusive: bool


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A consumer is gone."""

    consumer: _Number


class ConsumerDelivery(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Messages for a consumer, with header lines that say how often they were delivered."""

    consumer: _Number
    rows: bytes


class ConsumerAnswer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A consumer acknowledges or refuses messages.

    Attributes:
        number: of the answer.
        consumer: whose it is.
        positive: it has consumed them.
        requeues: if not, somebody may get them again.
        ids: 16 bytes each.
    """

    number: _Number
    consumer: _Number
    positive: bool
    requeues: bool
    ids: bytes


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Answers up to a number are stored."""

    number: _Number


class Dismiss(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A consumer gets nothing any more."""

    consumer: _Number
    reason: _Reason


class StandingPart(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A part of what the durable subscriptions and retained topics of a broker want.

    Attributes:
        number: of the state that its last part completes; it rises, also across restarts.
        is_whole: the parts are all that is wanted; otherwise they are changes.
        is_first: nothing of this state was said before.
        is_last: nothing more of this state follows.
        added: wanted from now on (`encode_exact`); empty for nothing.
        removed: not wanted any more.
    """

    number: _Number
    is_whole: bool
    is_first: bool
    is_last: bool
    added: _Rows
    removed: _Rows


class Informed(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A state of the interest is stored.

    Attributes:
        number: of the state.
        oldest: nothing that was accepted under an earlier state than this one will be put any more.
    """

    number: _Number
    oldest: _Number = 0


Item: TypeAlias = (
    Put
    | Stored
    | PutRefused
    | Forget
    | Consume
    | Leave
    | ConsumerDelivery
    | ConsumerAnswer
    | Answered
    | Dismiss
    | StandingPart
    | Informed
)

_DECODER = msgspec.msgpack.Decoder(Item)


def encode_item(item: Item) -> bytes:
    """Return the bytes of an item."""
    return msgspec.msgpack.encode(item)


def decode_item(data: bytes) -> Item:
    """Return the item in some bytes.

    Raises:
        ChannelError: the bytes are not an item.
    """
    try:
        found: Item = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChannelError(f"not what brokers say about queues: {error}") from error
    return found
