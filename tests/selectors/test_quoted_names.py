"""Attributes whose names are not identifiers, written in double quotes as in SQL; and hyphens that mislead."""

from __future__ import annotations

import pytest

from postroad.selectors import Selector, SelectorError, doubts
from postroad.selectors.limits import MAX_NAME_BYTES


@pytest.mark.parametrize("name", ["content-type", "x y", "NULL", "like", "7", "a.b", 'say "hi"', "-", "'", "\u200b"])
def test_a_name_in_double_quotes_is_the_attribute_of_that_name(name: str) -> None:
    written = '"' + name.replace('"', '""') + '"'
    selector = Selector.parse(f"{written} = 'text/plain' AND {written} IS NOT NULL AND {written} LIKE 'text%'")
    assert selector.attributes == {name}
    assert selector.matches({name: "text/plain"})
    assert not selector.matches({name: "text/html"})
    assert Selector.parse(str(selector)) == selector


def test_a_reserved_word_in_quotes_is_not_the_word() -> None:
    assert Selector.parse('"TRUE"').evaluate({}) is None
    assert Selector.parse('"TRUE"').matches({"TRUE": True})


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ('stock = "S1"', 8, "'S1' for the text"),
        ('a = ""', 4, "no name between"),
        ('a = "b', 4, "no closing quote"),
        ('"' + "é-" * MAX_NAME_BYTES + '" = 1', 0, "MAX_NAME_BYTES"),
        ('"a-b" "c-d"', 6, "unexpected"),
        ('a IN ("b-c")', 6, "single quotes"),
    ],
)
def test_what_people_mean_as_a_text_is_refused_with_what_to_write(text: str, position: int, said: str) -> None:
    with pytest.raises(SelectorError, match=said) as caught:
        Selector.parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("content-type = 'x'", ["content-type"]),
        ("a = 1 AND x-y-z > 2 OR content-type IS NULL", ["x-y-z", "content-type"]),
        ("a - b = 1", []),
        ("a -b = 1", []),
        ("a-1 = 1", []),
        ("x = 'content-type'", []),
        ('"content-type" = 1', []),
        ("a-b-1 > 2", ["a-b"]),
        ("NOT-a > 2", []),
    ],
)
def test_names_joined_by_hyphens_are_pointed_out(text: str, names: list[str]) -> None:
    said = doubts(text)
    assert len(said) == len(names)
    for name, doubt in zip(names, said, strict=True):
        assert f'write "{name}"' in doubt
