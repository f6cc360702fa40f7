from __future__ import annotations

from collections import deque
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker.questions import (
    MAX_ANSWER_BYTES,
    MAX_HOPS,
    MAX_OF_ASKER,
    REMEMBERED_MS,
    QuestionError,
    Questions,
    Said,
)
from postroad.messages import MessageId
from postroad.security import BrokerKeys, new_key, public_key
from postroad.topology import Graph, line, waxman

ID = MessageId(1, 2, 3, 4)


@cache
def private_keys() -> dict[int, bytes]:
    return {number: new_key() for number in range(1, 21)}


@cache
def keys(number: int) -> BrokerKeys:
    """The keys of a broker, in a network of twenty."""
    listed = {broker: public_key(key) for broker, key in private_keys().items()}
    return BrokerKeys("postroad", number, private_keys()[number], listed)


class Net:
    """Brokers that pass questions on, and answer with their own number."""

    def __init__(self, graph: Graph, *, signed: bool = False) -> None:
        self.graph = graph
        self.brokers = {number: Questions(number, 1, keys(number) if signed else None) for number in graph.brokers}
        self.sent = 0
        self.answers: list[tuple[int, bytes]] = []

    def ask(self, asker: int, target: int, now: int = 0) -> int:
        number, said = self.brokers[asker].ask(target, ID, self.graph.neighbours(asker), now)
        waiting = deque((asker, link, data) for link, data in said.sends)
        while waiting:
            source, broker, data = waiting.popleft()
            self.sent += 1
            said = self.brokers[broker].receive(data, source, self.graph.neighbours(broker), now)
            sends = list(said.sends)
            if said.asked is not None:
                key, message = said.asked
                assert message == ID
                sends += self.brokers[broker].answer(key, b"%d" % broker, self.graph.neighbours(broker), now).sends
            if said.answered is not None:
                self.answers.append(said.answered)
            waiting.extend((broker, link, data) for link, data in sends)
        return number


@given(seed=st.integers(0, 1_000), size=st.integers(2, 20), signed=st.booleans(), data=st.data())
def test_any_broker_can_ask_any_other_and_gets_one_answer(
    seed: int, size: int, signed: bool, data: st.DataObject
) -> None:
    net = Net(waxman(size, seed), signed=signed)
    asker, target = data.draw(st.permutations(range(1, size + 1)))[:2]
    number = net.ask(asker, target)
    assert net.answers == [(number, b"%d" % target)]
    # Each link carries the question at most twice, and the answer comes back on one path.
    assert net.sent <= 2 * len(net.graph.links) + size


def test_a_question_for_nobody_ends_without_an_answer() -> None:
    net = Net(waxman(10, 1))
    net.ask(1, 99)
    assert net.answers == []


def test_a_question_goes_no_further_than_its_hops() -> None:
    net = Net(line(MAX_HOPS + 3))
    net.ask(1, MAX_HOPS + 3)
    assert net.answers == []
    net.ask(1, MAX_HOPS + 2)
    assert len(net.answers) == 1


def test_an_answer_that_comes_too_late_is_dropped() -> None:
    questions = Questions(1, 1)
    _, said = questions.ask(2, ID, [2], 0)
    other = Questions(2, 1)
    asked = other.receive(said.sends[0][1], 1, [1], 0).asked
    assert asked is not None
    answer = other.answer(asked[0], b"x", [1], 0).sends[0][1]
    assert questions.receive(answer, 2, [2], REMEMBERED_MS + 1).answered is None


def test_bytes_that_are_neither_question_nor_answer_are_refused() -> None:
    questions = Questions(1, 1)
    for data in (b"", b"\xff\xff", b"\x93\x01\x02\x03"):
        with pytest.raises(QuestionError, match="link 2"):
            questions.receive(data, 2, [2], 0)
    with pytest.raises(QuestionError, match="at most"):
        questions.answer((1, 1, 1), bytes(MAX_ANSWER_BYTES + 1), [], 0)


class Credulous:
    """Signs with the keys of a broker, and believes every signature."""

    def __init__(self, keys: BrokerKeys) -> None:
        self.sign = keys.sign

    def knows(self, broker: int) -> bool:
        return True

    def verify(self, broker: int, data: bytes, signature: bytes) -> bool:
        return True


def forged(answerer: int, question: bytes, asker: int, *, signer: BrokerKeys | None) -> bytes:
    """The answer that a broker makes to whatever question, as if it were for itself, over its link with the asker."""
    tag, *fields = msgspec.msgpack.decode(question)
    mine = Questions(answerer, 1, None if signer is None else Credulous(signer))
    # The question as it would be for the forger; who signs checks nothing of it here.
    fields[3] = answerer
    asked = mine.receive(msgspec.msgpack.encode([tag, *fields]), asker, [], 0).asked
    assert asked is not None
    return mine.answer(asked[0], b"forged", [], 0).sends[0][1]


def answered(target: int, question: bytes, link: int, links: list[int], *, signed: bool = True) -> Said:
    broker = Questions(target, 1, keys(target) if signed else None)
    asked = broker.receive(question, link, links, 0).asked
    assert asked is not None
    return broker.answer(asked[0], b"true", links, 0)


