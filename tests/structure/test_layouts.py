"""A layout stands in one place: the shifts and masks of ids in `messages/`, not as bare numbers where ids are read."""

from __future__ import annotations

import re

from tests.structure.repository import PACKAGE, files

# The counter of an id has 16 bits; nothing else is shifted by 16 in two operands.
_SHIFT = re.compile(r"(?:<<|>>) (?:np\.uint64\()?16\b")
_NAMED = re.compile(r"^_?[A-Z_]*(?:COUNTER_BITS|TIME_SHIFT|ENVELOPE_BYTES|_ENVELOPE|PREFIX_BYTES)\b.* = ", re.MULTILINE)

# Shifts by 16 that have nothing to do with ids.
OTHER_LAYOUTS = {
    "config/tracking.py": "a size in bytes",
    "filters/sizes.py": "a number of bits",
    "matching/pieces.py": "the key of a constraint",
    "matching/table_hash.py": "bytes of a word",
    "protocols/stomp/frame_kernels.py": "digits of a word",
    "protocols/websocket/frame_kernels.py": "the mask of a frame",
    "tracking/exact_book.py": "a size of a chunk",
}


def found(pattern: re.Pattern[str]) -> set[str]:
    modules = (path for path in files(".py", PACKAGE) if pattern.search(path.read_text("utf-8")))
    return {module for path in modules if not (module := path.relative_to(PACKAGE).as_posix()).startswith("messages/")}


def test_ids_are_taken_apart_with_the_shifts_of_messages() -> None:
    assert found(_SHIFT) == set(OTHER_LAYOUTS), "use postroad.messages.id_columns or postroad.messages.identity"


def test_sizes_of_ids_envelopes_and_prefixes_are_not_defined_again() -> None:
    assert found(_NAMED) == set()
