"""`postroad lab list`, `run`, `report`, `workload`, `replay`: experiments, and what a network would do with a load."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from postroad.lab.experiments import Experiment, Finding, Mode, RunRequest
    from postroad.lab.replay import PlayedTraffic, ReplayComparison, ReplayRequest
    from postroad.lab.run_folder import RunFolder
    from postroad.lab.runs import Watch
    from postroad.lab.scenarios import Scenario
    from postroad.topology import Plan

__all__ = ["list_experiments", "replay", "report", "run", "workload"]

Runs = Annotated[Path, typer.Option("--out", help="The directory for runs.")]
Live = Annotated[
    bool | None,
    typer.Option(
        "--live/--simulated",
        help="On real brokers of this machine, or in virtual time; the first that `lab list` names by default.",
    ),
]
ScaleOption = Annotated[
    float | None,
    typer.Option("--scale", help="1 is the paper's size; without it, a size that takes seconds to some minutes."),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed, the same run.")]
Costs = Annotated[
    Path | None,
    typer.Option("--costs", help="What batches cost, from `capacity calibrate` or `fit`; for simulated brokers."),
]
Bandwidth = Annotated[int, typer.Option(min=0, help="Bytes per second of each link; 0 for no bound.")]
DEFAULT_RUNS = Path("lab-runs")


def list_experiments(as_json: AsJson = False) -> None:
    """List the experiments."""
    from rich.console import Console
    from rich.table import Table

    from postroad.lab.experiments import EXPERIMENTS

    table = Table(show_lines=True)
    # A name that is cut off cannot be given to `lab run`.
    table.add_column("name", no_wrap=True)
    table.add_column("what is compared, and after whom")
    table.add_column("modes", no_wrap=True)
    table.add_column("scale", justify="right", no_wrap=True)
    for one in EXPERIMENTS.values():
        if as_json:
            fields = {"name": one.name, "title": one.title, "source": one.source, "modes": list(one.modes)}
            echo_json({**fields, "scale": one.small, "scaled": one.scaled})
        table.add_row(one.name, f"{one.title}\n({one.source})", "\n".join(one.modes), f"{one.small:.3g}")
    if not as_json:
        Console(emoji=False).print(table)


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment; `postroad lab list` has their names.")],
    live: Live = None,
    scale: ScaleOption = None,
    seed: Seed = 1,
    out: Runs = DEFAULT_RUNS,
    costs: Costs = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment, or continue with a run that was broken off; then say what was found."""
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
            f"{outcome.state}: {len(outcome.played)} cells played, {len(outcome.kept)} kept; {outcome.folder.root}\n"
            f"`postroad lab report {name} --out {out}` draws its figures"
        )


def _request(
    experiment: Experiment, live: bool | None, scale: float | None, seed: int, costs: Path | None
) -> RunRequest:
    from postroad.lab.experiments import RunRequest
    from postroad.lab.service_costs import MEASURED_TIMES, read_service_times

    mode: Mode = experiment.modes[0] if live is None else "live" if live else "simulated"
    if mode == "live" and costs is not None:
        raise PostroadError("--costs is for simulated brokers, and this run is live: leave it out, or give --simulated")
    service = MEASURED_TIMES if costs is None else read_service_times(costs)
    return RunRequest(mode, experiment.small if scale is None else scale, seed, service)


def _check_used(options: Mapping[str, object], used: bool, why: str) -> None:
    """Refuse options that would change nothing."""
    for option, value in options.items():
        if value is not None and not used:
            raise PostroadError(f"{option} {why}, too, or leave {option} out")


@contextmanager
def _watching(quiet: bool) -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import Progress

    from postroad.lab.runs import Watch

    console = Console(stderr=True, emoji=False)
    if quiet or not console.is_terminal:
        # A line for each cell, for a log; a progress bar would be written again and again.
        lines = _Lines(quiet)
        yield Watch(trial=lambda key, number, count: lines(f"{number}/{count} {key}"), line=lines)
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("beginning", total=1.0)
        yield Watch(
            lambda key, number, count: progress.update(task, description=f"{number}/{count} {key}", completed=0),
            lambda share: progress.update(task, completed=share),
            lambda text: progress.update(task, description=text, completed=0),
        )


