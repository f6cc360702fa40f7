"""Messages: the batch, the lazy message, ids, typed attributes, and their encoded form (`docs/formats.md`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.identity import MessageId

if TYPE_CHECKING:
    from postroad.messages.batch import Batch
    from postroad.messages.decoder import check_batch, decode_batch
    from postroad.messages.drafts import Draft
    from postroad.messages.encoder import encode, encode_batch, encode_metadata
    from postroad.messages.envelope import decode_envelopes, encode_envelopes
    from postroad.messages.foreign_ids import AliasError, check_alias
    from postroad.messages.id_generator import IdGenerator, IdStatistics
    from postroad.messages.lookup import AttributeTexts, attribute_texts
    from postroad.messages.message import Message
    from postroad.messages.numbers import number_of, parse_number
    from postroad.messages.values import Tag, Untyped, Value

__all__ = [
    "AliasError",
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
    "check_alias",
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

# Imported when they are first used: a command that asks a broker about a message needs only ids.
_LATER = {
    "AliasError": "foreign_ids",
    "AttributeTexts": "lookup",
    "Batch": "batch",
    "Draft": "drafts",
    "IdGenerator": "id_generator",
    "IdStatistics": "id_generator",
    "Message": "message",
    "Tag": "values",
    "Untyped": "values",
    "Value": "values",
    "attribute_texts": "lookup",
    "check_alias": "foreign_ids",
    "check_batch": "decoder",
    "decode_batch": "decoder",
    "decode_envelopes": "envelope",
    "encode": "encoder",
    "encode_batch": "encoder",
    "encode_envelopes": "envelope",
    "encode_metadata": "encoder",
    "number_of": "numbers",
    "parse_number": "numbers",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
