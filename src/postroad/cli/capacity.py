"""`postroad capacity fit`, `calibrate`, `plan`, `figures`: costs of batches, and brokers for a load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.extras import need
from postroad.cli.output import AsJson, echo_json
from postroad.cli.pipelines import moment
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.capacity import BatchCosts, BatchSamples, CostFit, Option
    from postroad.lab.calibration import MeasuredCell

__all__ = ["calibrate", "figures", "fit", "plan"]

TrailFolder = Annotated[Path, typer.Option("--trail", help="The directory that brokers write their trail to.")]
Since = Annotated[str | None, typer.Option(help="Only batches from then on: 2026-01-31 or 2026-01-31T12:00, UTC.")]
Until = Annotated[str | None, typer.Option(help="Only batches before this time.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write an HTML page with plots to this file.")]


def fit(
    trail: TrailFolder,
    since: Since = None,
    until: Until = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the costs to this file, for `plan`.")] = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Fit what batches cost to the samples in a trail, and say what the data do not tell."""
    from postroad.capacity import compare, fit_every_form, fit_report, group_of

    _check_libraries(report)
    _check_files(out, report)
    samples, at, damaged = _samples(trail, since, until)
    for text in damaged:
        typer.echo(f"postroad: left out: {text}", err=True)
    fits = fit_every_form(samples, group_of(at))
    supported = compare(fits)
    documents = [_document(one, one is supported) for one in fits]
    if out is not None:
        _write(out, json.dumps(_document(supported, True), indent=2) + "\n")
    if report is not None:
        _write(report, fit_report(fits, supported, samples))
    if as_json:
        for document in documents:
            echo_json(document)
    else:
        _show_fits(fits, supported)


