"""The constraints that indexes work with: one attribute, one operator, one operand."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Conjunction", "Constraint", "Operator", "Range"]


class Operator(IntEnum):
    """What a constraint requires of its attribute. A number may also be untyped text that reads as one."""

    EQUAL_NUMBER = 1  # operand: int | float. A number equal to it.
    NOT_EQUAL_NUMBER = 2  # operand: int | float. A number that differs.
    RANGE = 3  # operand: Range. A number inside.
    EQUAL_TEXT = 4  # operand: str. Text or untyped text, equal.
    NOT_EQUAL_TEXT = 5  # operand: str. Text or untyped text that differs.
    IN_TEXT = 6  # operand: tuple[str, ...], sorted, distinct, two or more.
    NOT_IN_TEXT = 7  # operand: the same. Text or untyped text that is none of them.
    PREFIX = 8  # operand: str, not empty.
    SUFFIX = 9  # operand: str, not empty.
    SUBSTRING = 10  # operand: str, not empty.
    LIKE = 11  # operand: LikePattern; those that the three above and EQUAL_TEXT do not cover.
    NOT_LIKE = 12  # operand: LikePattern; every negated one.
    EQUAL_BOOLEAN = 13  # operand: bool.
    EXISTS = 14  # operand: None. The message has the attribute, of any type.
    MISSING = 15  # operand: None.
    TEST = 16  # operand: a tree whose `truth` must be True; the attribute is "".


class Range(NamedTuple):
    """Numbers between two bounds. None means no bound; an open bound is itself outside."""

    low: int | float | None
    low_open: bool
    high: int | float | None
    high_open: bool


class Constraint(NamedTuple):
    """One condition on one attribute."""

    attribute: str
    operator: Operator
    operand: Any


Conjunction: TypeAlias = tuple[Constraint, ...]
"""All constraints must hold; an empty conjunction always holds."""
