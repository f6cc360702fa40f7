"""The runs of a benchmark, by case and contender."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from _typeshed import DataclassInstance

__all__ = ["Outcomes", "RatioTarget", "rounded"]

Figures = TypeVar("Figures", bound="DataclassInstance")


@dataclass(frozen=True)
class RatioTarget:
    """How many times the messages of another broker Postroad should move in one case.

    Attributes:
        name: in results.
        case: of the benchmark.
        rival: the other broker.
        least: times its messages.
        ours: Postroad, as it was set up.
    """

    name: str
    case: str
    rival: str
    least: float
    ours: str = "postroad"


class Outcomes(Generic[Figures]):
    """What the runs showed.

    Args:
        kind: the dataclass of figures that a run gives.
        sums: the figures that are added up over runs; of the others the median counts.
    """

    def __init__(self, kind: type[Figures], sums: Collection[str]) -> None:
        self._kind = kind
        self._sums = sums
        self._runs: dict[tuple[str, str], list[Figures]] = {}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._runs)

    def add(self, case: str, contender: str, outcome: Figures) -> None:
        """One run more."""
        self._runs.setdefault((case, contender), []).append(outcome)

    def runs(self, case: str, contender: str) -> list[Figures]:
        """All runs of a contender in a case."""
        return self._runs.get((case, contender), [])

    def all_runs(self) -> Iterator[Figures]:
        """All runs."""
        for runs in self._runs.values():
            yield from runs

    def medians(self, case: str, contender: str) -> Figures | None:
        """The median, or the sum, of each figure; None without runs."""
        runs = self.runs(case, contender)
        if not runs:
            return None
        figures = {each.name: [getattr(run, each.name) for run in runs] for each in fields(self._kind)}
        found = {name: sum(values) if name in self._sums else median(values) for name, values in figures.items()}
        return self._kind(**found)

    def table(self) -> dict[str, dict[str, dict[str, float]]]:
        """Case -> contender -> its medians, rounded."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for case, contender in self._runs:
            medians = self.medians(case, contender)
            assert medians is not None
            figures: dict[str, float] = asdict(medians)
            found.setdefault(case, {})[contender] = {name: round(value, 3) for name, value in figures.items()}
        return found


def rounded(ratios: dict[str, float | None]) -> dict[str, float | None]:
    """Ratios as the last line of a benchmark has them."""
    return {name: None if ratio is None else round(ratio, 3) for name, ratio in ratios.items()}
