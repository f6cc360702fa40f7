"""Questions about messages that brokers ask each other over their links.

A question names the broker it is for and spreads over all links, each broker passing it on once; the one it is for
answers, and the answer goes back the way the question came. That works with every strategy and while routes change. A
question is small and rare, so that spreading costs nothing that counts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from postroad.errors import PostroadError
from postroad.messages import MessageId

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["MAX_ANSWER_BYTES", "QuestionError", "Questions", "Said"]

# One broker's word on one message: some 50 bytes for each subscriber that got it, ten thousand of them.
MAX_ANSWER_BYTES = 1024 * 1024
# How long the way back is remembered: an answer that takes longer is of no use to whoever waits.
REMEMBERED_MS = 10_000
# Ways back remembered at once; the oldest go first.
MAX_REMEMBERED = 10_000
# Longer than any way through a network of a thousand brokers; what goes on beyond is in a circle.
MAX_HOPS = 64

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Payload = Annotated[bytes, msgspec.Meta(max_length=MAX_ANSWER_BYTES)]


class QuestionError(PostroadError):
    """Bytes from a neighbour that are no question and no answer."""


class _Asked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    asker: _Number
    epoch: _Number
    number: _Number
    target: _Number
    hops: Annotated[int, msgspec.Meta(ge=0, le=MAX_HOPS)]
    message: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class _Answered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    asker: _Number
    epoch: _Number
    number: _Number
    payload: _Payload


_DECODER = msgspec.msgpack.Decoder(_Asked | _Answered)
_Key = tuple[int, int, int]


class Said(NamedTuple):
    """What to do after a call.

    Attributes:
        sends: (link, bytes) to send.
        asked: (key, message) to answer here, with `answer`.
        answered: (number, payload): an answer to a question asked here.
    """

    sends: list[tuple[int, bytes]]
    asked: tuple[tuple[int, int, int], MessageId] | None = None
    answered: tuple[int, bytes] | None = None


class Questions:
    """The questions of one broker, and those it passes on.

    Args:
        broker: this broker.
        epoch: when it was started: numbers begin again then.
    """

    def __init__(self, broker: int, epoch: int) -> None:
        self._broker = broker
        self._epoch = epoch
        self._next = 1
        # (asker, epoch, number) -> (the link it came from, until when): the way back.
        self._ways: OrderedDict[_Key, tuple[int, int]] = OrderedDict()

    def ask(self, target: int, message: MessageId, links: Collection[int], now: int) -> tuple[int, Said]:
        """Ask another broker; answers the number by which its answer will be known."""
        number, self._next = self._next, self._next + 1
        asked = _Asked(self._broker, self._epoch, number, target, MAX_HOPS, bytes(message))
        self._remember((self._broker, self._epoch, number), 0, now)
        data = msgspec.msgpack.encode(asked)
        return number, Said([(link, data) for link in links])

    def receive(self, data: bytes, link: int, links: Collection[int], now: int) -> Said:
        """A question or an answer came over a link.

        Raises:
            QuestionError: it is neither.
        """
        try:
            said = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise QuestionError(f"link {link}: not a question about a message: {error}") from error
        return self._asked(said, link, links, now) if isinstance(said, _Asked) else self._answered(said, now)

    def _asked(self, asked: _Asked, link: int, links: Collection[int], now: int) -> Said:
        key = (asked.asker, asked.epoch, asked.number)
        if key in self._ways:
            return Said([])
        self._remember(key, link, now)
        if asked.target == self._broker:
            return Said([], asked=(key, MessageId.from_bytes(asked.message)))
        if asked.hops == 0:
            return Said([])
        data = msgspec.msgpack.encode(msgspec.structs.replace(asked, hops=asked.hops - 1))
        return Said([(other, data) for other in links if other != link])

    def _answered(self, answered: _Answered, now: int) -> Said:
        key = (answered.asker, answered.epoch, answered.number)
        way = self._ways.pop(key, None)
        if way is None or way[1] < now:
            return Said([])
        if answered.asker == self._broker and answered.epoch == self._epoch:
            return Said([], answered=(answered.number, answered.payload))
        return Said([(way[0], msgspec.msgpack.encode(answered))])

    def answer(self, key: tuple[int, int, int], payload: bytes, now: int) -> Said:
        """Answer a question that was for this broker.

        Raises:
            QuestionError: the answer is too long to travel.
        """
        if len(payload) > MAX_ANSWER_BYTES:
            raise QuestionError(f"an answer has at most {MAX_ANSWER_BYTES:,} bytes, this has {len(payload):,}")
        way = self._ways.get(key)
        if way is None or way[1] < now:
            return Said([])
        return Said([(way[0], msgspec.msgpack.encode(_Answered(*key, payload)))])

    def _remember(self, key: _Key, link: int, now: int) -> None:
        self._ways[key] = (link, now + REMEMBERED_MS)
        while self._ways:
            oldest = next(iter(self._ways))
            if self._ways[oldest][1] >= now and len(self._ways) <= MAX_REMEMBERED:
                return
            del self._ways[oldest]