def calibrate(
    out: Annotated[Path | None, typer.Option("--out", help="Write the costs to this file, for `plan`.")] = None,
    seconds: Annotated[float, typer.Option(min=0.05, help="How long each load of the grid runs.")] = 1.0,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: start brokers, drive them over a grid of loads, and fit what batches cost them.

    Takes about two minutes with the default of one second for each load. Nothing else should run at the same time.
    """
    import asyncio
    import tempfile

    import numpy as np

    from postroad.capacity import compare, fit_every_form, fit_report
    from postroad.lab.calibration import Programme, cell_samples, measure

    _check_libraries(report)
    _check_files(out, report)
    with tempfile.TemporaryDirectory(prefix="postroad-calibration-") as folder:
        measured = asyncio.run(
            measure(Programme(seconds=seconds), Path(folder), lambda line: typer.echo(line, err=True))
        )
    samples = cell_samples(measured)
    fits = fit_every_form(samples, np.arange(len(samples.seconds)))
    supported = compare(fits)
    checks = _checks(measured, supported)
    if out is not None:
        _write(out, json.dumps(_document(supported, True), indent=2) + "\n")
    if report is not None:
        _write(report, fit_report(fits, supported, samples))
    if as_json:
        echo_json({**_document(supported, True), "saturated": checks})
    else:
        _show_fits(fits, supported)
        _show_checks(checks)


def _checks(measured: Sequence[MeasuredCell], supported: CostFit) -> list[dict[str, Any]]:
    """Return what saturated brokers carried for each second of their loop, beside what the costs predict."""
    from postroad.lab.calibration import saturated_rate

    found = []
    for one in measured:
        if one.cell.saturated and one.bursts:
            cell = one.cell
            found.append(
                {
                    "subscriptions": cell.subscriptions,
                    "copies": cell.copies,
                    "size": cell.size,
                    "rate": one.rate,
                    "carried": one.carried,
                    "predicted": saturated_rate(supported.costs(), cell),
                    "processors": one.busy,
                    "conclusive": one.conclusive,
                }
            )
    return found


def plan(
    rate: Annotated[float | None, typer.Option(help="Messages per second, all publishers together.")] = None,
    subscriptions: Annotated[float | None, typer.Option(help="Subscriptions, all subscribers together.")] = None,
    replication: Annotated[float | None, typer.Option(help="Copies of a message, on average.")] = None,
    size: Annotated[float | None, typer.Option(help="Bytes of a message, on average; 500 by default.")] = None,
    p99: Annotated[str, typer.Option(help="Within what 99 % of messages are delivered: 50ms, 0.2s.")] = "50ms",
    utilisation: Annotated[float, typer.Option(help="The most that a broker may use of its capacity.")] = 0.7,
    costs: Annotated[Path | None, typer.Option(help="The costs that `fit --out` wrote.")] = None,
    from_trail: Annotated[
        Path | None, typer.Option("--from-trail", help="Plan for the traffic of this trail, and with its costs.")
    ] = None,
    growth: Annotated[float, typer.Option(help="With --from-trail: times its busiest hour.")] = 1.0,
    since: Since = None,
    until: Until = None,
    durable: Annotated[bool, typer.Option("--durable", help="Messages are stored for durable subscriptions.")] = False,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Say how many brokers a load needs, where they should stand, and what waiting and disk that means."""
    from postroad.capacity import Demand, Storage, options, plan_report, recommend

    _check_libraries(report)
    _check_files(report)
    known: dict[str, float] = {}
    chosen_costs, source = None, ""
    if from_trail is None and (growth != 1.0 or since is not None or until is not None):
        raise PostroadError("--growth, --since and --until are about the traffic of a trail: give --from-trail, too")
    if not 0 < growth < float("inf"):
        raise PostroadError(
            f"--growth {growth:g}: the traffic cannot become that many times what it is; write 2 for twice"
        )
    if rate is not None and growth != 1.0:
        raise PostroadError("--rate and --growth both say how much traffic to plan for: give one of them")
    if from_trail is not None:
        known, chosen_costs, source = _from_trail(from_trail, since, until, growth)
    if costs is not None:
        chosen_costs, source = _read_costs(costs), str(costs)
    if chosen_costs is None:
        raise PostroadError(
            "a plan needs to know what messages cost here: measure this machine with "
            "`postroad capacity calibrate --out costs.json`, or fit a trail with `postroad capacity fit`, and give "
            "--costs costs.json; or give --from-trail"
        )
    given = {"rate": rate, "subscriptions": subscriptions, "copies": replication, "size": size}
    known.update({name: value for name, value in given.items() if value is not None})
    missing = [name for name in ("rate", "subscriptions", "copies") if name not in known]
    if missing:
        names = ", ".join(f"--{'replication' if name == 'copies' else name}" for name in missing)
        raise PostroadError(f"a plan needs {names}, or --from-trail with the trail of a network to plan for")
    demand = Demand(
        known["rate"], known["subscriptions"], known["copies"], known.get("size", 500.0), _seconds(p99), utilisation
    )
    found = options(demand, chosen_costs, Storage(durable=1.1 if durable else 0.0))
    best = recommend(found)
    if report is not None:
        _write(report, plan_report(demand, chosen_costs, found, best))
    if as_json:
        echo_json(
            {
                "demand": demand._asdict(),
                "costs": chosen_costs._asdict(),
                "costs_from": source,
                "options": [_option(option, option is best) for option in found],
            }
        )
    else:
        _show_plan(found, best, source)


def figures(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the HTML page to this file; figures.html by default, unless --json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the figures of the paper that the model comes from, with the errors in its formulas corrected."""
    from postroad.capacity import figures_report, paper_figures

    page = Path("figures.html") if out is None and not as_json else out
    _check_libraries(page)
    _check_files(page)
    found = paper_figures()
    if page is not None:
        _write(page, figures_report(found))
    if as_json:
        for figure in found:
            curves = [
                {"name": curve.name, "across": curve.across.tolist(), "up": curve.up.tolist()}
                for curve in figure.curves
            ]
            echo_json({**figure._asdict(), "curves": curves})
    else:
        typer.echo(f"{len(found)} figures in {page}")


def _check_libraries(report: Path | None) -> None:
    """Refuse to begin without the libraries of the extra: measuring takes minutes, and the fit comes after it.

    Raises:
        PostroadError: the text says which extra to install.
    """
    need("scipy", *(["matplotlib"] if report is not None else []))


def _check_files(*paths: Path | None) -> None:
    """Refuse files that cannot be written before anything is measured or computed for them.

    Raises:
        PostroadError: the text says which, and why.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise PostroadError(f"{path} is a directory: name a file in it")
        if not path.parent.is_dir():
            raise PostroadError(f"{path} cannot be written: there is no directory {path.parent}; make it first")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise PostroadError(f"{path} cannot be written ({error.strerror}): name another file") from None


def _samples(trail: Path, since: str | None, until: str | None) -> tuple[BatchSamples, Any, list[str]]:
    from postroad.capacity import BatchSamples
    from postroad.trail import Trail, batch_samples

    columns, damaged = batch_samples(Trail(trail), moment(since, "--since"), moment(until, "--until"))
    names = ("messages", "subscriptions", "copies", "destinations", "bytes")
    counted = {name: columns[name].astype("f8") for name in names}
    samples = BatchSamples(**counted, seconds=columns["nanoseconds"] / 1e9)
    return samples, columns["at"], damaged


def _from_trail(
    trail: Path, since: str | None, until: str | None, growth: float
) -> tuple[dict[str, float], BatchCosts, str]:
    from postroad.capacity import compare, fit_every_form, group_of, observed_traffic
    from postroad.tracking import BATCHES_PER_SAMPLE

    samples, at, damaged = _samples(trail, since, until)
    for text in damaged:
        typer.echo(f"postroad: left out: {text}", err=True)
    seen = observed_traffic(samples, at, BATCHES_PER_SAMPLE)
    supported = compare(fit_every_form(samples, group_of(at)))
    known = {"rate": growth * seen.rate, "subscriptions": seen.subscriptions, "copies": seen.copies, "size": seen.size}
    return known, supported.costs(), f"{trail}, its form {supported.form.name!r}"


def _read_costs(path: Path) -> BatchCosts:
    from postroad.capacity import BatchCosts

    try:
        document = json.loads(path.read_text())
        found = {str(name): float(value) for name, value in document["costs"].items()}
        wrong = [f"{name} is {value:g}" for name, value in found.items() if not 0 <= value < float("inf")]
        if wrong:
            raise ValueError(f"{wrong[0]}, and costs are numbers from 0 on")
        return BatchCosts.of(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PostroadError(
            f"{path} does not hold costs ({error}); write it with `postroad capacity fit --trail DIR --out {path}`"
        ) from None


def _seconds(text: str) -> float:
    units = {"ms": 1e-3, "us": 1e-6, "s": 1.0}
    for unit, factor in units.items():
        if text.endswith(unit):
            try:
                return float(text[: -len(unit)]) * factor
            except ValueError:
                break
    raise PostroadError(f"--p99 {text!r} is not a time; write 50ms or 0.2s")


def _document(one: CostFit, supported: bool) -> dict[str, Any]:
    return {
        "form": one.form.name,
        "supported": supported,
        "costs": one.estimates,
        "errors": one.errors,
        "low": one.low,
        "high": one.high,
        "relative_error": one.relative_error,
        "predicted_error": one.predicted_error,
        "batches": one.batches,
        "unidentified": one.unidentified,
    }


def _option(option: Option, recommended: bool) -> dict[str, Any]:
    fields = option._asdict()
    placement = option.placement
    return {
        **fields,
        "placement": placement.name,
        "hops": placement.hops,
        "strategy": placement.strategy,
        "reason": placement.reason,
        "recommended": recommended,
    }


def _show_fits(fits: Sequence[CostFit], supported: CostFit) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What batches cost, in ns", title_justify="left")
    for head in ("form", "term", "cost", "95 % interval", "not known because"):
        table.add_column(head, justify="right" if head == "cost" else "left")
    for one in fits:
        for term in one.form.terms:
            interval = f"{1e9 * one.low[term]:,.2f} to {1e9 * one.high[term]:,.2f}"
            table.add_row(
                one.form.name, term, f"{1e9 * one.estimates[term]:,.2f}", interval, one.unidentified.get(term, "")
            )
    console = Console(emoji=False)
    console.print(table)
    for one in fits:
        console.print(
            f"{one.form.name}: {one.batches:,} batches, off by {100 * one.relative_error:.1f} %, "
            f"by {100 * one.predicted_error:.1f} % on batches it has not seen"
        )
    console.print(f"The data support the form {supported.form.name!r}.")


def _show_checks(checks: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Saturated brokers: messages per second of the loop's processor time", title_justify="left")
    for head in ("subscriptions", "copies", "bytes", "measured", "predicted", "off by", "processors used"):
        table.add_column(head, justify="right")
    for one in checks:
        off = f"{100 * (one['predicted'] / one['carried'] - 1):+.0f} %"
        table.add_row(
            f"{one['subscriptions']:,}",
            str(one["copies"]),
            f"{one['size']:,}",
            f"{one['carried']:,.0f}",
            f"{one['predicted']:,.0f}",
            off if one["conclusive"] else "load generator too slow",
            f"{one['processors']:.2f}",
        )
    Console(emoji=False).print(table)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < float("inf") else "never"


def _show_plan(found: Sequence[Option], best: Option, source: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Ways to carry it", title_justify="left")
    table.add_column("")
    for option in found:
        table.add_column(("* " if option is best else "") + option.placement.name, justify="right")
    rows: dict[str, Callable[[Option], str]] = {
        "brokers": lambda one: f"{one.brokers:,}",
        "routing": lambda one: one.placement.strategy,
        "used of each": lambda one: f"{100 * one.utilisation:.0f} %",
        "50 % within": lambda one: _milliseconds(one.p50),
        "99 % within": lambda one: _milliseconds(one.p99),
        "carries a second": lambda one: f"{one.capacity:,.0f}",
        "memory of each": lambda one: f"{one.memory / 1e6:,.0f} MB",
        "record a day": lambda one: f"{one.record_per_day / 1e9:,.1f} GB",
        "stored a day": lambda one: f"{one.durable_per_day / 1e9:,.1f} GB",
    }
    for name, shown in rows.items():
        table.add_row(name, *(shown(option) for option in found))
    console = Console(emoji=False)
    console.print(table)
    for option in found:
        if option.problem:
            console.print(f"{option.placement.name}: {option.problem}")
    brokers = "1 broker" if best.brokers == 1 else f"{best.brokers:,} brokers, {best.placement.name}"
    console.print(f"* {brokers}, routing {best.placement.strategy}: {best.placement.reason}.")
    console.print(f"Costs: {source}")
