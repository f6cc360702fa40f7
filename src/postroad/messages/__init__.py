"""Messages: the batch, the lazy message, ids, typed attributes, and their encoded form (`docs/formats.md`)."""

from __future__ import annotations

from postroad.messages.batch import Batch
from postroad.messages.drafts import Draft
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.identity import IdGenerator, MessageId
from postroad.messages.message import Message
from postroad.messages.numbers import number_of, parse_number
from postroad.messages.values import Tag, Untyped, Value

__all__ = [
    "Batch",
    "DecodeError",
    "Draft",
    "IdGenerator",
    "Message",
    "MessageError",
    "MessageId",
    "Tag",
    "Untyped",
    "Value",
    "number_of",
    "parse_number",
]
