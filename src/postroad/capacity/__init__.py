"""What a broker can carry: service times fitted to what brokers measured, and quantiles of what messages waited."""

from __future__ import annotations

from postroad.capacity.quantiles import Quantile, sketch_quantile
from postroad.capacity.service_time import CapacityError, Fit, NormalEquations, ServiceTime, fit, normal_equations

__all__ = [
    "CapacityError",
    "Fit",
    "NormalEquations",
    "Quantile",
    "ServiceTime",
    "fit",
    "normal_equations",
    "sketch_quantile",
]
