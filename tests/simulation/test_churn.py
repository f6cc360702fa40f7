"""All four strategies against one big broker, while links break, brokers crash and return, and subscribers come and go.

What is published while nothing changes reaches exactly those who want it; what is published meanwhile reaches nobody
twice and nobody else.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import planned_strategy, scheme_of
from postroad.messages import Draft
from postroad.selectors import Selector, TopicPattern
from postroad.simulation import SimulatedNetwork
from postroad.topology import Plan, Settings, cluster, power_law, ring, tree

if TYPE_CHECKING:
    from postroad.messages import MessageId

# Short, so that little virtual time brings every change to rest.
QUICK = Settings(heartbeat_ms=50, refresh_ms=500, lifetime_ms=1_700)
# Vectors so short that they often select brokers that want nothing: that may cost messages on links and nothing else.
ENCODED = msgspec.structs.replace(QUICK, interest="encoded", vector_bits=256, vector_hashes=2)
SETTLED_MS = 4_000
SELECTORS = ("", "price > 5", "stock = 'x'", "stock LIKE 'x%' OR price = 7", "price BETWEEN 2 AND 4 AND stock <> 'z'")
PATTERNS = ("a", "a.>", ">", "*", "a.b", "c")
TOPICS = ("a", "a.b", "a.c", "c")

shapes = {
    "encoded": st.one_of(st.integers(3, 6).map(ring), st.builds(power_law, st.integers(4, 8), seed=st.integers(0, 5))),
    "drp": st.one_of(st.integers(3, 6).map(ring), st.builds(power_law, st.integers(4, 8), seed=st.integers(0, 5))),
    "flood": st.one_of(st.integers(3, 6).map(ring), st.builds(power_law, st.integers(4, 8), seed=st.integers(0, 5))),
    "tree": st.builds(tree, st.integers(2, 9), st.integers(1, 3)),
    "cluster": st.builds(cluster, st.integers(1, 2), st.integers(1, 2), st.integers(0, 1), st.integers(1, 2)),
}


class Churned:
    """A network, what its subscribers want, and what they should have got."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.draw = random.Random(seed)
        chosen = scheme_of(plan.settings)
        self.net = SimulatedNetwork(plan.graph(), planned_strategy(plan), random.Random(seed), scheme=chosen)
        self.running = set(plan.graph().brokers)
        self.cut: set[tuple[int, int]] = set()
        self.wants: dict[str, tuple[int, TopicPattern, Selector]] = {}
        self.published: dict[MessageId, Draft] = {}
        self.expected: dict[str, list[MessageId]] = {}
        self.everyone: dict[str, tuple[TopicPattern, Selector]] = {}

    def subscribe(self) -> None:
        broker, name = self.draw.choice(sorted(self.running)), f"s{len(self.everyone)}"
        topic, selector = self.draw.choice(PATTERNS), self.draw.choice(SELECTORS)
        self.net.subscribe(broker, name, topic, selector)
        self.everyone[name] = (TopicPattern.parse(topic), Selector.parse(selector))
        self.wants[name] = (broker, *self.everyone[name])
        self.expected[name] = []

    def unsubscribe(self) -> None:
        if self.wants:
            name = self.draw.choice(sorted(self.wants))
            self.net.unsubscribe(self.wants.pop(name)[0], name)

    def crash(self) -> None:
        if len(self.running) > 1:
            broker = self.draw.choice(sorted(self.running))
            self.running.discard(broker)
            self.net.crash(broker)
            self.wants = {name: one for name, one in self.wants.items() if one[0] != broker}

    def start(self) -> None:
        dead = sorted(set(self.net.graph.brokers) - self.running)
        if dead:
            broker = self.draw.choice(dead)
            self.net.start(broker)
            self.running.add(broker)
            self.cut = {link for link in self.cut if broker not in link}

    def break_link(self) -> None:
        links = [link for link in self.net.graph.links if set(link) <= self.running and link not in self.cut]
        if links:
            link = self.draw.choice(links)
            self.cut.add(link)
            self.net.cut(*link)

    def mend_link(self) -> None:
        if self.cut:
            link = self.draw.choice(sorted(self.cut))
            self.cut.discard(link)
            if set(link) <= self.running:
                self.net.join(*link)

    def publish(self, *, settled: bool) -> None:
        drafts = [self._draft() for _ in range(self.draw.randrange(1, 4))]
        ids = self.net.publish(self.draw.choice(sorted(self.running)), drafts)
        for message, draft in zip(ids, drafts, strict=True):
            self.published[message] = draft
            for name, (_, topic, selector) in self.wants.items() if settled else ():
                if topic.matches(draft.topic) and selector.matches(draft.attributes):
                    self.expected[name].append(message)

    def _draft(self) -> Draft:
        stock = self.draw.choice(("x", "xy", "z"))
        return Draft(self.draw.choice(TOPICS), {"price": self.draw.randrange(10), "stock": stock})

    def settle(self) -> None:
        """Everything is there again, and has had time."""
        while self.cut:
            self.mend_link()
        while self.running != set(self.net.graph.brokers):
            self.start()
        self.net.run(SETTLED_MS)

    def check(self) -> None:
        for name, (topic, selector) in self.everyone.items():
            got = Counter(self.net.delivered[name])
            assert set(got.values()) <= {1}
            assert set(self.expected[name]) <= got.keys()
            for message in got:
                draft = self.published[message]
                assert topic.matches(draft.topic)
                assert selector.matches(draft.attributes)


ACTIONS = ("subscribe", "unsubscribe", "crash", "start", "break_link", "mend_link")


@pytest.mark.parametrize("strategy", shapes)
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_after_any_churn_everybody_gets_what_it_wants_once(strategy: Any, data: st.DataObject, seed: int) -> None:
    shape: Any = data.draw(shapes[strategy])
    if strategy == "encoded":
        plan = Plan.of(shape, "churn", settings=ENCODED)
    else:
        plan = Plan.of(shape, "churn", strategy=strategy, settings=QUICK)
    one = Churned(plan, seed)
    for _ in range(3):
        one.subscribe()
    for _ in range(3):
        one.settle()
        for _ in range(3):
            one.publish(settled=True)
        one.net.run(SETTLED_MS)
        for action in data.draw(st.lists(st.sampled_from(ACTIONS), max_size=6)):
            getattr(one, action)()
            one.publish(settled=False)
            one.net.run(one.draw.randrange(200))
    one.settle()
    for _ in range(3):
        one.publish(settled=True)
    one.net.run(SETTLED_MS)
    one.check()


@pytest.mark.parametrize("strategy", ["tree", "cluster"])
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_the_living_go_on_without_a_broker_that_stays_dead(strategy: Any, data: st.DataObject, seed: int) -> None:
    shape: Any = data.draw(shapes[strategy])
    plan = Plan.of(shape, "churn", strategy=strategy, settings=QUICK)
    one = Churned(plan, seed)
    one.settle()
    for _ in range(4):
        one.subscribe()
    one.net.run(SETTLED_MS)
    one.crash()
    one.net.run(SETTLED_MS)
    for _ in range(6):
        one.publish(settled=True)
    one.net.run(SETTLED_MS)
    one.check()