class _Lines:
    """Writes events to stderr, each once."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def __call__(self, text: str) -> None:
        if not self._quiet and text != self._last:
            typer.echo(text, err=True)
        self._last = text


def _show_findings(experiment: Experiment, findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("the paper found", "we found", "", "why", title=experiment.title, title_justify="left")
    for one in findings:
        table.add_row(one.paper, one.ours, {True: "agree", False: "differ", None: "open"}[one.agrees], one.why)
    Console(emoji=False).print(table)


def report(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Experiments; those that were run by default.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every experiment; what was not run is run first.")] = False,
    out: Runs = DEFAULT_RUNS,
    file: Annotated[Path | None, typer.Option("--file", help="The page to write; OUT/report.html by default.")] = None,
    pages: Annotated[
        Path | None, typer.Option("--pages", help="Write Markdown and SVG to this directory, too.")
    ] = None,
    scale: ScaleOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed, the same run; 1 by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Build the HTML report of runs, with the papers' findings beside ours."""
    from postroad.lab.experiments import EXPERIMENTS, experiment_named
    from postroad.lab.report import html_report, write_pages

    _check_used({"--scale": scale, "--seed": seed}, every, "is for experiments that --all runs: give --all")
    chosen = [experiment_named(name) for name in names or EXPERIMENTS]
    with _watching(False) as watch:
        if every:
            _run_missing(chosen, lambda one: _request(one, None, scale, 1 if seed is None else seed, None), out, watch)
        runs = _played(chosen, out, watch)
    if not runs:
        raise PostroadError(f"{out}: no experiment was run here; `postroad lab run NAME` does, or give --all")
    path = file or out / "report.html"
    try:
        path.write_text(html_report(runs), "utf-8")
        written = () if pages is None else write_pages(runs, pages)
    except OSError as error:
        raise PostroadError(f"{error.filename or path}: cannot be written ({error.strerror})") from None
    if as_json:
        echo_json({"report": str(path), "experiments": len(runs), "pages": [str(page) for page in written]})
        return
    typer.echo(f"{path}: {len(runs)} experiments")
    for page in written:
        typer.echo(str(page))


def _run_missing(
    chosen: Sequence[Experiment], request: Callable[[Experiment], RunRequest], out: Path, watch: Watch
) -> None:
    """Run what was not run, and continue interrupted runs as they were requested."""
    from postroad.lab.runs import is_complete, request_of, run_experiment, run_folder

    for one in chosen:
        folder = run_folder(out, one, one.modes[0])
        if not is_complete(folder):
            run_experiment(one, request_of(folder) if folder.exists else request(one), out, watch)


def _played(chosen: Sequence[Experiment], out: Path, watch: Watch) -> list[tuple[Experiment, RunFolder]]:
    """Return the runs that a report can use, summarised: complete, or partial with at least one cell."""
    from postroad.lab.runs import run_folder, summarise_played

    found = []
    for one in chosen:
        for mode in one.modes:
            folder = run_folder(out, one, mode)
            if folder.exists and folder.progress()[0]:
                summarise_played(folder, watch)
                found.append((one, folder))
            elif folder.exists:
                typer.echo(f"{folder.root}: no cell was played to its end; it is left out", err=True)
    return found


def workload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workload file (TOML).")],
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Play it in virtual time on this network: a plan (TOML).")
    ] = None,
    bandwidth: Annotated[
        int | None, typer.Option(min=0, help="Bytes per second of each link; no bound by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the delays of links; the workload has its own; 1 by default.")
    ] = None,
    costs: Costs = None,
    as_json: AsJson = False,
) -> None:
    """Check a workload file and measure how many clients and brokers want its messages; play it on a network."""
    from postroad.lab.scenarios import read_workload

    options = {"--bandwidth": bandwidth, "--seed": seed, "--costs": costs}
    _check_used(options, plan is not None, "is for a workload that is played: give --plan")
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
    played = None
    if plan is not None:
        request = _played_on(plan, None, bandwidth or 0, 1 if seed is None else seed, costs)
        played = _play_workload(scenario, request, as_json)
        fields |= {"deliveries": played.deliveries, **_figures(played, fields["messages"])}
    if as_json:
        echo_json(fields if played is None else {**fields, "bytes_by_link": _by_link(played)})
        return
    echo_table(str(file), fields)
    if played is not None:
        _show_links({"bytes": played})


def _play_workload(scenario: Scenario, request: ReplayRequest, quiet: bool) -> PlayedTraffic:
    from postroad.lab.replay import play_workload

    with _watching(quiet) as watch:
        return play_workload(scenario, request, lambda name, share: (watch.line(name), watch.share(share))[0])


def _played_on(
    plan: Path, recorded: Path | None, bandwidth: int, seed: int, costs: Path | None, **more: Any
) -> ReplayRequest:
    from postroad.lab.replay import ReplayRequest
    from postroad.lab.service_costs import MEASURED_TIMES, read_service_times
    from postroad.simulation import LinkQuality

    return ReplayRequest(
        _plan(plan),
        None if recorded is None else _plan(recorded),
        quality=LinkQuality(delay_ms=(1, 10), bytes_per_ms=_bytes_per_ms(bandwidth)),
        service=MEASURED_TIMES if costs is None else read_service_times(costs),
        seed=seed,
        **more,
    )


