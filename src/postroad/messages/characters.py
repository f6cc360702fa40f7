"""Invisible characters: two names that look the same must be the same.

They are refused in topics, logins and ids of subscriptions, which appear in logs, status pages and traces. They are
blanks (White_Space), control and format characters (general categories Cc and Cf), what Unicode calls
default-ignorable, and the blank of Braille. Format characters include those that change the direction of text, and the
joiners of Persian, Indic scripts and emoji: a topic cannot contain these either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["INVISIBLE", "first_invisible", "is_invisible", "shown"]

# Ranges beyond ASCII, ascending, both ends included; Unicode 15.1. `unicodedata` would depend on the version of Python,
# and brokers that run different versions must agree on what a topic is.
INVISIBLE = (
    (0x0080, 0x00A0),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)

_FIRST: NDArray[np.int64] = np.array([first for first, _ in INVISIBLE], dtype=np.int64)
_LAST: NDArray[np.int64] = np.array([last for _, last in INVISIBLE], dtype=np.int64)
_WIDE = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in INVISIBLE)
_ANY = re.compile(f"[\x00-\x20\x7f{_WIDE}]")
_BUT_BLANKS = re.compile(f"[\x00-\x1f\x7f{_WIDE}]")


def first_invisible(text: str, blanks: bool = False) -> int | None:
    """Return the offset of the first invisible character, or None.

    Args:
        text: a topic or a name.
        blanks: let plain blanks (U+0020) pass, as names of people and programs have them.
    """
    found = (_BUT_BLANKS if blanks else _ANY).search(text)
    return None if found is None else found.start()


def shown(character: str) -> str:
    """Return how errors write an invisible character."""
    return f"U+{ord(character):04X}"


@device
def is_invisible(point: int) -> bool:
    """Whether a code point beyond ASCII is invisible."""
    # A binary search: 0 <= low <= middle < high <= the length of both tables.
    low, high = 0, len(_FIRST)
    while low < high:
        middle = (low + high) // 2
        if point < _FIRST[middle]:
            high = middle
        elif point > _LAST[middle]:
            low = middle + 1
        else:
            return True
    return False
