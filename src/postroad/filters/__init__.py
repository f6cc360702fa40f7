"""The one hash, and the positions it gives in an array of bits."""

from __future__ import annotations

from postroad.filters.hashing import SEED, derived_key, derived_keys, hash_bytes, hash_ids, hash_spans, mix64
from postroad.filters.positions import MAX_HASHES, MAX_POSITIONS, ONE_WORD_POSITIONS, positions

__all__ = [
    "MAX_HASHES",
    "MAX_POSITIONS",
    "ONE_WORD_POSITIONS",
    "SEED",
    "derived_key",
    "derived_keys",
    "hash_bytes",
    "hash_ids",
    "hash_spans",
    "mix64",
    "positions",
]