def _bytes_per_ms(bandwidth: int) -> int:
    if 0 < bandwidth < 1_000:
        raise PostroadError(f"--bandwidth is 1,000 bytes per second or more, or 0 for no bound; not {bandwidth}")
    return bandwidth // 1_000


def replay(
    trail: Annotated[Path, typer.Option("--trail", help="The directory of the trail.")],
    plan: Annotated[Path, typer.Option("--plan", help="The network to try: a plan (TOML).")],
    recorded: Annotated[
        Path | None, typer.Option(help="The plan of the network on record; without, its links, routed by drp.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only messages from then on: 2026-01-31T12:00, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Only messages before this time.")] = None,
    speed: Annotated[float, typer.Option(help="Speed up the recorded traffic by this factor.")] = 1.0,
    message_bytes: Annotated[int | None, typer.Option(min=0, help="Of each message; as recorded by default.")] = None,
    bandwidth: Bandwidth = 0,
    seed: Seed = 1,
    costs: Costs = None,
    as_json: AsJson = False,
) -> None:
    """Play recorded traffic through another network in virtual time, and say what would change."""
    from postroad.cli.pipelines import moment
    from postroad.lab.replay import replay as play
    from postroad.lab.scenarios.recorded_trail import read_record

    request = _played_on(plan, recorded, bandwidth, seed, costs, message_bytes=message_bytes, speed=speed)
    record = read_record(trail, moment(since, "--since"), moment(until, "--until"))
    with _watching(as_json) as watch:
        found = play(record, request, lambda name, share: (watch.line(name), watch.share(share))[0])
    if as_json:
        echo_json(_comparison(found))
    else:
        _show_comparison(found)


def _plan(path: Path) -> Plan:
    from postroad.topology import Plan

    try:
        return Plan.parse(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PostroadError(f"{path}: cannot be read ({error})") from None


def _figures(played: PlayedTraffic, messages: int) -> dict[str, Any]:
    (one, other), most = played.busiest
    return {
        "bytes_on_links": played.total_bytes,
        "links_crossed_per_message": round(played.copies / max(1, messages), 3),
        "busiest_link": f"{one}-{other}" if most else "",
        "busiest_link_bytes": most,
        "p50_ms": round(played.p50_ms, 2),
        "p99_ms": round(played.p99_ms, 2),
        "missing_deliveries": played.missing,
        "busiest_processor": round(played.busiest_processor, 4),
    }


def _comparison(found: ReplayComparison) -> dict[str, Any]:
    record = found.record
    recorded = sum(record.carried.values()) / max(1, len(record.times))
    return {
        "messages": len(record.times),
        "copies_to_clients": record.copies,
        "links_crossed_per_message_on_record": round(recorded, 3),
        "before": {**_figures(found.before, len(record.times)), "bytes_by_link": _by_link(found.before)},
        "after": {**_figures(found.after, len(record.times)), "bytes_by_link": _by_link(found.after)},
        "moved_brokers": {str(one): other for one, other in found.moved.items()},
    }


def _by_link(played: PlayedTraffic) -> dict[str, int]:
    return {f"{one}-{other}": size for (one, other), size in sorted(played.bytes.items()) if size}


def _show_comparison(found: ReplayComparison) -> None:
    from rich.console import Console
    from rich.table import Table

    record, console = found.record, Console(emoji=False)
    before, after = (_figures(one, len(record.times)) for one in (found.before, found.after))
    table = Table(
        "", "as recorded", "as planned", title=f"{len(record.times):,} messages played again", title_justify="left"
    )
    for name in before:
        cells = [f"{side[name]:,}" if isinstance(side[name], int) else str(side[name]) for side in (before, after)]
        table.add_row(name.replace("_", " "), *cells)
    console.print(table)
    _show_links({"bytes as recorded": found.before, "bytes as planned": found.after})
    for one, other in found.moved.items():
        typer.echo(f"broker {one} is not in the plan: broker {other} stood in for it")


def _show_links(sides: Mapping[str, PlayedTraffic]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("link", *sides, title="Links", title_justify="left")
    for ends in sorted({ends for side in sides.values() for ends in side.bytes}):
        table.add_row(f"{ends[0]} to {ends[1]}", *(f"{side.bytes.get(ends, 0):,}" for side in sides.values()))
    Console(emoji=False).print(table)