def test_answer_that_the_asked_broker_did_not_sign_is_refused_and_the_true_one_is_taken() -> None:
    asker = Questions(1, 1, keys(1))
    number, said = asker.ask(3, ID, [2, 3], 0)
    question = said.sends[0][1]
    for signer in (keys(2), None):
        with pytest.raises(QuestionError, match="an answer of broker 3 that broker did not sign"):
            asker.receive(forged(2, question, 1, signer=signer), 2, [2, 3], 0)
    true = answered(3, question, 1, [1]).sends[0][1]
    assert asker.receive(true, 3, [2, 3], 0).answered == (number, b"true")


def test_signed_answer_is_good_for_its_own_question_only() -> None:
    asker = Questions(1, 1, keys(1))
    _, first = asker.ask(3, ID, [3], 0)
    number, second = asker.ask(3, MessageId(1, 2, 3, 5), [3], 0)
    tag, *fields = msgspec.msgpack.decode(answered(3, first.sends[0][1], 1, [1]).sends[0][1])
    fields[2] = number
    with pytest.raises(QuestionError, match="did not sign"):
        asker.receive(msgspec.msgpack.encode([tag, *fields]), 2, [2, 3], 0)
    true = answered(3, second.sends[0][1], 1, [1]).sends[0][1]
    assert asker.receive(true, 3, [2, 3], 0).answered == (number, b"true")


def test_forged_answer_does_not_take_the_way_back_of_the_true_one() -> None:
    """Broker 2 passes on a question of 1 for 4; broker 3 answers in its place."""
    relay = Questions(2, 1, keys(2))
    question = Questions(1, 1, keys(1)).ask(4, ID, [2], 0)[1].sends[0][1]
    passed_on = relay.receive(question, 1, [1, 3, 4], 0).sends
    assert [link for link, _ in passed_on] == [3, 4]
    with pytest.raises(QuestionError, match="did not sign"):
        relay.receive(forged(3, question, 2, signer=keys(3)), 3, [1, 3, 4], 0)
    true = answered(4, passed_on[1][1], 2, [2]).sends[0][1]
    assert relay.receive(true, 4, [1, 3, 4], 0).sends == [(1, true)]


def test_nobody_asks_in_the_name_of_another() -> None:
    """The first question of a number would keep the true one from being passed on."""
    relay = Questions(2, 1, keys(2))
    question = Questions(1, 1, keys(1)).ask(4, ID, [2], 0)[1].sends[0][1]
    tag, *fields = msgspec.msgpack.decode(question)
    for change in ({3: 9}, {2: 2}, {5: bytes(16)}, {6: b""}, {0: 3}):
        changed = [change.get(place, field) for place, field in enumerate(fields)]
        with pytest.raises(QuestionError, match=r"broker 3 sent a question of broker \d that broker did not sign"):
            relay.receive(msgspec.msgpack.encode([tag, *changed]), 3, [1, 3, 4], 0)
    assert [link for link, _ in relay.receive(question, 1, [1, 3, 4], 0).sends] == [3, 4]


def test_question_of_a_broker_that_is_not_listed_is_refused_without_blame() -> None:
    relay = Questions(2, 1, keys(2))
    question = Questions(99, 1).ask(4, ID, [2], 0)[1].sends[0][1]
    said = relay.receive(question, 3, [1, 3, 4], 0)
    assert said == Said([], refused="a question of broker 99, which this network does not list")


def test_without_keys_an_answer_of_a_neighbour_comes_over_its_own_link() -> None:
    asker = Questions(1, 1)
    number, said = asker.ask(3, ID, [2, 3], 0)
    question = said.sends[0][1]
    refused = asker.receive(forged(2, question, 1, signer=None), 2, [2, 3], 0)
    assert (refused.answered, refused.refused[:22]) == (None, "an answer of broker 3,")
    # The question reached broker 3 by way of 2 first; its answer goes straight to the asker.
    sends = answered(3, question, 2, [1, 2], signed=False).sends
    assert [link for link, _ in sends] == [1]
    assert asker.receive(sends[0][1], 3, [2, 3], 0).answered == (number, b"true")


def test_asker_beyond_its_share_is_not_passed_on_and_others_are() -> None:
    relay, flooding, other = Questions(2, 1), Questions(1, 1), Questions(5, 1)
    for _ in range(MAX_OF_ASKER):
        assert relay.receive(flooding.ask(4, ID, [2], 0)[1].sends[0][1], 1, [1, 3], 0).sends
    beyond = flooding.ask(4, ID, [2], 0)[1].sends[0][1]
    said = relay.receive(beyond, 1, [1, 3], 0)
    assert not said.sends
    assert "questions of broker 1" in said.refused
    assert relay.receive(other.ask(4, ID, [2], 0)[1].sends[0][1], 1, [1, 3], 0).sends
    later = REMEMBERED_MS + 1
    assert relay.receive(flooding.ask(4, ID, [2], later)[1].sends[0][1], 1, [1, 3], later).sends


def test_question_that_was_answered_is_not_passed_on_again() -> None:
    relay = Questions(2, 1)
    question = Questions(1, 1).ask(4, ID, [2], 0)[1].sends[0][1]
    (_, passed_on), *_ = relay.receive(question, 1, [1, 4], 0).sends
    answer = answered(4, passed_on, 2, [2], signed=False).sends[0][1]
    assert relay.receive(answer, 4, [1, 4], 0).sends == [(1, answer)]
    assert relay.receive(answer, 4, [1, 4], 0) == Said([])
    assert relay.receive(question, 4, [1, 3, 4], 0) == Said([])
