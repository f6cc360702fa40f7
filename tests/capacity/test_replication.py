"""Moments and transforms of replication grades equal enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import (
    Binomial,
    CapacityError,
    Constant,
    Grade,
    Measured,
    Moments,
    ScaledBernoulli,
    binomial_third_moment,
)

probabilities = st.floats(0, 1, allow_nan=False)
grades = st.one_of(
    st.builds(Constant, st.integers(0, 200)),
    st.builds(ScaledBernoulli, st.integers(0, 200), probabilities),
    st.builds(Binomial, st.integers(0, 60), probabilities),
)


def enumerated(grade: Grade) -> Moments:
    copies, shares = grade.probabilities()
    return Moments(*(float(np.dot(copies**power, shares)) for power in (1, 2, 3)))


@given(grades)
def test_moments_equal_enumeration(grade: Grade) -> None:
    assert grade.moments() == pytest.approx(enumerated(grade), rel=1e-12, abs=1e-12)


@given(grades, st.floats(0, 1), st.floats(0, 2 * math.pi))
def test_transform_equals_enumeration(grade: Grade, radius: float, angle: float) -> None:
    z = np.array([radius * np.exp(1j * angle)])
    copies, shares = grade.probabilities()
    wanted = sum(share * z ** int(count) for count, share in zip(copies, shares, strict=True))
    assert grade.transform(z) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_binomial_moments_equal_exact_fractions() -> None:
    n, p = 10, Fraction(3, 10)
    exact = [sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * k**power for k in range(n + 1)) for power in (1, 2, 3)]
    assert Binomial(n, 0.3).moments() == pytest.approx([float(one) for one in exact], rel=1e-12)
    assert float(exact[2]) == pytest.approx(46.74)  # the example of the specification


@given(st.integers(1, 80), st.floats(0.01, 1))
def test_third_moment_of_a_binomial_follows_from_two(n: int, p: float) -> None:
    moments = Binomial(n, p).moments()
    assert binomial_third_moment(moments.first, moments.second) == pytest.approx(moments.third, rel=1e-9)


@given(st.floats(0.01, 50))
def test_third_moment_of_a_poisson_grade_has_the_same_form(mean: float) -> None:
    assert binomial_third_moment(mean, mean**2 + mean) == pytest.approx(mean**3 + 3 * mean**2 + mean, rel=1e-9)


@given(st.integers(1, 500), st.floats(0.01, 1))
def test_scaled_bernoulli_is_found_from_two_moments(n: int, p: float) -> None:
    moments = ScaledBernoulli(n, p).moments()
    assert ScaledBernoulli.of(moments.first, moments.second) == pytest.approx((n, p), rel=1e-9)


def test_scaled_bernoulli_refuses_moments_that_no_member_has() -> None:
    with pytest.raises(CapacityError, match=r"need p = 1\.25: E\[R²\] must be E\[R\]² = 25 or more"):
        ScaledBernoulli.of(5, 20)
    with pytest.raises(CapacityError, match="does not determine"):
        ScaledBernoulli.of(0, 0)


def test_measured_grade_is_what_was_counted() -> None:
    grade = Measured(np.array([0.0, 2.0, 5.0]), np.array([50.0, 40.0, 10.0]))
    assert grade.moments() == pytest.approx((1.3, 4.1, 15.7))
    with pytest.raises(CapacityError, match="no message was counted"):
        Measured(np.array([1.0]), np.array([0.0])).moments()


@given(grades, st.floats(0, 10), st.floats(0, 10))
def test_shifted_and_scaled_moments_equal_enumeration(grade: Grade, shift: float, factor: float) -> None:
    copies, shares = grade.probabilities()
    wanted = [float(np.dot((shift + factor * copies) ** power, shares)) for power in (1, 2, 3)]
    assert grade.moments().shifted_and_scaled(shift, factor) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
