"""Any text is a selector, or is refused as one; nothing else ever happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.selectors import Selector, SelectorError
from postroad.selectors.generated_code import generate
from tests.selectors.strategies import TOKENS, attribute_maps, selector_texts, token_soup

MESSAGE: dict[str, Any] = {"a": 5, "b": "x", "größe": True}


def check_refusal(error: SelectorError, text: str) -> None:
    assert error.text == text
    assert 0 <= error.position <= len(text)
    line, caret = str(error).split("\n")[1:3]
    assert caret.strip() == "^"
    assert line.isprintable()


def accept_or_refuse(text: str) -> None:
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        check_refusal(error, text)
        return
    assert Selector.parse(str(selector)) == selector
    assert selector.matches(MESSAGE) is generate(selector)(MESSAGE)
    assert selector.disjunction == Selector.parse(str(selector)).disjunction


@settings(max_examples=300)
@given(st.text(max_size=40))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    accept_or_refuse(text)


@settings(max_examples=300)
@given(st.text("aOR1.'()=<>-+*/% \t\n,\\!$_eExXlLdD0٣é\u00a0\u2018\ud800", max_size=30))
def test_text_of_the_languages_own_characters_is_accepted_or_refused(text: str) -> None:
    accept_or_refuse(text)


@settings(max_examples=600)
@given(token_soup)
def test_token_soup_is_accepted_or_refused(text: str) -> None:
    accept_or_refuse(text)


@settings(max_examples=300)
@given(selector_texts(max_leaves=4), st.data())
def test_mutated_selector_is_accepted_or_refused(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 6)))
    accept_or_refuse(text[:start] + data.draw(st.sampled_from(("", " ", *TOKENS))) + text[end:])


@settings(max_examples=100)
@given(selector_texts(max_leaves=4), st.sampled_from((" ", "\n", "\t \r\f")))
def test_blanks_between_tokens_do_not_matter(text: str, blank: str) -> None:
    selector = Selector.parse(text)
    assert Selector.parse(blank + text + blank) == selector
    assert Selector.parse(f"({blank}{text}{blank})") == selector


@settings(max_examples=100)
@given(st.text(max_size=12), attribute_maps())
def test_any_literal_text_comes_through_whole(text: str, attributes: dict[str, Any]) -> None:
    """Also into generated source, where a text that looks like code stays a text."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    literal = "'" + text.replace("'", "''") + "'"
    message = attributes | {"a": text}
    for selector in (Selector.parse(f"a = {literal}"), Selector.parse(f"a IN ({literal}, 'other')")):
        assert selector.matches(message)
        assert generate(selector)(message)
        assert not generate(selector)({"a": text + "x"})
