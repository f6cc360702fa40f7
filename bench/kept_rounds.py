"""What a run of open-loop loads measured, in files: models can be compared on the same measurements afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.capacity_waits import Round, Seen
from bench.open_loop import Passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["keep_rounds", "kept_rounds"]


def keep_rounds(folder: Path, rounds: Mapping[str, Sequence[Round]]) -> None:
    """Write one file for each kind of load."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, made in rounds.items():
        arrays: dict[str, Any] = {}
        for number, one in enumerate(made):
            for part, seen in (("between", one.between), ("predicted", one.predicted)):
                for place, run in enumerate(seen):
                    name = f"{number}.{part}.{place}"
                    arrays[f"{name}.run"] = np.array([run.burst, run.seconds])
                    arrays |= {f"{name}.{column}": values for column, values in run.passed._asdict().items()}
        # Names of columns are no options of numpy's: they have dots.
        np.savez_compressed(folder / f"{kind}.npz", **arrays)


def kept_rounds(folder: Path, kinds: Sequence[str]) -> dict[str, list[Round]]:
    """Read what `keep_rounds` wrote of these kinds.

    Raises:
        SystemExit: the folder has none of them.
    """
    found = {kind: _rounds(folder / f"{kind}.npz") for kind in kinds if (folder / f"{kind}.npz").exists()}
    if not found:
        raise SystemExit(f"{folder} has no measurements of {', '.join(kinds)}: make them with --keep {folder}")
    return found


def _rounds(path: Path) -> list[Round]:
    with np.load(path) as arrays:
        names = [name.removesuffix(".run").split(".") for name in arrays if name.endswith(".run")]

        def run(name: str) -> Seen:
            burst, seconds = arrays[f"{name}.run"].tolist()
            return Seen(int(burst), Passed(*(arrays[f"{name}.{column}"] for column in Passed._fields)), seconds)

        def runs(number: int, part: str) -> list[Seen]:
            places = sorted(int(place) for of, its, place in names if (int(of), its) == (number, part))
            return [run(f"{number}.{part}.{place}") for place in places]

        numbers = sorted({int(number) for number, _, _ in names})
        return [Round(runs(number, "between"), runs(number, "predicted")) for number in numbers]
