"""The disjunctive normal form of a selector: conjunctions of constraints, for an index.

A selector is true for a message exactly if all constraints of some conjunction are. Conditions that an index cannot use
(arithmetic, comparisons of two attributes, ORs too wide to expand) become TEST constraints in the conjunctions, each
with EXISTS constraints on the attributes without which it cannot be true.
"""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING

from postroad.selectors.conjunctions import ordered
from postroad.selectors.constraints import Conjunction, Constraint, Operator, Range
from postroad.selectors.like import LikePattern
from postroad.selectors.limits import MAX_CONJUNCTIONS, MAX_EXPANDED_CONSTRAINTS
from postroad.selectors.positive_form import Every, Some, positive_form, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.selectors.positive_form import Positive
    from postroad.selectors.tree import Node

__all__ = [
    "MAX_CONJUNCTIONS",
    "Conjunction",
    "Constraint",
    "LikePattern",
    "Operator",
    "Range",
    "disjunction",
]


def disjunction(condition: Node) -> tuple[Conjunction, ...]:
    """Return at most MAX_CONJUNCTIONS conjunctions, one of which must hold; none if the condition never does."""
    form = positive_form(condition)
    if isinstance(form, Constraint):
        return ((form,),)
    # An alternative has at most as many constraints as the form.
    budget = min(MAX_CONJUNCTIONS, max(1, MAX_EXPANDED_CONSTRAINTS // _size(form)))
    found = [ordered(constraints) for constraints in _expanded(form, budget)]
    if len(found) == 1:
        return (found[0],) if found[0] is not None else ()
    distinct = dict.fromkeys(conjunction for conjunction in found if conjunction is not None)
    return ((),) if () in distinct else tuple(distinct)


def _size(form: Positive) -> int:
    """Return how many constraints the form has, at least one."""
    return 1 if isinstance(form, Constraint) else max(1, sum(map(_size, form.parts)))


def _expanded(form: Positive, budget: int) -> Sequence[Sequence[Constraint]]:
    """Return the form as at most `budget` conjunctions, for a budget of one or more."""
    if isinstance(form, Constraint):
        return ((form,),)
    if isinstance(form, Every):
        return _expanded_every(form, budget)
    if len(form.parts) > budget:
        return (_tested(form),)
    return _expanded_some(form, budget)


def _expanded_every(form: Every, budget: int) -> Sequence[Sequence[Constraint]]:
    if form.width == 1:
        return (form.parts,)  # type: ignore[return-value]  # Parts of width 1 in a flat Every are constraints.
    results: list[Sequence[Sequence[Constraint]]] = [()] * len(form.parts)
    # The narrow parts first: a part too wide for the rest of the budget becomes a TEST.
    for index in _by_width(form.parts):
        results[index] = _expanded(form.parts[index], budget)
        budget //= len(results[index])
    return [list(chain.from_iterable(choice)) for choice in product(*results)]


def _expanded_some(form: Some, budget: int) -> Sequence[Sequence[Constraint]]:
    results: list[Sequence[Sequence[Constraint]]] = [()] * len(form.parts)
    # The narrow parts first: what they leave of their equal shares goes to the wide ones.
    for done, index in enumerate(_by_width(form.parts)):
        results[index] = _expanded(form.parts[index], budget // (len(form.parts) - done))
        budget -= len(results[index])
    return list(chain.from_iterable(results))


def _by_width(parts: list[Positive]) -> list[int]:
    return sorted(range(len(parts)), key=lambda index: width(parts[index]))


def _tested(form: Some) -> list[Constraint]:
    test = Constraint("", Operator.TEST, form.source)
    return [*(Constraint(name, Operator.EXISTS, None) for name in sorted(_present(form))), test]


def _present(form: Positive) -> frozenset[str]:
    """Return the attributes that a message must have for the form to hold."""
    if isinstance(form, Constraint):
        absent = form.operator is Operator.MISSING or form.operator is Operator.TEST
        return frozenset() if absent else frozenset((form.attribute,))
    parts = map(_present, form.parts)
    return frozenset().union(*parts) if isinstance(form, Every) else frozenset.intersection(*parts)
