"""`Selector`: a parsed condition on the attributes of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors.limits import MAX_NESTING
from postroad.selectors.normal_form import disjunction
from postroad.selectors.parser import parse_condition
from postroad.selectors.tree import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.messages import Value
    from postroad.selectors.normal_form import Conjunction
    from postroad.selectors.tree import Node

__all__ = ["Selector"]


class Selector:
    """A condition on a message's attributes, in the language of docs/selectors.md.

    Selectors are equal if their canonical texts are, so they can be keys. They never change.
    """

    __slots__ = ("_disjunction", "_text", "condition")

    def __init__(self, condition: Node) -> None:
        self.condition = condition
        self._text: str | None = None
        self._disjunction: tuple[Conjunction, ...] | None = None

    @classmethod
    def parse(cls, text: str, nesting: int = MAX_NESTING) -> Selector:
        """Parse a selector. A blank one matches everything.

        Args:
            text: the selector.
            nesting: how deep it may be nested.

        Raises:
            SelectorError: the text is not a selector, or exceeds a limit; the error points at the place.
        """
        if not isinstance(text, str):
            raise TypeError(f"a selector is a str, not {type(text).__name__}; decode it first")
        return cls(parse_condition(text, nesting))

    def evaluate(self, attributes: Mapping[str, Value]) -> bool | None:
        """Return True, False, or None for unknown. Every faster form agrees with this reference."""
        return self.condition.truth(attributes)

    def matches(self, attributes: Mapping[str, Value]) -> bool:
        """Whether the condition is true, neither false nor unknown."""
        return self.condition.truth(attributes) is True

    @property
    def attributes(self) -> frozenset[str]:
        """The names of all attributes that the selector mentions."""
        return frozenset(names(self.condition))

    @property
    def disjunction(self) -> tuple[Conjunction, ...]:
        """The same condition as alternatives of constraints, for indexes; computed once."""
        if self._disjunction is None:
            self._disjunction = disjunction(self.condition)
        return self._disjunction

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self.condition)
        return self._text

    def __repr__(self) -> str:
        return f"Selector.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))
