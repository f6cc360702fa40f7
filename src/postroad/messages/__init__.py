"""Messages: the batch, the lazy message, ids, typed attributes, and their encoded form (`docs/formats.md`)."""

from __future__ import annotations

from postroad.messages.batch import Batch
from postroad.messages.decoder import check_batch, decode_batch
from postroad.messages.drafts import Draft
from postroad.messages.encoder import encode, encode_batch, encode_metadata
from postroad.messages.envelope import decode_envelopes, encode_envelopes
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.identity import IdGenerator, IdStatistics, MessageId
from postroad.messages.lookup import AttributeTexts, attribute_texts
from postroad.messages.message import Message
from postroad.messages.numbers import number_of, parse_number
from postroad.messages.values import Tag, Untyped, Value

__all__ = [
    "AttributeTexts",
    "Batch",
    "DecodeError",
    "Draft",
    "IdGenerator",
    "IdStatistics",
    "Message",
    "MessageError",
    "MessageId",
    "Tag",
    "Untyped",
    "Value",
    "attribute_texts",
    "check_batch",
    "decode_batch",
    "decode_envelopes",
    "encode",
    "encode_batch",
    "encode_envelopes",
    "encode_metadata",
    "number_of",
    "parse_number",
]
