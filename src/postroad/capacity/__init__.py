"""What a broker can carry, how long messages wait, and what to do about it (`docs/capacity.md`).

Formulas without I/O, over numpy; distributions need scipy (`postroad[capacity]`).
"""

from __future__ import annotations

from postroad.capacity.admission import admitted_share, highest_rate
from postroad.capacity.batches import BatchServer
from postroad.capacity.costs import BATCHED, FORMS, LINEAR, BatchCosts, BatchSamples, CostForm
from postroad.capacity.errors import CapacityError
from postroad.capacity.grid import (
    ServerGrid,
    paper_crossover,
    paper_ssr_capacity,
    publisher_side,
    subscriber_side,
)
from postroad.capacity.line_costs import fit_line
from postroad.capacity.loop_costs import LoopCosts, ServedBatches, TimedLoad, fit_loop, served_batches
from postroad.capacity.loop_queue import loop_ends
from postroad.capacity.loop_server import WakingServer
from postroad.capacity.moments import Moments
from postroad.capacity.monitor import (
    LIMIT_UTILISATION,
    LIMIT_WAIT_SECONDS,
    PROBE_RESOLUTION_SECONDS,
    Assessment,
    CapacityMonitor,
    Observations,
    ReadCosts,
    assess,
    fit_reads,
    limit_rate,
)
from postroad.capacity.outlook import ROUND_MS, Forecast, LoadHistory
from postroad.capacity.paper_figures import CORRELATION, PROPERTY, Curve, Figure, paper_figures
from postroad.capacity.pauses import PauseSeries
from postroad.capacity.plan import Demand, Option, Placement, Storage, options, recommend
from postroad.capacity.quantiles import Quantile, sketch_quantile
from postroad.capacity.regression import (
    GROUPS,
    CostFit,
    NormalEquations,
    compare,
    fit_costs,
    fit_every_form,
    group_of,
    normal_equations,
)
from postroad.capacity.replication import (
    Binomial,
    Constant,
    Grade,
    Measured,
    ScaledBernoulli,
    binomial_third_moment,
)
from postroad.capacity.report import figures_report, fit_report, plan_report
from postroad.capacity.servers import SeveralServers, erlang_c
from postroad.capacity.service_time import ServiceTime
from postroad.capacity.simulation import SimulatedWaits, simulate_waits
from postroad.capacity.single_server import GammaWait, SingleServer
from postroad.capacity.tails import waiting_quantile, waiting_tail
from postroad.capacity.traffic import Traffic, observed_traffic

__all__ = [
    "BATCHED",
    "CORRELATION",
    "FORMS",
    "GROUPS",
    "LIMIT_UTILISATION",
    "LIMIT_WAIT_SECONDS",
    "LINEAR",
    "PROBE_RESOLUTION_SECONDS",
    "PROPERTY",
    "ROUND_MS",
    "Assessment",
    "BatchCosts",
    "BatchSamples",
    "BatchServer",
    "Binomial",
    "CapacityError",
    "CapacityMonitor",
    "Constant",
    "CostFit",
    "CostForm",
    "Curve",
    "Demand",
    "Figure",
    "Forecast",
    "GammaWait",
    "Grade",
    "LoadHistory",
    "LoopCosts",
    "Measured",
    "Moments",
    "NormalEquations",
    "Observations",
    "Option",
    "PauseSeries",
    "Placement",
    "Quantile",
    "ReadCosts",
    "ScaledBernoulli",
    "ServedBatches",
    "ServerGrid",
    "ServiceTime",
    "SeveralServers",
    "SimulatedWaits",
    "SingleServer",
    "Storage",
    "TimedLoad",
    "Traffic",
    "WakingServer",
    "admitted_share",
    "assess",
    "binomial_third_moment",
    "compare",
    "erlang_c",
    "figures_report",
    "fit_costs",
    "fit_every_form",
    "fit_line",
    "fit_loop",
    "fit_reads",
    "fit_report",
    "group_of",
    "highest_rate",
    "limit_rate",
    "loop_ends",
    "normal_equations",
    "observed_traffic",
    "options",
    "paper_crossover",
    "paper_figures",
    "paper_ssr_capacity",
    "plan_report",
    "publisher_side",
    "recommend",
    "served_batches",
    "simulate_waits",
    "sketch_quantile",
    "subscriber_side",
    "waiting_quantile",
    "waiting_tail",
]
