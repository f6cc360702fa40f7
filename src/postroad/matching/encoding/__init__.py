"""Encoded predicates (B-DRP): categories, bit vectors, the predicate matrix, and the bytes that brokers exchange."""

from __future__ import annotations

from postroad.matching.encoding.content import Categories, message_categories
from postroad.matching.encoding.demands import conjunction_categories
from postroad.matching.encoding.errors import EncodingError
from postroad.matching.encoding.exact_form import ANY_TOPIC, decode_exact, decode_exact_in_steps, encode_exact
from postroad.matching.encoding.matrix import PredicateMatrix
from postroad.matching.encoding.predicates import EncodedPredicates
from postroad.matching.encoding.scheme import PERCENT_LADDER, Scheme, even_ladder
from postroad.matching.encoding.wire import from_bytes, from_bytes_in_steps, to_bytes

__all__ = [
    "ANY_TOPIC",
    "PERCENT_LADDER",
    "Categories",
    "EncodedPredicates",
    "EncodingError",
    "PredicateMatrix",
    "Scheme",
    "conjunction_categories",
    "decode_exact",
    "decode_exact_in_steps",
    "encode_exact",
    "even_ladder",
    "from_bytes",
    "from_bytes_in_steps",
    "message_categories",
    "to_bytes",
]
