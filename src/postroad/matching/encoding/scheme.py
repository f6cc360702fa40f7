"""`Scheme`: how predicates and messages become bit vectors; both sides must use the same one.

The *paper's* scheme has two kinds of categories: "this attribute exists, with this type" and "this attribute equals
this value". Every constraint but equality then says only that the attribute exists. The *sharp* scheme adds a ladder
of thresholds for numbers, and prefixes, suffixes and grams (short runs of bytes) for text.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from postroad.errors import LimitError
from postroad.matching.encoding.errors import EncodingError

__all__ = [
    "MAX_BITS",
    "MAX_GRAM",
    "MAX_SCHEME_HASHES",
    "MAX_THRESHOLDS",
    "PERCENT_LADDER",
    "Scheme",
    "even_ladder",
]

MAX_BITS = 32_768  # 4 KiB per conjunction; positions, and one more for "always", must fit in 16 bits
WORD_BITS = 64
MAX_SCHEME_HASHES = 32  # the best k for 20 categories in 1,024 bits is 35; more only fills the vector
MAX_GRAM = 4
MAX_THRESHOLDS = 64  # each number of a message carries one category per threshold
# Beyond this a 64-bit integer is not always exact as a float64, and a kernel could place it on the wrong side.
THRESHOLD_BOUND = float(2**53)


@dataclass(frozen=True, slots=True)
class Scheme:
    """The parameters of an encoding; they travel with every encoded predicate list.

    Attributes:
        bits: M, the length of a vector; a multiple of 64.
        hashes: k, the bits that each category sets.
        thresholds: the ladder for numbers, strictly increasing; empty for the paper's scheme.
        gram: bytes of a gram and the longest prefix and suffix, 2 to 4; 0 for the paper's scheme.
        topics: whether messages carry categories of their topic.
        priority: whether messages carry categories of their priority, as the selector name JMSPriority.
    """

    bits: int
    hashes: int
    thresholds: tuple[float, ...] = ()
    gram: int = 0
    topics: bool = True
    priority: bool = False

    def __post_init__(self) -> None:
        if self.bits > MAX_BITS:
            raise LimitError("the length of a vector", self.bits, MAX_BITS, "bits")
        if self.bits < WORD_BITS or self.bits % WORD_BITS:
            raise EncodingError(f"a vector of {self.bits} bits: want a multiple of {WORD_BITS}, at least {WORD_BITS}")
        if not 1 <= self.hashes <= MAX_SCHEME_HASHES:
            raise EncodingError(f"{self.hashes} bits per category: want 1 to {MAX_SCHEME_HASHES}")
        if self.gram not in (0, *range(2, MAX_GRAM + 1)):
            raise EncodingError(f"grams of {self.gram} bytes: want 2 to {MAX_GRAM}, or 0 for none")
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        ladder = self.thresholds
        if len(ladder) > MAX_THRESHOLDS:
            raise LimitError("the number of thresholds", len(ladder), MAX_THRESHOLDS)
        for index, threshold in enumerate(ladder):
            if not isfinite(threshold) or abs(threshold) >= THRESHOLD_BOUND:
                raise EncodingError(f"threshold {index} is {threshold}: want a number between -2^53 and 2^53")
            if index and ladder[index - 1] >= threshold:
                raise EncodingError(f"threshold {index}, {threshold}, is not above {ladder[index - 1]} before it")

    @classmethod
    def paper(cls, bits: int = 512, hashes: int = 10, *, topics: bool = True, priority: bool = False) -> Scheme:
        """Existence and equality only, as B-DRP was published."""
        return cls(bits, hashes, topics=topics, priority=priority)

    @classmethod
    def sharp(
        cls,
        bits: int = 4096,
        hashes: int = 8,
        *,
        thresholds: tuple[float, ...] | None = None,
        topics: bool = True,
        priority: bool = False,
    ) -> Scheme:
        """With a ladder (`PERCENT_LADDER` if none is given) and grams of three bytes."""
        ladder = PERCENT_LADDER if thresholds is None else thresholds
        return cls(bits, hashes, ladder, gram=3, topics=topics, priority=priority)


def even_ladder(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` thresholds that cut the range from `low` to `high` into equal parts."""
    return tuple(low + (high - low) * step / (count + 1) for step in range(1, count + 1))


PERCENT_LADDER = even_ladder(0, 100, 7)
