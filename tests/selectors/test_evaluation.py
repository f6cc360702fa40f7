"""What selectors mean, held against the slow evaluator of `expressions`."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings

from postroad.messages import Untyped
from postroad.selectors import Selector
from postroad.selectors.generated_code import generate
from tests.selectors.expressions import Form, kind_of, truth, write
from tests.selectors.strategies import attribute_maps, conditions, selector_texts


@settings(max_examples=400)
@given(conditions(), attribute_maps())
def test_evaluation_agrees_with_the_rules(form: Form, attributes: dict[str, Any]) -> None:
    expected = truth(form, attributes)
    assert Selector.parse(write(form)).evaluate(attributes) is expected
    assert Selector.parse(write(form, generous=True)).evaluate(attributes) is expected


@settings(max_examples=100)
@given(conditions(max_leaves=12), attribute_maps(("a", "b")))
def test_larger_selectors_agree_with_the_rules(form: Form, attributes: dict[str, Any]) -> None:
    assert Selector.parse(write(form)).matches(attributes) is (truth(form, attributes) is True)


@settings(max_examples=400)
@given(conditions(), attribute_maps())
def test_generated_function_agrees_with_matches(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    assert generate(selector)(attributes) is selector.matches(attributes), str(selector)


@settings(max_examples=150)
@given(conditions(max_leaves=10), attribute_maps(("a", "b")))
def test_generated_function_of_larger_selector_agrees_with_matches(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    assert generate(selector)(attributes) is selector.matches(attributes), str(selector)


READING = [
    "(a BETWEEN d AND a OR b <> 0) AND (a = 0 OR d = 'x')",
    "(a = 1 AND b = 2 OR c = 3) AND b = 2",
    "(a = 1 OR b = 2) AND (b = 2 OR c = 3) AND c = 3",
    "(a = 1 AND (b = 2 OR c = 3) OR d = 4) AND (b = 2 OR c = 3)",
    "NOT ((a = 1 OR b = 2) AND c = 3) OR b = 2",
    "((a IS NULL OR b = 2) AND c = 3 OR b = 2) AND (c = 3 OR d = 4)",
]


@pytest.mark.parametrize("text", READING)
def test_generated_function_reads_each_attribute_before_use_on_every_path(text: str) -> None:
    selector = Selector.parse(text)
    function = generate(selector)
    for values in product((None, 0, 1, 2, 3, 4), repeat=4):
        attributes = {name: value for name, value in zip("abcd", values, strict=True) if value is not None}
        assert function(attributes) is selector.matches(attributes)


@settings(max_examples=150)
@given(selector_texts())
def test_canonical_text_parses_back_to_an_equal_selector(text: str) -> None:
    selector = Selector.parse(text)
    again = Selector.parse(str(selector))
    assert str(again) == str(selector)
    assert again == selector
    assert hash(again) == hash(selector)


@settings(max_examples=150)
@given(conditions(), attribute_maps())
def test_canonical_text_means_the_same(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    assert Selector.parse(str(selector)).evaluate(attributes) is truth(form, attributes)


@settings(max_examples=100)
@given(conditions())
def test_minimal_and_generous_parentheses_have_one_canonical_text(form: Form) -> None:
    assert str(Selector.parse(write(form))) == str(Selector.parse(write(form, generous=True)))


@settings(max_examples=100)
@given(conditions(), attribute_maps())
def test_attributes_outside_the_named_ones_do_not_matter(form: Form, attributes: dict[str, Any]) -> None:
    selector = Selector.parse(write(form))
    named = {name: value for name, value in attributes.items() if name in selector.attributes}
    assert selector.evaluate(named) is selector.evaluate(attributes)


def test_oracle_sees_all_six_types() -> None:
    values = ("x", Untyped("x"), 1, 1.0, True, b"x")
    assert [kind_of(value) for value in values] == ["text", "untyped", "number", "number", "boolean", "bytes"]


def test_any_mapping_will_do() -> None:
    attributes = MappingProxyType({"a": 5})
    selector = Selector.parse("a > 4 AND b IS NULL")
    assert selector.matches(attributes)
    assert generate(selector)(attributes)


def test_subclasses_of_attribute_classes_are_taken_as_their_base() -> None:
    class Price(float):
        pass

    class Label(str):
        __slots__ = ()

    selector = Selector.parse("price > 5 AND label = 'x' AND label LIKE 'x%'")
    assert selector.matches({"price": Price(6), "label": Label("x")})
    assert Selector.parse("price > 5").evaluate({"price": object()}) is None  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["a = 'x' AND b > 5", "a IS NULL OR NOT b", ""])
def test_selector_shows_itself(text: str) -> None:
    selector = Selector.parse(text)
    assert eval(repr(selector)) == selector


def test_selectors_with_equal_looking_literals_differ() -> None:
    texts = ("a = 1", "a = 1.0", "a = TRUE", "a = '1'", "a = -1")
    assert len({Selector.parse(text) for text in texts}) == len(texts)
    assert Selector.parse("a = 1") != "a = 1"
