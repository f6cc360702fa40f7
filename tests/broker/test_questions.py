from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker.questions import MAX_ANSWER_BYTES, MAX_HOPS, REMEMBERED_MS, QuestionError, Questions
from postroad.messages import MessageId
from postroad.topology import Graph, line, waxman

ID = MessageId(1, 2, 3, 4)


class Net:
    """Brokers that pass questions on, and answer with their own number."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.brokers = {number: Questions(number, 1) for number in graph.brokers}
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
                sends += self.brokers[broker].answer(key, b"%d" % broker, now).sends
            if said.answered is not None:
                self.answers.append(said.answered)
            waiting.extend((broker, link, data) for link, data in sends)
        return number


@given(seed=st.integers(0, 1_000), size=st.integers(2, 20), data=st.data())
def test_any_broker_can_ask_any_other_and_gets_one_answer(seed: int, size: int, data: st.DataObject) -> None:
    net = Net(waxman(size, seed))
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
    answer = other.answer(asked[0], b"x", 0).sends[0][1]
    assert questions.receive(answer, 2, [2], REMEMBERED_MS + 1).answered is None


def test_bytes_that_are_neither_question_nor_answer_are_refused() -> None:
    questions = Questions(1, 1)
    for data in (b"", b"\xff\xff", b"\x93\x01\x02\x03"):
        with pytest.raises(QuestionError, match="link 2"):
            questions.receive(data, 2, [2], 0)
    with pytest.raises(QuestionError, match="at most"):
        questions.answer((1, 1, 1), bytes(MAX_ANSWER_BYTES + 1), 0)
