"""What an experiment is: trials to play, the paper's findings, and ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pyarrow import parquet

from postroad.capacity import BatchCosts
from postroad.lab.errors import LabError
from postroad.lab.service_costs import MEASURED_TIMES
from postroad.simulation import ServiceTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from postroad.lab.raw_events import RawEvents

__all__ = ["Experiment", "Finding", "Mode", "Plot", "PlottedLine", "Results", "RunRequest", "Trial"]

Mode = Literal["simulated", "live"]
# Figures of each live cell, twice: processes that ran or waited for a processor in the last minute, and processors.
LOAD_AVERAGE, PROCESSORS = "load average", "processors of the machine"
# A live run has a broker and its clients at work. With more than this for each processor, others hold them back.
CROWDED_LOAD = 2.0


@dataclass(frozen=True)
class RunRequest:
    """How to run an experiment.

    Attributes:
        mode: in virtual time, or on real brokers.
        scale: 1 is the size of the paper; each experiment says what it scales.
        seed: of everything that is drawn.
        service: how long simulated brokers work on what arrives.
    """

    mode: Mode = "simulated"
    scale: float = 1.0
    seed: int = 1
    service: ServiceTimes = MEASURED_TIMES

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> RunRequest:
        """Read what `settings` gave."""
        service = settings["service"]
        times = ServiceTimes(BatchCosts(**service["costs"]), service["control_us"], service["subscribe_us"])
        return cls(settings["mode"], settings["scale"], settings["seed"], times)

    def settings(self) -> dict[str, Any]:
        """Return the settings for `run.json` and the report."""
        times = self.service
        costs = {name: value for name, value in times.costs._asdict().items() if value}
        service = {"costs": costs, "control_us": times.control_us, "subscribe_us": times.subscribe_us}
        return {"mode": self.mode, "scale": self.scale, "seed": self.seed, "service": service}


@dataclass(frozen=True)
class Trial:
    """One cell of an experiment.

    Attributes:
        key: of letters, digits, dots and dashes; names its directory.
        parameters: what distinguishes it from the others.
        play: plays it; records what happens, and reports which share is done.
    """

    key: str
    parameters: Mapping[str, Any]
    play: Callable[[RawEvents, Callable[[float], None]], object]


class Finding(NamedTuple):
    """One statement of the paper, and what we found.

    Attributes:
        paper: what the paper found, as a stated fact.
        ours: what this run found.
        agrees: whether the two agree; None if the run does not say.
        why: the reason, above all if they differ.
    """

    paper: str
    ours: str
    agrees: bool | None
    why: str


class PlottedLine(NamedTuple):
    """One curve."""

    name: str
    across: Sequence[float]
    up: Sequence[float]
    dashed: bool = False

    @classmethod
    def of(cls, name: str, points: Iterable[tuple[float, float]], dashed: bool = False) -> PlottedLine:
        """From points."""
        found = list(points)
        return cls(name, [across for across, _ in found], [up for _, up in found], dashed)


@dataclass(frozen=True)
class Plot:
    """One figure of ours.

    Attributes:
        name: of its file.
        title: above it.
        across: the label of the horizontal axis.
        up: the label of the vertical axis.
        lines: what is drawn.
        logarithmic: axes with a logarithmic scale: "x", "y", "xy" or none.
        caption: what to see, and what the paper's figure shows.
    """

    name: str
    title: str
    across: str
    up: str
    lines: Sequence[PlottedLine]
    logarithmic: str = ""
    caption: str = ""


class Results:
    """The summaries of a run."""

    def __init__(self, summary: Path, asked: Mapping[str, Any], cells: Sequence[str]) -> None:
        self._summary = summary
        self.asked = asked
        self.cells = cells
        self._tables: dict[str, list[dict[str, Any]]] = {}

    def rows(self, table: str, cell: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table, of one cell or of all.

        Raises:
            LabError: the run has not been summarised.
        """
        if table not in self._tables:
            folder = self._summary / table
            files = sorted(folder.glob("*.parquet"))
            if not files:
                raise LabError(f"{folder}: there is no summary; `postroad lab run` writes one")
            self._tables[table] = [row for file in files for row in parquet.read_table(file).to_pylist()]
        return [row for row in self._tables[table] if cell in (None, row["cell"])]

    def row(self, table: str, cell: str) -> dict[str, Any]:
        """Return the one row that a cell has in a table; empty if it has none."""
        found = self.rows(table, cell)
        return found[0] if found else {}

    def has(self, *cells: str) -> bool:
        """Return whether all of these cells were played to their end."""
        return set(cells) <= {row["cell"] for row in self.rows("figures")} | {
            row["cell"] for row in self.rows("completeness")
        }

    def verdict(self, agrees: bool, *cells: str) -> bool | None:
        """Return whether a finding agrees; None while a cell is missing that it depends on."""
        return agrees if self.has(*cells) else None

    def figure(self, cell: str, name: str) -> float:
        """Return a figure that the experiment measured itself; NaN if it is missing."""
        return next((row["value"] for row in self.rows("figures", cell) if row["name"] == name), float("nan"))

    @property
    def machine(self) -> tuple[list[float], int]:
        """Load averages during a live run, and the processors of its machine; none of a simulated one."""
        rows = self.rows("figures")
        processors = max((row["value"] for row in rows if row["name"] == PROCESSORS), default=0)
        return [row["value"] for row in rows if row["name"] == LOAD_AVERAGE], round(processors)

    @property
    def is_crowded(self) -> bool:
        """Whether a live run had to wait for processors that other programs held: times then say little of brokers."""
        loads, processors = self.machine
        return max(loads, default=0.0) > CROWDED_LOAD * processors

    def line(self, table: str, cell: str, up: str, name: str, scale: float = 1.0, **more: Any) -> PlottedLine:
        """Return a column over time, in seconds."""
        rows = self.rows(table, cell)
        return PlottedLine(name, [row["at"] / 1e6 for row in rows], [row[up] * scale for row in rows], **more)


class Experiment(ABC):
    """An experiment of the lab.

    Attributes:
        name: on the command line.
        title: for people.
        source: the paper and its figures, or what it goes beyond.
        scaled: what a scale below 1 makes smaller.
        small: the default scale: seconds to a few minutes on two processors.
        modes: in which it can be run.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    scaled: ClassVar[str]
    small: ClassVar[float]
    modes: ClassVar[tuple[Mode, ...]] = ("simulated",)

    @abstractmethod
    def trials(self, request: RunRequest) -> list[Trial]:
        """Return what to play."""

    @abstractmethod
    def findings(self, results: Results) -> list[Finding]:
        """Return what the paper states, and what a run found."""

    def plots(self, results: Results) -> list[Plot]:
        """Return figures of a run."""
        return []

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        """Return tables of a run besides the figures: title -> rows."""
        return {}


@dataclass
class TimedTell:
    """Passes progress on, in visible steps."""

    tell: Callable[[float], None]
    last: float = field(default=-1.0)

    def __call__(self, share: float) -> None:
        if share - self.last >= 0.01 or share >= 1:
            self.last = share
            self.tell(share)
