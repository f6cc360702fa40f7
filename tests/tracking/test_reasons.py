"""Reasons that end nothing: those of today, and the texts that stood for them in trails of earlier versions."""

from __future__ import annotations

from postroad.tracking.findings import Drop
from postroad.tracking.reasons import DETOURS, FORMER, Detour, Loss, is_back


def drops(*reasons: str) -> list[Drop]:
    return [Drop(0, 0, reason, at) for at, reason in enumerate(reasons)]


def test_no_text_says_both_that_a_message_continued_and_that_it_did_not() -> None:
    assert not DETOURS & set(Loss)


def test_former_texts_end_nothing() -> None:
    assert FORMER.keys() <= DETOURS
    assert not FORMER.keys() & set(Detour)


def test_message_that_came_back_was_delivered_again_by_either_text() -> None:
    assert is_back(drops(Detour.COMES_AGAIN))
    for text in (Detour.DELIVERED_AGAIN, "handed out again"):
        assert not is_back(drops(Detour.COMES_AGAIN, text))
        assert is_back(drops(Detour.COMES_AGAIN, text, Detour.COMES_AGAIN))
