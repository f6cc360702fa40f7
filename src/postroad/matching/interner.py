"""The way into the constraint store from Python: numbers for names, rows for constraints.

Names and shapes of topic patterns are known twice: here, in dictionaries, for those who subscribe; and in the arrays of
`Tables` (`names`, `shapes`), for kernels that look up what a message has. A number is given once and stays as long as a
constraint mentions it. `tidy` takes back what is mentioned no more: with each `remove` that would cost a walk over all
constraints, and until then a message is only asked for a name in vain.

References: whoever calls `text`, `range` and so on owns one reference to the row it gets. A conjunction takes it over;
what no conjunction takes over goes back by `release`. A list of texts owns one to each of its members.

Arrays grow here, outside kernels: `intern` returns WORDS_FULL or TEXT_FULL and has then changed nothing, so that asking
again after growing is the same request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.matching import columns
from postroad.matching.columns import (
    ALWAYS,
    CONSTRAINTS_USED,
    MENTIONS,
    MESSAGE_ID_ATTRIBUTE,
    NAMES_LIVE,
    PRIORITY_ATTRIBUTE,
    RESERVED_ATTRIBUTES,
    SECRET,
    SHAPE_USES,
    TIMESTAMP_ATTRIBUTE,
    TOPIC_ATTRIBUTE,
    TOPIC_SHAPES,
)
from postroad.matching.pieces import tidy_pieces
from postroad.matching.programs import STACK_COLUMNS
from postroad.matching.registry import drop_name, put_name, rebuild_names, shape_key
from postroad.matching.store import TEXT_FULL, WORDS_FULL, intern, release_all
from postroad.matching.tables import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.compiler import Program
    from postroad.matching.tables import Tables
    from postroad.selectors import TopicPattern

# The JMS names that are other attributes under another name, and those that come from the envelope (docs/formats.md).
_ALIASES = {"JMSCorrelationID": "correlation-id", "JMSType": "type"}
_DERIVED = {
    "JMSPriority": PRIORITY_ATTRIBUTE,
    "JMSTimestamp": TIMESTAMP_ATTRIBUTE,
    "JMSMessageID": MESSAGE_ID_ATTRIBUTE,
}

# A message attribute's name has at most this many bytes; a selector that asks for a longer one can never see it.
_MAX_NAME = 255

# A request to the store: kind, attribute, flags, two words of bits, content.
REQUEST_SIZE = 6
_NO_WORDS = np.zeros(0, np.int32)
NO_TEXT = np.zeros(0, np.uint8)
NO_BOUNDS = np.zeros(2, np.float64)


# Levels, a mask of the levels that are stars, and whether the pattern ends in `>`.
Shape = tuple[int, int, bool]
# In the place of a shape's number: the pattern is tested and never looked up.
_NO_SHAPE = -1


def _shape_of(pattern: TopicPattern) -> Shape:
    levels = pattern.levels
    is_open = levels[-1] == ">"
    count = len(levels) - is_open
    stars = sum(1 << place for place in range(count) if levels[place] == "*")
    # The mask is a signed word in the kernels; a star at the 64th level sets its sign.
    return count, stars - (1 << 64) if stars >> 63 else stars, is_open


class Interner:
    """Finds or makes the rows of constraints; each call takes one reference."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.stack = np.zeros((8, STACK_COLUMNS), np.int64)
        self.floats = np.zeros(8, np.float64)
        self._names: dict[str, int] = {}
        self._free_names: list[int] = []
        self._next_name = RESERVED_ATTRIBUTES
        self._shapes: dict[Shape, int] = {}
        self._free_shapes: list[int] = []
        self._request = np.zeros(REQUEST_SIZE, np.int64)

    def copied(self, tables: Tables) -> Interner:
        """One that knows the same names and shapes, for a copy of the tables."""
        twin = Interner(tables)
        twin.stack, twin.floats = self.stack.copy(), self.floats.copy()
        twin._names, twin._free_names = dict(self._names), list(self._free_names)
        twin._next_name = self._next_name
        twin._shapes, twin._free_shapes = dict(self._shapes), list(self._free_shapes)
        return twin

    @property
    def attribute_count(self) -> int:
        """How many names are known."""
        return len(self._names)

    def attribute(self, name: str) -> int:
        """The number of an attribute name."""
        name = _ALIASES.get(name, name)
        number = _DERIVED.get(name)
        if number is None:
            number = self._names.get(name)
        return self._new_name(name) if number is None else number

    def text(self, kind: int, attribute: int, data: bytes) -> int:
        """A constraint with a text."""
        return self._intern(kind, attribute, text=np.frombuffer(data, np.uint8))

    def searched(self, kind: int, attribute: int, data: bytes, cost: int) -> int:
        """A constraint that looks for a text or pattern anywhere in a value, and what that costs at most."""
        return self._intern(kind, attribute, bits=(cost, 0), text=np.frombuffer(data, np.uint8))

    def number(self, kind: int, attribute: int, bits: int, integral: int) -> int:
        """A constraint with one number in canonical form."""
        return self._intern(kind, attribute, bits=(bits, integral))

    def range(
        self, kind: int, attribute: int, flags: int, low: float, high: float, low_bits: int, high_bits: int
    ) -> int:
        """A constraint with two bounds."""
        return self._intern(kind, attribute, flags, (low_bits, high_bits), bounds=np.array((low, high)))

    def plain(self, kind: int, attribute: int, flags: int = 0) -> int:
        """A constraint that needs no operand, or only a flag."""
        return self._intern(kind, attribute, flags)

    def always(self) -> int:
        """The constraint that every message meets."""
        return self._intern(ALWAYS, TOPIC_ATTRIBUTE)

    def listed(self, kind: int, attribute: int, texts: list[bytes]) -> int:
        """A constraint over a list of texts: each is an equality of its own, which the list refers to."""
        members: list[int] = []
        try:
            # One by one, so that those before a refused one are known.
            members.extend(self.text(columns.EQUAL_TEXT, attribute, data) for data in texts)
            return self._intern(kind, attribute, words=np.array(sorted(members), np.int32))
        except BaseException:
            self.release(members)
            raise

    def program(self, program: Program) -> int:
        """A constraint that runs a program."""
        if program.depth > len(self.floats):
            self.stack = grown(self.stack, 2 * program.depth)
            self.floats = grown(self.floats, 2 * program.depth)
        words, text = np.array(program.words, np.int32), np.frombuffer(program.text, np.uint8)
        return self._intern(columns.TEST, TOPIC_ATTRIBUTE, bits=(program.cost, 0), words=words, text=text)

    def topic(self, pattern: TopicPattern) -> tuple[int, bool]:
        """A constraint with a topic pattern that has wildcards, and whether messages are looked up in it by its shape.

        Where there are as many shapes as there may be, a pattern of another one can only be tested.
        """
        data = np.frombuffer(pattern.text.encode(), np.uint8)
        shape = _shape_of(pattern)
        number = self._shape_number(shape)
        if number is None:
            return self._intern(columns.TOPIC, TOPIC_ATTRIBUTE, bits=(_NO_SHAPE, 0), text=data), False
        levels, stars, _ = shape
        content = shape_key(data, levels, stars, number, int(self.tables.counters[SECRET]))
        bits = (number, 0)
        return self._intern(columns.TOPIC, TOPIC_ATTRIBUTE, bits=bits, text=data, content=content), True

    def release(self, members: list[int]) -> None:
        """Give references back that no conjunction took over."""
        tables = self.tables
        release_all(tables.store, np.array(members, np.int32))

    def tidy(self) -> None:
        """Forget names, lengths and shapes that no constraint uses any more: messages need not be asked for them."""
        tables = self.tables
        used = int(tables.counters[CONSTRAINTS_USED])
        tidy_pieces(tables.store, used)
        unused = [name for name, number in self._names.items() if not tables.attributes[number, MENTIONS]]
        for name in unused:
            number = self._names.pop(name)
            drop_name(tables.store, number)
            self._free_names.append(number)
        tables.counters[NAMES_LIVE] = len(self._names)
        if unused:
            self._rebuild_names(len(tables.names))
        self._collect_shapes()

    def _new_name(self, name: str) -> int:
        data = name.encode()
        if len(data) > _MAX_NAME:
            raise LimitError("the name of an attribute", len(data), _MAX_NAME, "bytes of UTF-8")
        tables = self.tables
        number = self._free_names[-1] if self._free_names else self._next_name
        # Whatever can be refused comes before anything changes.
        if number >= len(tables.attributes):
            tables.grow_attributes(2 * len(tables.attributes))
        if 2 * len(self._names) >= len(tables.names):
            self._rebuild_names(2 * len(tables.names))
        self._put_name(name, number)
        if number == self._next_name:
            self._next_name += 1
        else:
            self._free_names.pop()
        self._names[name] = number
        tables.counters[NAMES_LIVE] = len(self._names)
        return number

    def _put_name(self, name: str, number: int) -> None:
        tables = self.tables
        data = np.frombuffer(name.encode(), np.uint8)
        while put_name(tables.store, data, number) < 0:
            tables.grow_text()

    def _rebuild_names(self, size: int) -> None:
        tables = self.tables
        tables.clear_names(size)
        live = np.fromiter(self._names.values(), np.int32, len(self._names))
        rebuild_names(tables.store, live)

    def _shape_number(self, shape: Shape) -> int | None:
        """The number of a shape; None when the limit is reached."""
        tables = self.tables
        number = self._shapes.get(shape)
        if number is not None:
            return number
        if not self._free_shapes and len(self._shapes) >= tables.ceilings.shapes:
            self._collect_shapes()
            if not self._free_shapes:
                return None
        number = self._free_shapes.pop() if self._free_shapes else len(self._shapes)
        if number >= len(tables.shapes):
            tables.grow_shapes()
        self._shapes[shape] = number
        tables.shapes[number] = (*shape, 0)
        tables.counters[TOPIC_SHAPES] = max(int(tables.counters[TOPIC_SHAPES]), number + 1)
        return number

    def _collect_shapes(self) -> None:
        """Take back the numbers of shapes that no pattern has any more; `store.py` counts the patterns."""
        tables = self.tables
        uses = tables.shapes[:, SHAPE_USES]
        unused = [shape for shape, number in self._shapes.items() if not uses[number]]
        self._free_shapes += [self._shapes.pop(shape) for shape in unused]
        tables.counters[TOPIC_SHAPES] = max(self._shapes.values(), default=-1) + 1
        if not self._shapes:
            self._free_shapes = []

    def _intern(
        self,
        kind: int,
        attribute: int,
        flags: int = 0,
        bits: tuple[int, int] = (0, 0),
        content: int = 0,
        bounds: NDArray[np.float64] = NO_BOUNDS,
        words: NDArray[np.int32] = _NO_WORDS,
        text: NDArray[np.uint8] = NO_TEXT,
    ) -> int:
        tables = self.tables
        tables.make_room()
        request = self._request
        request[:] = (kind, attribute, flags, *bits, content)
        while True:
            number = intern(tables.store, request, bounds, words, text)
            if number == WORDS_FULL:
                tables.grow_words()
            elif number == TEXT_FULL:
                tables.grow_text()
            else:
                return int(number)
