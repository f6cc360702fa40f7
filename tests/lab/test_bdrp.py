from __future__ import annotations

import numpy as np
import pytest

from postroad.lab import bdrp
from postroad.lab.bdrp import NAMES, TEXT_NAMES, BdrpWorkload, matches
from postroad.lab.news_words import NEWS_WORDS
from postroad.selectors import Selector

CLIENTS, BROKERS, CONJUNCTIONS = 80, 8, 20


def replication(seed: int) -> tuple[float, float]:
    """Mean clients and mean brokers that a message reaches, in the paper's comparative setting."""
    workload = BdrpWorkload(seed)
    held = matches(workload.predicates(CLIENTS * CONJUNCTIONS, 1, 1), workload.messages(400))
    clients = held.reshape(-1, CLIENTS, CONJUNCTIONS).any(axis=2)
    brokers = clients.reshape(-1, BROKERS, CLIENTS // BROKERS).any(axis=2)
    return float(clients.sum(axis=1).mean()), float(brokers.sum(axis=1).mean())


def test_workload_reaches_as_many_clients_and_brokers_as_the_paper() -> None:
    clients, brokers = np.mean([replication(seed) for seed in range(20)], axis=0)
    assert clients == pytest.approx(4.2, abs=0.3)
    assert brokers == pytest.approx(3.3, abs=0.2)


def test_vocabulary_has_two_hundred_distinct_words() -> None:
    assert len(NEWS_WORDS) == len(set(NEWS_WORDS)) == 200
    assert min(map(len, NEWS_WORDS)) >= bdrp.SHORTEST_PIECE


def test_names_are_distinct_identifiers() -> None:
    assert len(set(NAMES)) == 170
    assert all(name.isidentifier() for name in NAMES)


def test_same_seed_draws_the_same_workload() -> None:
    first, second, other = BdrpWorkload(3), BdrpWorkload(3), BdrpWorkload(4)
    texts = first.predicates(50).texts()
    assert texts == second.predicates(50).texts()
    assert texts != other.predicates(50).texts()
    assert first.messages(5).attributes() == second.messages(5).attributes()


def test_messages_have_ten_attributes_of_the_type_of_their_name() -> None:
    for message in BdrpWorkload(1).messages(200).attributes():
        assert len(message) == 10
        for name, value in message.items():
            if name.startswith("term_"):
                assert value in NEWS_WORDS
            else:
                assert type(value) is int
                assert 0 <= value <= 100


def test_batch_holds_the_same_attributes() -> None:
    messages = BdrpWorkload(6).messages(20)
    assert [message.attributes for message in messages.batch()] == messages.attributes()


def test_selectors_read_what_the_workload_writes() -> None:
    workload = BdrpWorkload(7)
    predicates, messages = workload.predicates(200, 1, 2), workload.messages(200)
    selectors = [Selector.parse(text) for text in predicates.texts()]
    found = [[selector.matches(attributes) for selector in selectors] for attributes in messages.attributes()]
    assert np.array_equal(matches(predicates, messages), found)


def test_predicates_have_the_stated_mix_of_operators() -> None:
    predicates = BdrpWorkload(2).predicates(50_000)
    text = predicates.names < TEXT_NAMES
    assert text.mean() == pytest.approx(0.6, abs=0.01)
    words, integers = predicates.operators[text], predicates.operators[~text]
    assert np.bincount(words, minlength=6) / len(words) == pytest.approx([0.7, 0, 0, 0.1, 0.1, 0.1], abs=0.01)
    assert np.bincount(integers, minlength=6) / len(integers) == pytest.approx([0.8, 0.1, 0.1, 0, 0, 0], abs=0.01)
    assert np.bincount(predicates.widths, minlength=6) / 50_000 == pytest.approx([0, *[0.2] * 5], abs=0.01)


def test_dealt_predicates_hold_the_stated_shares_in_each_draw() -> None:
    """Of 1,600 constraints, 0.6 are on texts, 0.7 of these equalities, and so on: to one, not on average."""
    for seed in range(5):
        dealt = BdrpWorkload(seed).dealt(1_600, 1, 1)
        text = dealt.names[:, 0] < TEXT_NAMES
        assert text.sum() == pytest.approx(960, abs=2)
        for kind, shares in ((text, [0.7, 0, 0, 0.1, 0.1, 0.1]), (~text, [0.8, 0.1, 0.1, 0, 0, 0])):
            counts = np.bincount(dealt.operators[kind, 0], minlength=6)
            assert counts == pytest.approx(np.array(shares) * kind.sum(), abs=1)
        uses = np.bincount(dealt.names[:, 0], minlength=170)
        assert uses.max() - uses.min() <= 1
        below = np.sort(dealt.operands[~text & (dealt.operators[:, 0] == bdrp.LESS), 0])
        # 64 of 101 values, evenly spread: none is far from its place.
        assert below == pytest.approx((np.arange(len(below)) + 0.5) * 101 / len(below), abs=2)
        equal = np.bincount(dealt.operands[~text & (dealt.operators[:, 0] == bdrp.EQUAL), 0], minlength=101)
        assert equal.max() - equal.min() <= 1


@pytest.mark.parametrize(("count", "most"), [(1, 5), (40, 5), (500, 10), (3, 1)])
def test_dealt_conjunctions_have_distinct_names_and_all_widths(count: int, most: int) -> None:
    dealt = BdrpWorkload(3).dealt(count, 1, most)
    assert all(len(set(row)) == most for row in dealt.names.tolist())
    widths = np.bincount(dealt.widths, minlength=most + 1)[1:]
    assert widths.max() - widths.min() <= 1
    assert len(dealt.texts()) == count


def test_predicates_have_exactly_one_constraint_when_asked() -> None:
    assert all(" AND " not in text for text in BdrpWorkload(5).predicates(100, 1, 1).texts())


def holds(constraint: str, message: dict[str, str | int]) -> bool:
    name, operator, operand = constraint.split()
    if name not in message:
        return False
    value = message[name]
    if operator == "LIKE":
        piece = operand.strip("'%")
        assert isinstance(value, str)
        if operand.endswith("%'"):
            return piece in value if operand.startswith("'%") else value.startswith(piece)
        return value.endswith(piece)
    if operator == "=":
        return str(value) == operand.strip("'")
    assert isinstance(value, int)
    return value < int(operand) if operator == "<" else value > int(operand)


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 5), (2, 3)])
def test_truth_equals_reading_the_selector_texts(least: int, most: int) -> None:
    workload = BdrpWorkload(11)
    predicates, messages = workload.predicates(300, least, most), workload.messages(300)
    expected = [
        [all(holds(constraint, message) for constraint in text.split(" AND ")) for text in predicates.texts()]
        for message in messages.attributes()
    ]
    assert np.array_equal(matches(predicates, messages), expected)
    assert least > 1 or np.any(expected)
