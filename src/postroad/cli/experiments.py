"""`postroad lab list`, `run`, `report`, `workload`, `replay`: experiments, and what a network would do with a load."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postroad.lab.experiments import Experiment, Finding, RunRequest
    from postroad.lab.runs import Watch

__all__ = ["COMMANDS"]

Runs = Annotated[Path, typer.Option("--out", help="The directory for runs.")]
Live = Annotated[bool, typer.Option("--live/--simulated", help="On real brokers of this machine, or in virtual time.")]
ScaleOption = Annotated[
    float | None,
    typer.Option("--scale", help="1 is the paper's size; without it, a size that takes seconds to some minutes."),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed, the same run.")]
Costs = Annotated[
    Path | None,
    typer.Option("--costs", help="What batches cost, from `capacity calibrate` or `fit`; for simulated brokers."),
]
DEFAULT_RUNS = Path("lab-runs")


def list_experiments(as_json: AsJson = False) -> None:
    """List the experiments."""
    from rich.console import Console
    from rich.table import Table

    from postroad.lab.experiments import EXPERIMENTS

    table = Table("name", "what is compared", "source", "modes", "scale")
    for one in EXPERIMENTS.values():
        if as_json:
            fields = {"name": one.name, "title": one.title, "source": one.source, "modes": list(one.modes)}
            echo_json({**fields, "scale": one.small, "scaled": one.scaled})
        table.add_row(one.name, one.title, one.source, ", ".join(one.modes), f"{one.small:g}")
    if not as_json:
        Console().print(table)


def run(
    name: Annotated[str, typer.Argument(help="An experiment; `postroad lab list` has their names.")],
    live: Live = False,
    scale: ScaleOption = None,
    seed: Seed = 1,
    out: Runs = DEFAULT_RUNS,
    costs: Costs = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment, or go on with a run that was broken off; then say what was found."""
    from postroad.lab.experiments import experiment_named
    from postroad.lab.runs import read_results, run_experiment

    experiment = experiment_named(name)
    request = _request(experiment, live, scale, seed, costs)
    with _watching(as_json) as watch:
        outcome = run_experiment(experiment, request, out, watch, fresh=fresh)
    findings = experiment.findings(read_results(outcome.folder))
    if as_json:
        for one in findings:
            echo_json({"experiment": name, **one._asdict()})
    else:
        _show_findings(experiment, findings)
        typer.echo(
            f"{outcome.state}: {len(outcome.played)} cells played, {len(outcome.kept)} kept; {outcome.folder.root}"
        )


def _request(experiment: Experiment, live: bool, scale: float | None, seed: int, costs: Path | None) -> RunRequest:
    from postroad.lab.experiments import RunRequest
    from postroad.lab.service_costs import MEASURED_TIMES, read_service_times

    service = MEASURED_TIMES if costs is None else read_service_times(costs)
    mode = "live" if live else experiment.modes[0]
    return RunRequest(mode, experiment.small if scale is None else scale, seed, service)


@contextmanager
def _watching(quiet: bool) -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import Progress

    from postroad.lab.runs import Watch

    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task("beginning", total=1.0)
        yield Watch(
            lambda key, number, count: progress.update(task, description=f"{number}/{count} {key}", completed=0),
            lambda share: progress.update(task, completed=share),
            lambda text: progress.update(task, description=text, completed=0),
        )


def _show_findings(experiment: Experiment, findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("the paper found", "we found", "", "why", title=experiment.title, title_justify="left")
    for one in findings:
        table.add_row(one.paper, one.ours, {True: "agree", False: "differ", None: "open"}[one.agrees], one.why)
    Console().print(table)


def report(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; those that were run by default.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every experiment; what was not run is run first.")] = False,
    out: Runs = DEFAULT_RUNS,
    file: Annotated[Path | None, typer.Option("--file", help="The page to write; OUT/report.html by default.")] = None,
    pages: Annotated[
        Path | None, typer.Option("--pages", help="Write Markdown and SVG to this directory, too.")
    ] = None,
    scale: ScaleOption = None,
    seed: Seed = 1,
) -> None:
    """Build the HTML report of runs, with the papers' findings beside ours."""
    from postroad.lab.experiments import EXPERIMENTS, experiment_named
    from postroad.lab.report import html_report, write_pages
    from postroad.lab.runs import is_complete, run_experiment, run_folder

    chosen = [experiment_named(name) for name in names or EXPERIMENTS]
    if every:
        with _watching(False) as watch:
            for one in chosen:
                if not is_complete(run_folder(out, one, one.modes[0])):
                    run_experiment(one, _request(one, False, scale, seed, None), out, watch)
    runs = [
        (one, folder)
        for one in chosen
        for mode in one.modes
        if (folder := run_folder(out, one, mode)).exists and (folder.summary / "figures").is_dir()
    ]
    if not runs:
        raise PostroadError(f"{out}: no experiment was run here; `postroad lab run NAME` does, or give --all")
    path = file or out / "report.html"
    path.write_text(html_report(runs), "utf-8")
    typer.echo(f"{path}: {len(runs)} experiments")
    if pages is not None:
        for page in write_pages(runs, pages):
            typer.echo(str(page))


def workload(
    file: Annotated[Path, typer.Argument(help="A workload file (TOML).")],
    as_json: AsJson = False,
) -> None:
    """Check a workload file, and measure how many clients and brokers want its messages."""
    from postroad.lab.scenarios import read_workload

    scenario = read_workload(file)
    measured = scenario.replication()
    fields: dict[str, Any] = {
        "kind": scenario.kind,
        "subscribers": len(scenario.subscribers()),
        "messages": len(scenario.publications()),
        "clients_per_message": round(measured.clients, 3),
        "brokers_per_message": round(measured.brokers, 3),
        "variance_of_clients": round(measured.variance, 3),
        "wanted_by_nobody": round(measured.unwanted, 4),
    }
    if as_json:
        echo_json(fields)
    else:
        echo_table(str(file), fields)


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_experiments,
    "run": run,
    "report": report,
    "workload": workload,
}
