from __future__ import annotations

from typing import Any

import pytest

from postroad.errors import LimitError, PostroadError
from postroad.matching.encoding import PERCENT_LADDER, EncodingError, Scheme, even_ladder


def test_even_ladder_cuts_equal_parts() -> None:
    assert even_ladder(0, 100, 3) == (25, 50, 75)
    assert PERCENT_LADDER == (12.5, 25, 37.5, 50, 62.5, 75, 87.5)


def test_paper_has_neither_ladder_nor_grams() -> None:
    assert (Scheme.paper().thresholds, Scheme.paper().gram) == ((), 0)
    assert (Scheme.sharp().thresholds, Scheme.sharp().gram) == (PERCENT_LADDER, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 0},
        {"bits": 63},
        {"bits": 100},
        {"hashes": 0},
        {"hashes": 33},
        {"gram": 1},
        {"gram": 5},
        {"gram": -1},
        {"thresholds": (1.0, 1.0)},
        {"thresholds": (2.0, 1.0)},
        {"thresholds": (float("nan"),)},
        {"thresholds": (float("inf"),)},
        {"thresholds": (2.0**53,)},
    ],
)
def test_scheme_refuses_parameters_without_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(EncodingError):
        Scheme(**{"bits": 512, "hashes": 4, **wrong})


@pytest.mark.parametrize("wrong", [{"bits": 65_536}, {"thresholds": tuple(map(float, range(65)))}])
def test_scheme_refuses_parameters_beyond_a_limit(wrong: dict[str, Any]) -> None:
    with pytest.raises(LimitError):
        Scheme(**{"bits": 512, "hashes": 4, **wrong})


def test_errors_are_of_the_house() -> None:
    assert issubclass(EncodingError, PostroadError)
