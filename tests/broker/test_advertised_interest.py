"""What brokers tell each other of their subscribers: whole or by changes, exact or encoded, it comes to the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker.advertised_interest import AdvertisedInterest, scheme_of
from postroad.broker.interests import Interests
from postroad.matching import SubscriptionIndex
from postroad.matching.encoding import EncodingError, Scheme
from postroad.messages import Batch, Draft
from postroad.selectors import Selector, TopicPattern
from postroad.topology import Settings
from tests.matching.strategies import conjunctions, disjunctions, messages, topic_patterns, topics

SCHEMES = {"exact": None, "sharp": Scheme.sharp(), "paper": Scheme.paper(128, 3)}
_wants = st.tuples(st.one_of(topics, topic_patterns()), st.one_of(st.just(""), conjunctions, disjunctions))


def parsed(text: str) -> Selector | None:
    return Selector.parse(text) if text else None


@pytest.mark.parametrize("form", SCHEMES)
@settings(max_examples=40)
@given(st.lists(_wants, min_size=1, max_size=5), st.lists(messages, min_size=1, max_size=5), st.data())
def test_changes_tell_the_same_as_the_whole(
    form: str, pool: list[tuple[str, str]], drafts: list[Draft], data: st.DataObject
) -> None:
    scheme, batch = SCHEMES[form], Batch.build(drafts)
    wants = AdvertisedInterest(scheme)
    there: list[tuple[int, tuple[str, str]]] = []
    by_changes, local = Interests(SubscriptionIndex(), scheme), SubscriptionIndex()
    by_changes.replace(70, b"")
    for step in range(data.draw(st.integers(1, 8))):
        if bool(there) and data.draw(st.booleans()):
            key, gone = there.pop(data.draw(st.integers(0, len(there) - 1)))
            wants.remove(gone[0], parsed(gone[1]))
            local.remove(key)
        else:
            topic, text = data.draw(st.sampled_from(pool))
            there.append((step, (topic, text)))
            wants.add(topic, parsed(text))
            local.add(step, parsed(text), TopicPattern.parse(topic))
        delta = wants.take()
        if delta is not None:
            by_changes.change(70, delta)
        at_once = Interests(SubscriptionIndex(), scheme)
        at_once.replace(70, wants.whole())
        found = [one.split(batch, entering=True).destinations for one in (by_changes, at_once)]
        selected = [[each.numbers(row) == [70] for row in range(len(batch))] for each in found]
        assert selected[0] == selected[1]
        offsets, _ = local.match(batch)
        truth = (offsets[1:] > offsets[:-1]).tolist()
        if scheme is None:
            assert selected[0] == truth
        else:
            assert all(chosen for chosen, right in zip(selected[0], truth, strict=True) if right)
    assert wants.take() is None


def test_one_more_subscription_is_told_in_bytes_for_one() -> None:
    wants = AdvertisedInterest()
    for number in range(10_000):
        wants.add("quotes", Selector.parse(f"stock = 'S{number}' AND price > {number % 90}"))
    first = wants.take()
    assert first is not None
    assert len(first.added) > 50_000
    wants.add("quotes", Selector.parse("stock = 'new' AND price > 20"))
    change = wants.take()
    assert change is not None
    assert len(change.added) < 60
    assert change.removed == b""
    wants.add("quotes", Selector.parse("stock = 'new' AND price > 30"))
    assert wants.take() is None


@pytest.mark.parametrize("form", SCHEMES)
def test_a_broker_that_is_gone_wants_nothing(form: str) -> None:
    wants, interests = AdvertisedInterest(SCHEMES[form]), Interests(SubscriptionIndex(), SCHEMES[form])
    wants.add("a", None)
    interests.replace(3, wants.whole())
    batch = Batch.build([Draft("a"), Draft("b")])
    found = interests.split(batch, entering=True).destinations
    assert 3 in found.numbers(0)
    assert interests.brokers == (3,)
    interests.replace(3, None)
    found = interests.split(batch, entering=True).destinations
    assert [*found.numbers(0), *found.numbers(1), *interests.brokers] == []


def test_settings_choose_the_form() -> None:
    assert scheme_of(Settings()) is None
    assert scheme_of(Settings(interest="encoded")) == Scheme.sharp()
    assert scheme_of(Settings(interest="encoded", categories="paper", vector_bits=512)) == Scheme.paper(512, 8)


def test_an_advertisement_of_another_scheme_is_refused_and_changes_nothing() -> None:
    interests = Interests(SubscriptionIndex(), Scheme.sharp())
    wants, other = AdvertisedInterest(Scheme.sharp()), AdvertisedInterest(Scheme.paper())
    wants.add("a", None)
    other.add("a", None)
    interests.replace(3, wants.whole())
    with pytest.raises(EncodingError, match="where this network agreed on"):
        interests.replace(3, other.whole())
    assert interests.split(Batch.build([Draft("a")]), entering=True).destinations.numbers(0) == [3]


@pytest.mark.parametrize("form", SCHEMES)
def test_who_wants_more_than_can_be_said_gets_everything_until_it_is_less_again(form: str) -> None:
    wants, interests = (
        AdvertisedInterest(SCHEMES[form], most_bytes=2_000),
        Interests(SubscriptionIndex(), SCHEMES[form]),
    )
    batch = Batch.build([Draft("a", {"stock": "S3"}), Draft("elsewhere")])

    def selected() -> list[bool]:
        found = interests.split(batch, entering=True).destinations
        return [found.numbers(row) == [3] for row in range(len(batch))]

    subscriptions = [("a", Selector.parse(f"stock = 'S{number}'")) for number in range(1_000)]
    for subscription in subscriptions:
        wants.add(*subscription)
    interests.replace(3, wants.whole())
    assert selected() == [True, True]
    wants.take()
    for subscription in subscriptions[10:]:
        wants.remove(*subscription)
    change = wants.take()
    assert change is not None
    interests.change(3, change)
    assert selected() == [True, True]
    interests.replace(3, wants.whole())
    assert selected() == [True, False]
