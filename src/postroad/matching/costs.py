"""What matching one message can cost, in about nanoseconds: the measure of two limits.

*Resident work* is the most that any single message could cost with what is resident: every conjunction is reached,
every constraint in it is tested, and every text is as long as a text may be. The index keeps the sum as subscriptions
come and go; a broker refuses a subscription that would lift it beyond its limit. Constraints that several subscriptions
share are tested once for a message, and count once.

*Work done* is counted while a batch is matched, by the same prices but for what really happens. When it goes beyond a
budget, the match stops after the current row, and its caller continues later (`SubscriptionIndex.match`).

The prices are upper bounds: each is what the worst message costs that we could construct (`scripts/bench worst_cases`,
in processor time on the machine of docs/benchmarks.md, which shows both), and about a third more. They decide when work
is cut or refused, never what matches.
"""

from __future__ import annotations

from postroad.kernels import Int, inlined
from postroad.matching.search import ANY_ONE, ANY_RUN
from postroad.messages.limits import MAX_VALUE_BYTES

__all__ = [
    "CANDIDATE_COST",
    "ENTRY_COST",
    "GRAM_COST",
    "HARD_COST",
    "LIKE_BYTE_COST",
    "MEMBER_COST",
    "READ_BYTE_COST",
    "RESULT_COST",
    "ROW_COST",
    "SHAPE_COST",
    "SUBSTRING_BYTE_COST",
    "WORD_COST",
    "like_cost",
    "like_work",
    "substring_cost",
]

# A conjunction that a message reaches: its entry comes from memory, seldom from a cache.
ENTRY_COST = 50
# One more constraint of it to test: its row seldom follows the one before, and may come from memory too.
MEMBER_COST = 100
# An entry during a match, where entries of one bucket follow each other in memory.
CANDIDATE_COST = 20
# A byte of text in a search for a substring, and in a LIKE, where the plain search has given up.
SUBSTRING_BYTE_COST = 7
LIKE_BYTE_COST = 14
# One step of a program, and one word of a LIKE with holes for a byte of text.
WORD_COST = 1
# A window of a text that is looked up: for each byte of the text and each resident length.
GRAM_COST = 15
# A shape of topic patterns, a row as such, and a byte of its names and values: a short line costs 25 or less, with
# the look-ups of its name and its value, and a long value one or two for each byte.
SHAPE_COST = 100
ROW_COST = 200
READ_BYTE_COST = 6
# A number that only Python can round.
HARD_COST = 3_000
# A match: what delivering it costs later, mostly in Python. By far the largest price, as it should be.
RESULT_COST = 1_000


def substring_cost() -> int:
    """The most that a search for a substring can cost."""
    return MAX_VALUE_BYTES * SUBSTRING_BYTE_COST


def like_cost(pattern: bytes) -> int:
    """The most that a LIKE can cost; `pattern` as `compiling.like_bytes` gives it."""
    parts = pattern.split(bytes((ANY_RUN,)))
    if len(parts) == 1:
        return len(pattern) * LIKE_BYTE_COST
    widest = max((len(part) + 63 >> 6 for part in parts if ANY_ONE in part), default=0)
    return MAX_VALUE_BYTES * (LIKE_BYTE_COST + widest * WORD_COST)


@inlined
def like_work(size: Int, length: Int) -> Int:
    """What a LIKE of this many bytes can cost on a text of this length, taken to have a hole."""
    return (LIKE_BYTE_COST + WORD_COST * ((size + 63) >> 6)) * length
