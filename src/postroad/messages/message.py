"""`Message`: one row of a batch, for people, tests and clients. Decodes nothing before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.messages.attributes import derived, merge, read_attributes
from postroad.messages.columns import (
    ATTRIBUTES,
    BODY,
    EXPIRY,
    FLAGS,
    HEADERS,
    HOP_LIMIT,
    METADATA,
    PRIORITY,
    SOURCE,
    TOPIC,
)
from postroad.messages.errors import DecodeError
from postroad.messages.headers import read_headers
from postroad.messages.identity import MessageId

if TYPE_CHECKING:
    from postroad.messages.batch import Batch
    from postroad.messages.values import Untyped, Value

__all__ = ["Message"]

# How much of a value or a body `repr` shows.
_SHOWN = 40


class Message:
    """A view of one row. It keeps its batch alive, and decodes again at each access."""

    __slots__ = ("batch", "row")

    def __init__(self, batch: Batch, row: int) -> None:
        self.batch = batch
        self.row = row

    @property
    def id(self) -> MessageId:
        """The message's id; all zero if it has none yet."""
        head, tail = self.batch.ids[self.row].tolist()
        return MessageId.of(head, tail)

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        try:
            return self._bytes(TOPIC).decode()
        except UnicodeDecodeError as error:
            raise DecodeError("the topic is not UTF-8", self.row, self._start(TOPIC) + error.start) from None

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes the sender gave: typed entries, then header lines, the first of each name."""
        places = (self._start(ATTRIBUTES), self._start(HEADERS))
        return merge(self._bytes(ATTRIBUTES), self._bytes(HEADERS), self.row, places)

    def selectable(self) -> dict[str, Value]:
        """Return what a selector sees: the attributes of the sender, with the five JMS names set by the broker."""
        return derived(self.attributes, self.id, self.priority)

    @property
    def headers(self) -> dict[str, Untyped]:
        """The header lines alone, unescaped, the first of each name."""
        found: dict[str, Untyped] = {}
        for name, value in read_headers(self._bytes(HEADERS), self.row, self._start(HEADERS)):
            found.setdefault(name, value)
        return found

    @property
    def metadata(self) -> dict[str, Value]:
        """The typed metadata of the envelope, the first of each name."""
        found: dict[str, Value] = {}
        for name, value in read_attributes(self._bytes(METADATA), self.row, self._start(METADATA)):
            found.setdefault(name, value)
        return found

    @property
    def body(self) -> bytes:
        """The body, copied."""
        return self._bytes(BODY)

    @property
    def source(self) -> int:
        """The number of the broker where it entered the network."""
        return int(self.batch.envelopes[self.row, SOURCE])

    @property
    def hop_limit(self) -> int:
        """How many more links it may cross."""
        return int(self.batch.envelopes[self.row, HOP_LIMIT])

    @property
    def flags(self) -> int:
        """Broadcast 1, maybe-duplicate 2, custody 4, overtaking 8, queued 16."""
        return int(self.batch.envelopes[self.row, FLAGS])

    @property
    def priority(self) -> int:
        """The priority; 4 unless the sender said otherwise."""
        return int(self.batch.envelopes[self.row, PRIORITY])

    @property
    def expiry(self) -> int:
        """When it expires, in Unix milliseconds; 0 is never."""
        return int(self.batch.envelopes[self.row, EXPIRY])

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={_short(repr(value))}" for name, value in self.attributes.items())
        return (
            f"<Message {self.id} to {self.topic} {{{_short(attributes, 3 * _SHOWN)}}} body {_short(repr(self.body))}>"
        )

    def _start(self, column: int) -> int:
        return int(self.batch.spans[self.row, column])

    def _bytes(self, column: int) -> bytes:
        start, end = self.batch.spans[self.row, column : column + 2].tolist()
        return self.batch.buffer[start:end].tobytes()


def _short(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
