"""Topics as people write them who come from other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.cli.topics import check_written
from tests.cli.programs import here

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "/topic/quotes.a", "hello"),
        ("subscribe", "/topic/quotes.a"),
        ("archive", "export", "there", "--topic", "/topic/quotes.a"),
        ("pipeline", "match", "--archive", "here", "--out", "there", "--topic", "/topic/quotes.a"),
    ],
    ids=lambda words: words[0],
)
def test_prefix_that_the_command_adds_is_refused(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, *words)
    assert told.code == 2
    assert "/topic/quotes.a: write quotes.a alone; /topic/ is added where STOMP needs it" in told.err


@pytest.mark.parametrize(
    ("topic", "meant"), [("quotes.#", "quotes.>"), ("quotes/+/close", "quotes.*.close"), ("#", ">"), ("a.b", "")]
)
def test_wildcards_of_other_brokers_are_pointed_out(topic: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_written(topic, pattern=True)
    told = capsys.readouterr().err
    assert told.endswith(f"so perhaps you mean {meant}\n") if meant else told == ""


@pytest.mark.parametrize(
    ("topic", "doubt"),
    [
        ("/queue/a,/queue/b", "a comma part of its name"),
        ("a,topic:b", "a comma part of its name"),
        ("/queue/a?consumer.prefetchSize=5", "write options as headers"),
        ("a,b", ""),
    ],
)
def test_destinations_of_activemq_that_are_names_here_are_pointed_out(
    topic: str, doubt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_written(topic, pattern=True)
    told = capsys.readouterr().err
    assert doubt in told if doubt else told == ""


def test_topic_that_is_published_to_may_have_them() -> None:
    check_written("tickets.#", pattern=False)
    check_written("/queue/orders", pattern=False)


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("topic", ["/exchange/orders", "/amq/queue/work", "/temp-queue/mine"])
def test_destinations_of_other_brokers_are_pointed_out(
    topic: str, pattern: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    check_written(topic, pattern=pattern)
    assert f"{topic} is a topic whose name begins with a slash" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["/queue/work", "orders/new", "exchange.orders"])
def test_names_of_our_own_are_not(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_written(topic, pattern=False)
    assert capsys.readouterr().err == ""
