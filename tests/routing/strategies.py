"""What happens to a network, at random: subscriptions, messages, cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.routing.network import Network

TOPICS = ["a", "a.b", "a.c", "b", "b.c.d"]
PATTERNS = [*TOPICS, ">", "a.*", "a.>", "*"]

# (broker, pattern), (broker, topic): brokers by their place among those there are.
subscriptions = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(PATTERNS)), max_size=10)
publications = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(TOPICS)), min_size=1, max_size=6)
churn = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 50), st.sampled_from(TOPICS)),
        st.tuples(st.sampled_from(["cut", "join"]), st.integers(0, 50), st.just("")),
        st.tuples(st.just("steps"), st.integers(1, 12), st.just("")),
    ),
    max_size=25,
)


def chosen(values: Sequence[int], place: int) -> int:
    return values[place % len(values)]


def subscribe(network: Network, wanted: list[tuple[int, str]]) -> None:
    """Subscribe, and wait until all know."""
    for place, pattern in wanted:
        network.subscribe(chosen(network.graph.brokers, place), pattern)
    network.run()


def publish(network: Network, sent: list[tuple[int, str]]) -> list[int]:
    return [
        message for place, topic in sent for message in network.publish(chosen(network.graph.brokers, place), [topic])
    ]


def disturb(network: Network, actions: list[tuple[str, int, str]]) -> list[int]:
    """Publish and cut and join, with messages on their way; then mend everything and wait."""
    messages: list[int] = []
    links = list(network.graph.links)
    for action, place, topic in actions:
        if action == "publish":
            messages += publish(network, [(place, topic)])
        elif action == "steps":
            for _ in range(min(place, len(network.queue))):
                network.step()
        elif links:
            one, other = links[place % len(links)]
            (network.cut if action == "cut" else network.join)(one, other)
    for one, other in links:
        network.join(one, other)
    network.wait(10_000)
    return messages


def check_that_unsubscribing_leaves_nothing(
    network: Network, wanted: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Subscribe, end all subscriptions in any order, and expect that no broker knows a pattern any more."""
    network.run()
    subscribe(network, wanted)
    for node in network.nodes.values():
        for pattern in data.draw(st.permutations(node.patterns)):
            network.unsubscribe(node.number, pattern)
    network.run()
    assert all(node.strategy.statistics()["patterns"] == 0 for node in network.nodes.values())
