"""The one hash, the positions it gives in an array of bits, and the filters made of them."""

from __future__ import annotations

from postroad.filters.bloom import BloomFilter, bloom_contains, count_ones
from postroad.filters.errors import FilterError
from postroad.filters.hashes import (
    SEED,
    derived_key,
    derived_keys,
    derived_pairs,
    derived_sets,
    hash_bytes,
    hash_ids,
    mix64,
)
from postroad.filters.positions import MAX_HASHES, MAX_POSITIONS, ONE_WORD_POSITIONS, positions
from postroad.filters.ribbon import MAX_RIBBON_COLUMNS, MAX_RIBBON_KEYS, RibbonFilter, ribbon_bits
from postroad.filters.sizes import (
    TABLE_2,
    Shape,
    best_hashes,
    bits_for,
    capacity_for,
    effective_rate,
    false_positive_rate,
    filled_rate,
    limit_bits,
    rate_for,
    shape_for,
)

__all__ = [
    "MAX_HASHES",
    "MAX_POSITIONS",
    "MAX_RIBBON_COLUMNS",
    "MAX_RIBBON_KEYS",
    "ONE_WORD_POSITIONS",
    "SEED",
    "TABLE_2",
    "BloomFilter",
    "FilterError",
    "RibbonFilter",
    "Shape",
    "best_hashes",
    "bits_for",
    "bloom_contains",
    "capacity_for",
    "count_ones",
    "derived_key",
    "derived_keys",
    "derived_pairs",
    "derived_sets",
    "effective_rate",
    "false_positive_rate",
    "filled_rate",
    "hash_bytes",
    "hash_ids",
    "limit_bits",
    "mix64",
    "positions",
    "rate_for",
    "ribbon_bits",
    "shape_for",
]
