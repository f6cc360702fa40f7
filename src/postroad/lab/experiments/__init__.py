"""The experiments of the lab, by name."""

from __future__ import annotations

from postroad.lab.errors import LabError
from postroad.lab.experiments.content import (
    ComparativeExperiment,
    ConstantRateExperiment,
    ScaleExperiment,
    SingleBrokerExperiment,
)
from postroad.lab.experiments.experiment import Experiment, Finding, Mode, Plot, PlottedLine, Results, RunRequest, Trial
from postroad.lab.experiments.filter_costs import FilterCostExperiment
from postroad.lab.experiments.hierarchies import HierarchyExperiment
from postroad.lab.experiments.record_latency import RecordLatencyExperiment
from postroad.lab.experiments.record_sizes import RecordSizeExperiment
from postroad.lab.experiments.scale_and_failures import CrossoverExperiment, FailureExperiment, ThousandExperiment

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Finding",
    "Mode",
    "Plot",
    "PlottedLine",
    "Results",
    "RunRequest",
    "Trial",
    "experiment_named",
]

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        SingleBrokerExperiment(),
        ComparativeExperiment(),
        ConstantRateExperiment(),
        ScaleExperiment(),
        RecordSizeExperiment(),
        RecordLatencyExperiment(),
        FilterCostExperiment(),
        HierarchyExperiment(),
        ThousandExperiment(),
        FailureExperiment(),
        CrossoverExperiment(),
    )
}


def experiment_named(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        LabError: there is none.
    """
    if name not in EXPERIMENTS:
        raise LabError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
