"""Grids of servers: the paper's architectures are their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import (
    CapacityError,
    ServerGrid,
    ServiceTime,
    paper_crossover,
    paper_ssr_capacity,
    publisher_side,
    subscriber_side,
)

CORRELATION = ServiceTime(8.52e-7, 7.02e-6, 1.70e-5)


def test_crossovers_of_figure_15_follow_from_the_printed_equations() -> None:
    assert paper_ssr_capacity(CORRELATION, 10, 1) == pytest.approx(10_221, abs=1)
    found = [paper_crossover(CORRELATION, subscribers, 10, 1) for subscribers in (10, 100, 1_000, 10_000)]
    assert found == pytest.approx([8.2, 80, 797, 7_973], abs=0.6)


def test_crossovers_move_when_servers_are_charged_their_own_copies() -> None:
    for subscribers, wanted in ((10, 9.9), (100, 99), (1_000, 988), (10_000, 9_880)):
        beside = subscriber_side(CORRELATION, 10**6, subscribers, 10, 1).capacity()
        at_one = publisher_side(CORRELATION, 10**6, subscribers, 10, 1).capacity() / 10**6
        assert beside / at_one == pytest.approx(wanted, rel=0.012)
    assert subscriber_side(CORRELATION, 1, 10_000, 10, 1).capacity() == pytest.approx(12_667, rel=1e-3)


def test_a_publisher_side_server_with_ten_thousand_subscribers_carries_one_message_a_second() -> None:
    assert ServerGrid(CORRELATION, 1, 10_000, 10, 1, 1, 1).capacity() == pytest.approx(1.28, abs=0.005)  # not 7


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 8), st.integers(1, 8))
def test_capacity_never_falls_when_groups_are_added(publishers: int, subscribers: int, rows: int, columns: int) -> None:
    rows, columns = min(rows, publishers), min(columns, subscribers)
    grid = ServerGrid(CORRELATION, publishers, subscribers, 10, 1, rows, columns)
    if rows < publishers:
        assert grid._replace(rows=rows + 1).capacity() > grid.capacity()
    if columns < subscribers:
        assert grid._replace(columns=columns + 1).capacity() > grid.capacity()


def test_capacity_grows_in_both_directions_while_filters_dominate() -> None:
    small = ServerGrid(CORRELATION, 1_000, 10_000, 10, 1, 10, 10)
    large = small._replace(rows=20, columns=20)
    assert large.capacity() / small.capacity() == pytest.approx(4, rel=0.01)
    assert large.servers == 400


def test_groups_without_members_are_refused() -> None:
    with pytest.raises(CapacityError, match="5 publishers cannot be split into 6 groups"):
        ServerGrid(CORRELATION, 5, 5, 1, 1, 6, 1).capacity()
    with pytest.raises(CapacityError, match="5 subscribers cannot be split into 0 groups"):
        ServerGrid(CORRELATION, 5, 5, 1, 1, 1, 0).capacity()
