"""Random networks for the tests."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from postroad.topology import Graph

MOST_BROKERS = 9


@st.composite
def graphs(draw: st.DrawFn, connected: bool = True, most: int = MOST_BROKERS) -> Graph:
    """A network of a few brokers with gaps in their numbers and many equal costs, so that there are ties."""
    numbers = draw(st.lists(st.integers(1, 140), min_size=1, max_size=most, unique=True))
    pairs = st.tuples(st.sampled_from(numbers), st.sampled_from(numbers)).filter(lambda pair: pair[0] < pair[1])
    ends = set(draw(st.lists(pairs, max_size=12))) if len(numbers) > 1 else set()
    if connected:
        ends |= {(min(pair), max(pair)) for pair in pairwise(numbers)}
    return Graph(numbers, {pair: draw(st.integers(1, 3)) for pair in sorted(ends)})
