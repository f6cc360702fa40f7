"""A broker's answer about one message, with the names for its numbers, as bytes that travel between brokers."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from postroad.errors import PostroadError
from postroad.tracking.findings import Findings  # noqa: TC001  # msgspec reads it at run time

__all__ = ["Answer", "AnswerError", "NamedSubscription", "decode_answer", "encode_answer"]


class AnswerError(PostroadError):
    """The bytes are not an answer."""


class NamedSubscription(NamedTuple):
    """A subscription by number, with what is known about it."""

    number: int
    principal: str
    topic: str
    selector: str


class Answer(NamedTuple):
    """What one broker says about one message.

    Attributes:
        findings: its record.
        publisher: the name of the id's publisher; None if it is not known here.
        subscriptions: those named in the findings, as far as they are known.
    """

    findings: Findings
    publisher: str | None
    subscriptions: tuple[NamedSubscription, ...]


_DECODER = msgspec.msgpack.Decoder(Answer)


def encode_answer(answer: Answer) -> bytes:
    """The answer as MessagePack."""
    return msgspec.msgpack.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """The answer in these bytes.

    Raises:
        AnswerError: there is none.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerError(f"not an answer about a message: {error}") from error
