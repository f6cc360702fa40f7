"""The normal form: true for the same messages, within its bound, and as small as its contract says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.selectors import Selector
from postroad.selectors.limits import MAX_EXPANDED_CONSTRAINTS, MAX_TERMS
from postroad.selectors.normal_form import MAX_CONJUNCTIONS, LikePattern, Operator, Range
from tests.selectors.expressions import Form, truth, write
from tests.selectors.normal_forms import holds, satisfied
from tests.selectors.strategies import attribute_maps, conditions

if TYPE_CHECKING:
    from postroad.selectors.normal_form import Conjunction


@settings(max_examples=400)
@given(conditions(), attribute_maps())
def test_disjunction_holds_for_the_same_messages(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    assert satisfied(selector.disjunction, attributes) is (truth(form, attributes) is True)


@settings(max_examples=100)
@given(conditions(("a", "b"), max_leaves=14), attribute_maps(("a", "b")))
def test_disjunction_of_larger_selector_holds_for_the_same_messages(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    assert satisfied(selector.disjunction, attributes) is (truth(form, attributes) is True)


CONJUNCTS = st.lists(conditions(("a",), max_leaves=1), min_size=2, max_size=4)


@settings(max_examples=250)
@given(CONJUNCTS, attribute_maps(("a",)))
def test_constraints_on_one_attribute_merge_into_the_same_condition(
    forms: list[Form], attributes: dict[str, Any]
) -> None:
    text = " AND ".join(f"({write(form)})" for form in forms)
    expected = all(truth(form, attributes) is True for form in forms)
    assert satisfied(Selector.parse(text).disjunction, attributes) is expected


@settings(max_examples=50)
@given(conditions(max_leaves=10))
def test_disjunction_keeps_its_contract(form: Form) -> None:
    alternatives = Selector.parse(write(form)).disjunction
    assert len(alternatives) <= MAX_CONJUNCTIONS
    assert len(set(alternatives)) == len(alternatives)
    assert alternatives == ((),) or () not in alternatives
    for conjunction in alternatives:
        assert len(set(conjunction)) == len(conjunction)
        ranges = [c.attribute for c in conjunction if c.operator in (Operator.RANGE, Operator.EQUAL_NUMBER)]
        assert len(set(ranges)) == len(ranges)
        places = [c[:2] for c in conjunction]
        assert places == sorted(places)


def one(text: str) -> Conjunction:
    (conjunction,) = Selector.parse(text).disjunction
    return conjunction


def the(text: str) -> tuple[Any, ...]:
    (constraint,) = one(text)
    return constraint[1:]


LEAVES = [
    ("a = 5", (Operator.EQUAL_NUMBER, 5)),
    ("NOT a = 5", (Operator.NOT_EQUAL_NUMBER, 5)),
    ("a > 5", (Operator.RANGE, Range(5, True, None, False))),
    ("5 > a", (Operator.RANGE, Range(None, False, 5, True))),
    ("NOT a > 5", (Operator.RANGE, Range(None, False, 5, False))),
    ("a >= 2 * 3", (Operator.RANGE, Range(6, False, None, False))),
    ("a BETWEEN 1 AND 2", (Operator.RANGE, Range(1, False, 2, False))),
    ("a BETWEEN 2 AND 2.0", (Operator.EQUAL_NUMBER, 2)),
    ("a > 1 AND a < 5 AND a >= 2", (Operator.RANGE, Range(2, False, 5, True))),
    ("a >= 2 AND a > 2", (Operator.RANGE, Range(2, True, None, False))),
    ("a > 9007199254740992.0 AND a > 9007199254740993", (Operator.RANGE, Range(2**53 + 1, True, None, False))),
    ("a > 1 AND a = 3 AND a <> 4", (Operator.EQUAL_NUMBER, 3)),
    ("a = 'x'", (Operator.EQUAL_TEXT, "x")),
    ("a <> 'x'", (Operator.NOT_EQUAL_TEXT, "x")),
    ("a IN ('y', 'x', 'y')", (Operator.IN_TEXT, ("x", "y"))),
    ("a IN ('x', 'x')", (Operator.EQUAL_TEXT, "x")),
    ("a NOT IN ('y', 'x')", (Operator.NOT_IN_TEXT, ("x", "y"))),
    ("NOT a IN ('x')", (Operator.NOT_EQUAL_TEXT, "x")),
    ("a = 'x' OR a = 'y' OR a IN ('z', 'x')", (Operator.IN_TEXT, ("x", "y", "z"))),
    ("NOT (a <> 'x' AND a <> 'y')", (Operator.IN_TEXT, ("x", "y"))),
    ("a <> 'x' AND a NOT IN ('y', 'z')", (Operator.NOT_IN_TEXT, ("x", "y", "z"))),
    ("a IN ('x', 'y') AND a <> 'x'", (Operator.EQUAL_TEXT, "y")),
    ("a LIKE 'x%'", (Operator.PREFIX, "x")),
    ("a LIKE '%x'", (Operator.SUFFIX, "x")),
    ("a LIKE '%x%'", (Operator.SUBSTRING, "x")),
    ("a LIKE '%%x%%'", (Operator.SUBSTRING, "x")),
    ("a LIKE 'x!%%' ESCAPE '!'", (Operator.PREFIX, "x%")),
    ("a LIKE 'x'", (Operator.EQUAL_TEXT, "x")),
    ("a LIKE ''", (Operator.EQUAL_TEXT, "")),
    ("a LIKE '%'", (Operator.LIKE, LikePattern(("", ""), ((), ())))),
    ("a LIKE 'a%b_c'", (Operator.LIKE, LikePattern(("a", "b_c"), ((), (1,))))),
    ("a LIKE '_!_' ESCAPE '!'", (Operator.LIKE, LikePattern(("__",), ((0,),)))),
    ("a NOT LIKE 'x%'", (Operator.NOT_LIKE, LikePattern(("x", ""), ((), ())))),
    ("a", (Operator.EQUAL_BOOLEAN, True)),
    ("NOT a", (Operator.EQUAL_BOOLEAN, False)),
    ("a <> TRUE", (Operator.EQUAL_BOOLEAN, False)),
    ("a IS NULL", (Operator.MISSING, None)),
    ("NOT a IS NULL", (Operator.EXISTS, None)),
    ("a IS NOT NULL AND a = 'x'", (Operator.EQUAL_TEXT, "x")),
    ("(a = 'x') = TRUE", (Operator.EQUAL_TEXT, "x")),
    ("FALSE <> (a = 'x')", (Operator.EQUAL_TEXT, "x")),
    ("(a = 'x') = FALSE", (Operator.NOT_EQUAL_TEXT, "x")),
    ("a = 'x' AND TRUE", (Operator.EQUAL_TEXT, "x")),
    ("a = 'x' AND a = 'x'", (Operator.EQUAL_TEXT, "x")),
    ("a = 'x' OR FALSE OR 1 = 2", (Operator.EQUAL_TEXT, "x")),
]


@pytest.mark.parametrize(("text", "expected"), LEAVES)
def test_selector_becomes_one_constraint(text: str, expected: tuple[Any, ...]) -> None:
    assert the(text) == expected
    assert one(text)[0].attribute == "a"


NEVER = [
    "FALSE",
    "1 = 2",
    "a > 'x'",
    "NOT a > 'x'",
    "a < TRUE",
    "a = 1 / 0",
    "a > 5 AND a < 5",
    "a > 5 AND a <= 5",
    "a BETWEEN 5 AND 4",
    "a = 5 AND a <> 5",
    "a = 'x' AND a = 'y'",
    "a = 'x' AND a <> 'x'",
    "a AND NOT a",
    "a AND a = 5",
    "a IS NULL AND a = 5",
    "a IS NULL AND a IS NOT NULL",
    "a = 5 AND FALSE",
]


@pytest.mark.parametrize("text", NEVER)
def test_selector_that_is_never_true_has_no_conjunction(text: str) -> None:
    assert Selector.parse(text).disjunction == ()


@pytest.mark.parametrize("text", ["", "TRUE", "NOT FALSE", "1 = 1", "a = 5 OR TRUE", "(1 < 2) = TRUE"])
def test_selector_that_is_always_true_has_the_empty_conjunction(text: str) -> None:
    assert Selector.parse(text).disjunction == ((),)


def test_a_number_and_a_text_may_both_hold() -> None:
    assert [c.operator for c in one("a = '5' AND a = 5")] == [Operator.EQUAL_NUMBER, Operator.EQUAL_TEXT]


def test_order_of_writing_does_not_matter() -> None:
    assert one("a = 5 AND b = 'x' AND a <> 'y'") == one("b = 'x' AND a <> 'y' AND a = 5")
    assert Selector.parse("a = 5 AND b OR b AND a = 5").disjunction == (one("a = 5 AND b"),)


def test_not_between_is_two_ranges() -> None:
    below, above = Selector.parse("a NOT BETWEEN 1 AND 5").disjunction
    assert below == one("a < 1")
    assert above == one("a > 5")


def needs(text: str) -> set[str]:
    (conjunction,) = Selector.parse(text).disjunction
    assert conjunction[0].operator is Operator.TEST
    assert {c.operator for c in conjunction[1:]} <= {Operator.EXISTS}
    return {c.attribute for c in conjunction[1:]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b", {"a", "b"}),
        ("a + b * c > 5", {"a", "b", "c"}),
        ("-a > 5", {"a"}),
        ("(a = 1) = (b = 2)", {"a", "b"}),
        ("(a = 1 OR b = 2) = c", {"c"}),
        ("(a = 1 AND a < b) = c", {"a", "c"}),
        ("(a IS NULL) = (b IS NULL)", set()),
        ("(a BETWEEN b AND c) = d", {"a", "d"}),
        ("(a LIKE 'x%') = (NOT b)", {"a", "b"}),
        ("(a IN ('x')) = (5 BETWEEN a AND b)", {"a"}),
    ],
)
def test_test_is_accompanied_by_what_it_cannot_do_without(text: str, expected: set[str]) -> None:
    assert needs(text) == expected


def test_equal_tests_merge() -> None:
    assert len(one("a = b AND a = b AND a = c")) == 5
    assert len(Selector.parse("a < b OR a < b").disjunction) == 1


def wide(name: str, count: int) -> str:
    return " OR ".join(f"{name} = {number}" for number in range(count))


def test_wide_or_is_tested_beside_its_indexable_neighbours() -> None:
    conjunction = one(f"x = 'y' AND ({wide('a', MAX_CONJUNCTIONS + 1)})")
    assert [c[:2] for c in conjunction] == [("", Operator.TEST), ("a", Operator.EXISTS), ("x", Operator.EQUAL_TEXT)]
    assert holds(conjunction[0], {"a": 64})
    assert not holds(conjunction[0], {"a": 65})


def test_or_up_to_the_bound_is_expanded() -> None:
    alternatives = Selector.parse(wide("a", MAX_CONJUNCTIONS)).disjunction
    assert alternatives == tuple(one(f"a = {number}") for number in range(MAX_CONJUNCTIONS))


def test_widest_of_several_ors_is_tested() -> None:
    alternatives = Selector.parse(f"({wide('a', 40)}) AND ({wide('b', 3)})").disjunction
    assert len(alternatives) == 3
    for conjunction in alternatives:
        assert [c[:2] for c in conjunction] == [
            ("", Operator.TEST),
            ("a", Operator.EXISTS),
            ("b", Operator.EQUAL_NUMBER),
        ]


def test_each_branch_of_an_or_keeps_its_own_constraint() -> None:
    text = f"x = 'y' AND ({wide('a', 60)}) OR x = 'z' AND ({wide('b', 60)})"
    operators = [{c.operator for c in conjunction} for conjunction in Selector.parse(text).disjunction]
    assert all(Operator.EQUAL_TEXT in found for found in operators)


def test_negated_conjunction_that_is_too_wide_is_tested() -> None:
    many = " AND ".join(f"a{number} = {number}" for number in range(MAX_CONJUNCTIONS + 1))
    conjunction = one(f"NOT ({many})")
    assert [c[:2] for c in conjunction] == [("", Operator.TEST)]
    everything = {f"a{number}": number for number in range(MAX_CONJUNCTIONS + 1)}
    assert not holds(conjunction[0], everything)
    assert holds(conjunction[0], everything | {"a7": 8})


def test_a_selector_of_few_conditions_is_expanded_as_far_as_its_alternatives_go() -> None:
    text = " AND ".join(f"(a{number} = 1 OR b{number} = 2)" for number in range(6))
    assert len(Selector.parse(text).disjunction) == MAX_CONJUNCTIONS
    assert len(Selector.parse(f"{text} AND (c = 1 OR d = 2)").disjunction) == MAX_CONJUNCTIONS


def test_exponential_selector_is_not_expanded() -> None:
    text = " AND ".join(f"(a{number} = 1 OR b{number} = 2)" for number in range(MAX_TERMS // 2 - 1))
    alternatives = Selector.parse(text).disjunction
    assert 1 < len(alternatives) < MAX_CONJUNCTIONS
    assert sum(map(len, alternatives)) <= MAX_EXPANDED_CONSTRAINTS
    assert satisfied(alternatives, {f"a{number}": 1 for number in range(MAX_TERMS)})
    assert not satisfied(alternatives, {f"a{number}": 1 for number in range(5)})
