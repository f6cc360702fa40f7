"""Questions about messages that brokers ask each other over their links.

A question names the broker it is for and spreads over all links; each broker passes it on once. The target answers, and
the answer goes back the way the question came, or directly to an asker that is a neighbour. That works with every
strategy and while routes change. A question is small and rare, so the cost of spreading it does not matter.

If brokers have keys, the asker signs its question and the target its answer, and every broker checks both before it
remembers or relays them: no broker can ask or answer in the name of another. Without keys, only the answer of a
neighbour is bound to its source, by the link to that neighbour.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from postroad.errors import PostroadError
from postroad.messages import MessageId

if TYPE_CHECKING:
    from collections.abc import Collection

    from postroad.routing.link_state_records import Seals

__all__ = ["MAX_ANSWER_BYTES", "QuestionError", "Questions", "Said"]

# One broker's answer about one message: some 50 bytes for each subscription that got it, ten thousand of them.
MAX_ANSWER_BYTES = 1024 * 1024
# How long the way back is remembered: an answer that takes longer is too late for the asker.
REMEMBERED_MS = 10_000
# Ways back remembered at once; the oldest go first.
MAX_REMEMBERED = 20_000
# Questions of one asker per second; further ones are not passed on. A trace asks each broker that a message went to
# once, and each question costs every broker a signature to check: 200 in a second are 3 % of a processor.
MAX_OF_ASKER = 2_000
# Longer than any route through a network of a thousand brokers; a question that travels further is in a loop.
MAX_HOPS = 64
# The prefix of what is signed, so that nothing else a broker signs can pass for a question or an answer.
_ASKED_SIGNED, _ANSWERED_SIGNED = b"question\0", b"answer\0"
# An Ed25519 signature, or none.
_SIGNATURE_BYTES = 64

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Payload = Annotated[bytes, msgspec.Meta(max_length=MAX_ANSWER_BYTES)]
_Signature = Annotated[bytes, msgspec.Meta(max_length=_SIGNATURE_BYTES)]


class QuestionError(PostroadError):
    """Bytes from a neighbour that are neither a question nor an answer, or not from the broker that they claim."""


class _Asked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    asker: _Number
    epoch: _Number
    number: _Number
    target: _Number
    hops: Annotated[int, msgspec.Meta(ge=0, le=MAX_HOPS)]
    message: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    signature: _Signature = b""

    def signed(self) -> bytes:
        """Return what the asker signs: all but the hops, which change on the way."""
        fields = (self.asker, self.epoch, self.number, self.target, self.message)
        return _ASKED_SIGNED + msgspec.msgpack.encode(fields)


class _Answered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    asker: _Number
    epoch: _Number
    number: _Number
    payload: _Payload
    signature: _Signature = b""

    def signed(self, target: int, message: bytes) -> bytes:
        """Return what the target signs: the question, and the answer by its SHA-256."""
        fields = (self.asker, self.epoch, self.number, target, message, sha256(self.payload).digest())
        return _ANSWERED_SIGNED + msgspec.msgpack.encode(fields)


_DECODER = msgspec.msgpack.Decoder(_Asked | _Answered)
_Key = tuple[int, int, int]


@dataclass(slots=True)
class _SeenQuestion:
    """A question that was seen: the link back to its asker, whom it asks, and what."""

    link: int  # 0 for a question of this broker
    until: int
    target: int
    message: bytes
    answered: bool = False


class Said(NamedTuple):
    """What to do after a call.

    Attributes:
        sends: (link, bytes) to send.
        asked: (key, message) to answer here, with `answer`.
        answered: (number, payload): an answer to a question asked here.
        refused: why nothing was done with what arrived, though an honest neighbour may have sent it.
    """

    sends: list[tuple[int, bytes]]
    asked: tuple[tuple[int, int, int], MessageId] | None = None
    answered: tuple[int, bytes] | None = None
    refused: str = ""


class Questions:
    """The questions of one broker, and those it passes on.

    Args:
        broker: this broker.
        epoch: when it was started: numbers begin again then.
        seals: signs what this broker sends, and checks what others sign; None if brokers have no keys.
    """

    def __init__(self, broker: int, epoch: int, seals: Seals | None = None) -> None:
        self._broker = broker
        self._epoch = epoch
        self._seals = seals
        self._next = 1
        # By (asker, epoch, number), the oldest first: all are remembered for the same time.
        self._ways: OrderedDict[_Key, _SeenQuestion] = OrderedDict()
        self._of_asker: Counter[int] = Counter()

    def ask(self, target: int, message: MessageId, links: Collection[int], now: int) -> tuple[int, Said]:
        """Ask another broker; return the number that identifies its answer."""
        number, self._next = self._next, self._next + 1
        asked = _Asked(self._broker, self._epoch, number, target, MAX_HOPS, bytes(message))
        if self._seals is not None:
            asked = msgspec.structs.replace(asked, signature=self._seals.sign(asked.signed()))
        self._remember(
            (self._broker, self._epoch, number), _SeenQuestion(0, now + REMEMBERED_MS, target, asked.message), now
        )
        data = msgspec.msgpack.encode(asked)
        return number, Said([(link, data) for link in links])

    def receive(self, data: bytes, link: int, links: Collection[int], now: int) -> Said:
        """Take a question or an answer that arrived over a link.

        Raises:
            QuestionError: it is neither, or was not signed by the broker that it claims.
        """
        try:
            said = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise QuestionError(f"link {link}: not a question about a message: {error}") from error
        if isinstance(said, _Asked):
            return self._asked(said, link, links, now)
        return self._answered(said, link, links, now)

    def _asked(self, asked: _Asked, link: int, links: Collection[int], now: int) -> Said:
        key = (asked.asker, asked.epoch, asked.number)
        if key in self._ways or asked.asker == self._broker:
            return Said([])
        self._forget(now)
        if self._of_asker[asked.asker] >= MAX_OF_ASKER:
            return Said([], refused=f"more than {MAX_OF_ASKER:,} questions of broker {asked.asker} in 10 s")
        if not self._is_listed(asked.asker):
            return Said([], refused=f"a question of broker {asked.asker}, which this network does not list")
        self._check(asked.asker, asked.signed(), asked.signature, f"broker {link} sent a question")
        self._remember(key, _SeenQuestion(link, now + REMEMBERED_MS, asked.target, asked.message), now)
        if asked.target == self._broker:
            return Said([], asked=(key, MessageId.from_bytes(asked.message)))
        if asked.hops == 0:
            return Said([])
        data = msgspec.msgpack.encode(msgspec.structs.replace(asked, hops=asked.hops - 1))
        return Said([(other, data) for other in links if other != link])

    def _answered(self, answered: _Answered, link: int, links: Collection[int], now: int) -> Said:
        way = self._ways.get((answered.asker, answered.epoch, answered.number))
        if way is None or way.until < now or way.answered or way.link == link:
            # The last condition: an answer does not come from the side of its asker.
            return Said([])
        if not self._is_listed(way.target):
            return Said([], refused=f"an answer of broker {way.target}, which this network does not list")
        signed = answered.signed(way.target, way.message)
        self._check(way.target, signed, answered.signature, f"broker {link} sent an answer")
        if way.link:
            way.answered = True
            return Said([(way.link, msgspec.msgpack.encode(answered))])
        if self._seals is None and way.target in links and way.target != link:
            return Said([], refused=f"an answer of broker {way.target}, which would have sent it over its own link")
        way.answered = True
        return Said([], answered=(answered.number, answered.payload))

    def answer(self, key: tuple[int, int, int], payload: bytes, links: Collection[int], now: int) -> Said:
        """Answer a question that was for this broker.

        Raises:
            QuestionError: the answer is too long to travel.
        """
        if len(payload) > MAX_ANSWER_BYTES:
            raise QuestionError(f"an answer has at most {MAX_ANSWER_BYTES:,} bytes, this has {len(payload):,}")
        way = self._ways.get(key)
        if way is None or way.until < now or way.answered:
            return Said([])
        way.answered = True
        answered = _Answered(*key, payload)
        if self._seals is not None:
            signature = self._seals.sign(answered.signed(self._broker, way.message))
            answered = msgspec.structs.replace(answered, signature=signature)
        # An asker that is a neighbour trusts this link more than any detour.
        link = key[0] if key[0] in links else way.link
        return Said([(link, msgspec.msgpack.encode(answered))])

    def _is_listed(self, broker: int) -> bool:
        return self._seals is None or self._seals.knows(broker)

    def _check(self, broker: int, signed: bytes, signature: bytes, what: str) -> None:
        if self._seals is not None and not self._seals.verify(broker, signed, signature):
            raise QuestionError(f"{what} of broker {broker} that broker did not sign")

    def _remember(self, key: _Key, way: _SeenQuestion, now: int) -> None:
        self._ways[key] = way
        self._of_asker[key[0]] += 1
        self._forget(now)

    def _forget(self, now: int) -> None:
        while self._ways:
            oldest = next(iter(self._ways))
            if self._ways[oldest].until >= now and len(self._ways) <= MAX_REMEMBERED:
                return
            del self._ways[oldest]
            self._of_asker[oldest[0]] -= 1
            if not self._of_asker[oldest[0]]:
                del self._of_asker[oldest[0]]
