"""Messages: the batch, the lazy message, ids, typed attributes, and their encoded form (`docs/formats.md`)."""

from __future__ import annotations

from postroad.messages.batch import Batch
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.numbers import number_of, parse_number
from postroad.messages.values import Tag, Untyped, Value

__all__ = ["Batch", "DecodeError", "MessageError", "Tag", "Untyped", "Value", "number_of", "parse_number"]
