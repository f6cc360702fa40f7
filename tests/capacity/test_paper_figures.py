"""The paper's figures, held to what its text says of them, or to the right value where that differs."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import Curve, Figure, figures_report, paper_crossover, paper_figures
from postroad.capacity.paper_figures import CORRELATION

FIGURES = {figure.number: figure for figure in paper_figures()}


def curve(figure: Figure, name: str) -> Curve:
    (found,) = (one for one in figure.curves if one.name == name)
    return found


def at(line: Curve, across: float) -> float:
    return float(np.interp(across, line.across, line.up))


def test_every_figure_of_the_model_is_there() -> None:
    assert list(FIGURES) == [4, 5, 6, 8, 9, 10, 11, 12, 15]
    for figure in FIGURES.values():
        for line in figure.curves:
            assert len(line.across) == len(line.up)
            assert np.isfinite(line.up).all()
            assert (np.diff(line.across) > 0).all()


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("correlation id, R = 1", 33_349, 1_742),
        ("correlation id, R = 40", 41_134, 19_666),
        ("application property, R = 1", 18_536, 844),
        ("application property, R = 40", 31_319, 11_478),
    ],
)
def test_throughput_of_the_measured_grid_has_the_ends_of_table_one(name: str, first: int, last: int) -> None:
    line = curve(FIGURES[4], name)
    assert line.up[[0, -1]] == pytest.approx([first, last], abs=1)


def test_service_times_and_capacities_are_inverse_and_filters_dominate_in_the_end() -> None:
    one, thousand = (curve(FIGURES[5], f"correlation id, E[R] = {copies}") for copies in ("1", "1,000"))
    assert thousand.up[0] / one.up[0] > 500
    assert thousand.up[-1] / one.up[-1] < 1.3
    capacity = curve(FIGURES[6], "E[R] = 1")
    assert capacity.up * one.up == pytest.approx(np.full(len(one.up), 0.9))
    # Ten and a hundred unfiltered copies cost as much as 22 and 240 filters.
    for copies, filters in ((10, 21.8), (100, 239.7)):
        assert CORRELATION.mean(filters, 1) == pytest.approx(CORRELATION.mean(0, copies), rel=1e-3)


def test_variation_is_at_most_065_where_all_filters_match_and_falls_without_limit_where_they_are_independent() -> None:
    highest = max(float(line.up.max()) for line in FIGURES[8].curves)
    assert highest == pytest.approx(CORRELATION.greatest_variation(), rel=2e-3)
    assert highest <= 0.6547
    for line in FIGURES[9].curves:
        assert at(line, 10_000) == pytest.approx(at(line, 100) / 10, rel=0.2)


def test_waits_at_ninety_percent_are_those_of_the_text() -> None:
    for variation, mean, high in (("0", 4.50, 43.4), ("0.2", 4.68, 45.5), ("0.4", 5.22, 55.0)):
        assert at(curve(FIGURES[10], f"c = {variation}"), 0.9) == pytest.approx(mean, rel=0.02)
        assert at(curve(FIGURES[12], f"99.99 %, c = {variation}"), 0.9) == pytest.approx(high, rel=0.09)
        tail = curve(FIGURES[11], f"c = {variation}, binomial")
        assert tail.up[0] == pytest.approx(0.9)
        assert (np.diff(tail.up) <= 0).all()


def test_lines_of_the_two_architectures_cross_where_the_equation_says() -> None:
    printed = curve(FIGURES[15], "subscriber side, as printed").up[0]
    assert printed == pytest.approx(10_221, abs=1)
    for subscribers in (10, 100, 1_000, 10_000):
        line = curve(FIGURES[15], f"publisher side, {subscribers:,} subscribers")
        crossing = paper_crossover(CORRELATION, subscribers, 10, 1)
        assert printed / line.up[0] == pytest.approx(crossing, rel=1e-9)


def test_the_page_draws_each_figure_and_needs_nothing_from_elsewhere() -> None:
    page = figures_report(paper_figures()[-1:])
    assert "Figure 15" in page
    assert page.count("<svg") == 1
    assert "src=" not in page
    assert "1.28 messages/s, not 7" in page
