"""How large the arrays of an index may become.

Rows refer to each other and to their texts by 32-bit integers: `columns.py` keeps a row within a cache line, and 64-bit
offsets would make every subscription a fifth larger. So the arrays end where such an integer would wrap. Without an end
the offset of a text beyond 2**31 became negative, and a kernel read whatever stood before the array.

Each value leaves room for the sums that are kept in 32 bits:

- an entry of a bucket is a conjunction's number shifted by one bit with a mark: at most 2**28;
- what is left to test is a constraint's number or, negative, a list's place in `words`: both below 2**30;
- a constraint is referred to once or twice by each conjunction and once by each word of a list: at most
  2 * 2**27 + 2**30 references, below 2**31;
- the free lists of `words` and `text` have 32 heads, one for each power of two: blocks end at 2**30.

`Tables` refuses to grow beyond them with a `LimitError`, and the allocators in `arena.py` refuse by themselves. A
broker refuses a subscription long before, by `subscription_bytes`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Ceilings"]


class Ceilings(NamedTuple):
    """The most rows of each array; smaller ones are for tests.

    Attributes:
        words: `words`, of four bytes each.
        text: bytes of `text`.
        constraints: different constraints.
        conjunctions: conjunctions of all subscriptions.
        attributes: names that constraints mention; each costs some 200 bytes.
        chunks: chunks of ranges, of 3.5 KiB each.
        shapes: shapes of topic patterns that are looked up; each costs every message a look-up. Patterns of further
            shapes are tested one by one instead. People use a handful.
    """

    words: int = 2**30
    text: int = 2**30
    constraints: int = 2**27
    conjunctions: int = 2**27
    attributes: int = 2**22
    chunks: int = 2**22
    shapes: int = 256
