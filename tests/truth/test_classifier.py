"""Planted lies: each must be seen, and nothing that is honest may be called a lie."""

from __future__ import annotations

from typing import Any

import pytest
from truth.classifier import Class, classify
from truth.facts import Fact
from truth.replies import Reply, reply_of_document, reply_of_row

from postroad.messages import MessageId

ID = MessageId(7, 1, 1_700_000_000_000, 3)
# It passed brokers 1 and 2; subscription 5 at broker 2 got it.
DELIVERED = Fact(True, frozenset({(2, 5)}), passed=frozenset({1, 2}))
# As clients know it: by login, and only the ends.
SEEN = Fact(True, frozenset({(2, "ann")}), missed=frozenset({(2, "bob")}))
ROSTER = {(2, 5): "ann", (2, 6): "bob"}


def answer(verdict: str = "delivered", **more: Any) -> Reply:
    told: dict[str, Any] = {
        "source": "files",
        "id": ID,
        "verdict": verdict,
        "certainty": 1.0,
        "stops": {1: 0.0, 2: 0.0},
        "delivered": {(2, 5): 0.0},
        "acknowledged": frozenset(),
        "waiting": frozenset(),
        "shed": frozenset(),
        "lost": (),
        "causes": (),
        "names": {},
    }
    return Reply(**(told | more))


def nothing(verdict: str, **more: Any) -> Reply:
    return answer(verdict, stops={}, delivered={}, **more)


@pytest.mark.parametrize("fact", [DELIVERED, SEEN], ids=["generated", "seen by clients"])
def test_true_answer_is_right(fact: Fact) -> None:
    roster = ROSTER if fact is SEEN else None
    assert classify(answer(), fact, roster).kind is Class.RIGHT


@pytest.mark.parametrize(
    "lie",
    [
        nothing("never accepted"),
        answer("matched nobody", delivered={}),
        answer(delivered={}),
        answer(delivered={(2, 5): 0.0, (2, 6): 0.0}),
        answer("acknowledged", delivered={(2, 6): 0.0}),
        answer("lost after hop", lost=((1, 2, 0.0),)),
        answer("waiting in a queue", delivered={}, waiting=frozenset({(2, 5)})),
        answer("shed at the queue", delivered={}, shed=frozenset({(2, 5)})),
        nothing("outside retention"),
        answer("recorded in part", delivered={(2, 6): 0.0}, causes=("broker 2: not yet written",)),
    ],
    ids=lambda reply: f"{reply.verdict} {sorted(reply.delivered)}",
)
@pytest.mark.parametrize("fact", [DELIVERED, SEEN], ids=["generated", "seen by clients"])
def test_lie_about_a_delivered_message_is_wrong_with_certainty(lie: Reply, fact: Fact) -> None:
    judgement = classify(lie, fact, ROSTER if fact is SEEN else None)
    assert judgement.kind is Class.WRONG
    assert judgement.why


@pytest.mark.parametrize(
    ("lie", "fact"),
    [
        (answer(stops={1: 0.0}), DELIVERED),
        (answer(stops={1: 0.0, 2: 0.0, 3: 0.0}), DELIVERED),
        (answer(), DELIVERED._replace(lost=3)),
        (answer(), DELIVERED._replace(shed=frozenset({(1, 9)}))),
        (answer(), DELIVERED._replace(owed=frozenset({(1, 9)}))),
        (answer(), Fact(entered=False)),
        (answer("recorded in part", causes=("broker 2 is silent",)), Fact(entered=False)),
    ],
    ids=["hop left out", "hop made up", "loss hidden", "shed hidden", "promise hidden", "made up", "made up in part"],
)
def test_what_is_left_out_or_made_up_is_wrong_with_certainty(lie: Reply, fact: Fact) -> None:
    assert classify(lie, fact).kind is Class.WRONG


@pytest.mark.parametrize("verdict", ["recorded in part", "not recorded", "unanswered"])
def test_vague_answer_needs_a_cause(verdict: str) -> None:
    assert classify(nothing(verdict), DELIVERED).kind is Class.CAUSELESS
    assert classify(nothing(verdict, causes=("broker 1 is silent",)), DELIVERED).kind is Class.VAGUE


def test_answer_that_doubts_itself_is_not_wrong_with_certainty() -> None:
    assert classify(answer("matched nobody", delivered={}, certainty=0.5), DELIVERED).kind is Class.VAGUE
    assert classify(answer(delivered={(2, 5): 0.0, (2, 6): 1e-5}), DELIVERED).kind is Class.CHANCE


def test_nothing_is_held_against_an_answer_that_clients_cannot_judge() -> None:
    unknown = Fact(entered=None)
    for reply in (nothing("never accepted"), answer("delivered"), answer("matched nobody", delivered={})):
        assert classify(reply, unknown, ROSTER).kind is Class.RIGHT


def test_subscriber_without_a_name_may_be_any_of_its_broker() -> None:
    assert classify(answer(delivered={(2, 77): 0.0}), SEEN, ROSTER).kind is Class.RIGHT
    assert classify(answer(delivered={(1, 77): 0.0}), SEEN, ROSTER).kind is Class.WRONG


def test_document_of_a_trace_and_row_of_the_pipeline_say_the_same() -> None:
    gap = {"broker": 2, "since": 1, "until": 9, "reason": "not yet written"}
    hit = {"broker": 2, "subscription": 5, "doubt": 0.0}
    document = {
        "id": str(ID),
        "verdict": "recorded in part",
        "certainty": 0.5,
        "stops": [
            {
                "broker": 2,
                "doubt": 0.0,
                "delivered": [{"subscription": 5, "doubt": 0.0, "acknowledged": True, "name": "ann"}],
                "waiting": [{"subscription": 8}],
                "dropped": [{"subscription": 9}, {"subscription": 0}],
            }
        ],
        "lost": [{"broker": 1, "neighbour": 3, "doubt": 0.0}],
        "gaps": [gap],
        "silent": [4],
    }
    row = {
        **{"publisher": ID.publisher, "origin": ID.broker, "time": ID.time, "counter": ID.counter},
        **{"verdict": "recorded in part", "certainty": 0.5, "brokers": [2], "delivered": [hit]},
        **{"acknowledged": [hit], "lost": document["lost"], "gaps": [gap], "silent": [4]},
    }
    said = reply_of_document("files", document, ["a file"])
    assert said.causes == ("broker 2: not yet written", "broker 4 is silent", "a file")
    assert said.waiting == {(2, 8)}
    assert said.shed == {(2, 9)}
    assert said.names == {(2, 5): "ann"}
    told = reply_of_row(row, ["a file"])
    for name in ("id", "verdict", "certainty", "stops", "delivered", "acknowledged", "lost", "causes"):
        assert getattr(said, name) == getattr(told, name)
