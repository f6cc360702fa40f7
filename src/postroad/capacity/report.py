"""Reports of fits and plans: self-contained HTML pages, with plots drawn by matplotlib."""

from __future__ import annotations

import html
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.capacity.costs import BatchCosts, BatchSamples
    from postroad.capacity.paper_figures import Figure
    from postroad.capacity.plan import Demand, Option
    from postroad.capacity.regression import CostFit

__all__ = ["figures_report", "fit_report", "html_table", "new_axes", "page", "plan_report", "svg_text"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.chosen { font-weight: 600; }
svg { max-width: 100%; height: auto; background: white; }
"""


def fit_report(fits: Sequence[CostFit], supported: CostFit, samples: BatchSamples) -> str:
    """Return what was fitted, and how far single batches are from it."""
    rows = []
    for fit in fits:
        for term in fit.form.terms:
            numbers = (fit.estimates[term], fit.errors[term], fit.low[term], fit.high[term])
            rows.append([fit.form.name, term, *(_ns(number) for number in numbers), fit.unidentified.get(term, "")])
    heads = ["form", "term", "ns", "standard error", "low", "high", "what is not known"]
    forms = [
        [fit.form.name, f"{100 * fit.relative_error:.1f} %", f"{100 * fit.predicted_error:.1f} %", f"{fit.batches:,}"]
        for fit in fits
    ]
    return page(
        "Costs of batches",
        f"<p>The data support the form <b>{html.escape(supported.form.name)}</b>.</p>"
        + html_table(["form", "error of fitted batches", "error of unseen batches", "batches"], forms, None)
        + html_table(heads, rows, None)
        + _residuals(supported, samples),
    )


def plan_report(demand: Demand, costs: BatchCosts, found: Sequence[Option], chosen: Option) -> str:
    """Return the options side by side, and how waits grow with the rate."""
    rows = [
        [
            option.placement.name,
            str(option.brokers),
            f"{100 * option.utilisation:.0f} %",
            _ms(option.p50),
            _ms(option.p99),
            f"{option.capacity:,.0f}",
            _bytes(option.memory),
            _bytes(option.record_per_day),
            _bytes(option.durable_per_day),
            option.placement.strategy,
            option.problem or f"keeps the promise; {option.placement.reason}",
        ]
        for option in found
    ]
    heads = ["placement", "brokers", "used", "p50 ms", "p99 ms", "carries messages/s", "memory each"]
    heads += ["record a day", "stored a day", "routing", ""]
    asked = (
        f"<p>{demand.rate:,.0f} messages/s of {demand.size:,.0f} bytes, {demand.subscriptions:,.0f} subscriptions, "
        f"{demand.copies:g} copies of a message, 99 % within {1e3 * demand.p99:g} ms.</p>"
    )
    table = html_table(heads, rows, found.index(chosen))
    return page("Capacity plan", asked + table + _waits(demand, costs, chosen))


def figures_report(figures: Sequence[Figure]) -> str:
    """Return figures of the paper, drawn from the formulas, each with what the paper says differently."""
    parts = []
    for figure in figures:
        drawn, axes = new_axes(figure.across, figure.up)
        for curve in figure.curves:
            axes.plot(curve.across, curve.up, label=curve.name, linewidth=1.2)
        if "x" in figure.logarithmic:
            axes.set_xscale("log")
        if "y" in figure.logarithmic:
            axes.set_yscale("log")
        axes.legend(fontsize="x-small", ncols=2)
        parts.append(f"<h2>Figure {figure.number}: {html.escape(figure.title)}</h2>{svg_text(drawn)}")
        if figure.remark:
            parts.append(f"<p>{html.escape(figure.remark)}</p>")
    said = (
        "<p>The figures of Menth and Henjes (waiting times of FioranoMQ 7.5), drawn from the formulas with their"
        " printing errors corrected.</p>"
    )
    return page("The paper's figures", said + "".join(parts))


def _waits(demand: Demand, costs: BatchCosts, chosen: Option) -> str:
    from postroad.capacity.plan import Storage, evaluate

    shares = np.linspace(0.02, 0.98, 40)
    limit = chosen.capacity / demand.utilisation
    points = [
        evaluate(demand._replace(rate=share * limit), costs, chosen.placement, chosen.brokers, Storage())
        for share in shares
    ]
    figure, axes = new_axes("messages/s", "ms until written to the sockets")
    axes.plot(shares * limit, [1e3 * point.p50 for point in points], label="50 %")
    axes.plot(shares * limit, [1e3 * point.p99 for point in points], label="99 %")
    axes.axvline(demand.rate, color="gray", linestyle=":", label="asked for")
    axes.axhline(1e3 * demand.p99, color="gray", linestyle="--", label="promise")
    axes.set_yscale("log")
    axes.legend()
    return "<h2>Waits by rate</h2>" + svg_text(figure)


def _residuals(fit: CostFit, samples: BatchSamples) -> str:
    predicted = fit.costs().seconds(samples)
    # More points than this would not be visible.
    step = max(1, len(predicted) // 5_000)
    figure, axes = new_axes("seconds by the model", "measured over modelled")
    axes.plot(predicted[::step], (samples.seconds / np.maximum(predicted, 1e-12))[::step], ".", markersize=2)
    axes.axhline(1.0, color="gray")
    axes.set_xscale("log")
    axes.set_yscale("log")
    return "<h2>Residuals</h2>" + svg_text(figure)


def new_axes(across: str, up: str) -> tuple[Any, Any]:
    """An empty figure with labelled axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    return figure, axes


def svg_text(figure: Any) -> str:
    """A figure as an SVG element; the same figure gives the same text."""
    import matplotlib as mpl

    text = io.StringIO()
    # Without this, names inside the SVG are random.
    with mpl.rc_context({"svg.hashsalt": "postroad", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]


def page(title: str, body: str) -> str:
    """Return a whole, self-contained HTML page."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1>{body}</html>\n"
    )


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], chosen: int | None) -> str:
    """Return a table; the chosen row is highlighted."""
    lines = ["<table><tr>", *(f"<th>{html.escape(head)}</th>" for head in heads), "</tr>"]
    for place, row in enumerate(rows):
        cells = [f'<td class="{"number" if cell[:1].isdigit() else ""}">{html.escape(cell)}</td>' for cell in row]
        lines += [f'<tr class="{"chosen" if place == chosen else ""}">', *cells, "</tr>"]
    return "".join([*lines, "</table>"])


def _ns(seconds: float) -> str:
    return f"{1e9 * seconds:,.2f}" if math.isfinite(seconds) else "unknown"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g}" if math.isfinite(seconds) else "without end"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1_000 or unit == "TB":
            return f"{size:,.3g} {unit}"
        size /= 1_000
    raise AssertionError
