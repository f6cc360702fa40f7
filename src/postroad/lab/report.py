"""The report of experiments: our findings beside the papers', figures and tables, as HTML or Markdown."""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING, Any

from postroad.capacity.report import html_table, new_axes, page, svg_text
from postroad.lab.run_folder import COMPLETE
from postroad.lab.runs import read_results

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from postroad.lab.experiments.experiment import Experiment, Finding, Plot, Results
    from postroad.lab.run_folder import RunFolder

__all__ = ["html_report", "machine_line", "write_pages"]

_VERDICTS = {True: "agree", False: "differ", None: "open"}


def html_report(runs: Sequence[tuple[Experiment, RunFolder]]) -> str:
    """Return one page with all experiments that were run."""
    parts = [
        "<p>Each experiment states what the paper found, what this run found, and why they differ where they do. "
        "Figures of the papers are not in our text: what is compared are facts that their text states.</p>",
        _contents(runs),
    ]
    parts += [_section(experiment, folder) for experiment, folder in runs]
    return page("The lab", "".join(parts))


def _contents(runs: Sequence[tuple[Experiment, RunFolder]]) -> str:
    rows = []
    for experiment, folder in runs:
        counts = [one.agrees for one in experiment.findings(read_results(folder))]
        verdicts = ", ".join(
            f"{counts.count(which)} {word}" for which, word in _VERDICTS.items() if counts.count(which)
        )
        rows.append([experiment.name, experiment.source, str(folder.read()["asked"]["mode"]), verdicts])
    return html_table(["experiment", "source", "mode", "findings"], rows, None)


def _section(experiment: Experiment, folder: RunFolder) -> str:
    results = read_results(folder)
    parts = [
        f'<h2 id="{html.escape(experiment.name)}">{html.escape(experiment.title)}</h2>',
        f"<p>{html.escape(experiment.source)}. {html.escape(_settings_line(experiment, folder))}</p>",
    ]
    if folder.state != COMPLETE:
        parts.append(f"<p><b>Partial: {html.escape(_progress(folder))}.</b></p>")
    parts.append(html_table(_HEADS, [_cells(one) for one in experiment.findings(results)], None))
    parts += [
        f"<h3>{html.escape(plot.title)}</h3>{draw(plot)}<p>{html.escape(plot.caption)}</p>"
        for plot in experiment.plots(results)
    ]
    parts += [f"<h3>{html.escape(title)}</h3>{_html_rows(rows)}" for title, rows in experiment.tables(results).items()]
    return "".join(parts)


_HEADS = ["the paper found", "we found", "", "why"]


def _cells(one: Finding) -> list[str]:
    return [one.paper, one.ours, _VERDICTS[one.agrees], one.why]


def _html_rows(rows: Sequence[dict[str, Any]]) -> str:
    heads = list(rows[0]) if rows else []
    return html_table(heads, [[_text(row[head]) for head in heads] for row in rows], None)


def _text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "" if math.isnan(value) else "never" if math.isinf(value) else f"{value:,.4g}"
    return str(value)


def _progress(folder: RunFolder) -> str:
    played, cells = folder.progress()
    return f"{played} of {cells} cells were played to their end"


def _settings_line(experiment: Experiment, folder: RunFolder) -> str:
    said = folder.read()
    asked = said["asked"]
    return (
        f"Run {asked['mode']} at scale {asked['scale']:g} with seed {asked['seed']}, Postroad {said['version']}"
        f"{machine_line(read_results(folder))}; the scale is that of: {experiment.scaled}."
    )


def machine_line(results: Results) -> str:
    """What else the machine did during a live run; nothing of a simulated one."""
    loads, processors = results.machine
    if not loads:
        return ""
    return f", on {processors:.0f} processors with a load average of {min(loads):.1f} to {max(loads):.1f}"


def draw(plot: Plot) -> str:
    """Return a plot as an SVG element."""
    figure, axes = new_axes(plot.across, plot.up)
    for line in plot.lines:
        style, marker = "--" if line.dashed else "-", "." if len(line.across) < 30 else ""
        # Apart: "-." in one word is a line of dashes and dots.
        axes.plot(list(line.across), list(line.up), linestyle=style, marker=marker, label=line.name, linewidth=1.2)
    if "x" in plot.logarithmic:
        axes.set_xscale("log")
    if "y" in plot.logarithmic:
        axes.set_yscale("log")
    if plot.lines:
        axes.legend(fontsize="x-small", ncols=2)
    return svg_text(figure)


# --- pages for docs/lab ----------------------------------------------------------------------------------------------


def write_pages(runs: Sequence[tuple[Experiment, RunFolder]], folder: Path) -> list[Path]:
    """Write a Markdown page for each experiment, with its figures as SVG files, and an index of them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    lines = []
    for experiment, run in runs:
        results = read_results(run)
        path = folder / f"{experiment.name}.md"
        path.write_text(_markdown(experiment, run, results, folder), "utf-8")
        written.append(path)
        counts = [one.agrees for one in experiment.findings(results)]
        verdicts = ", ".join(
            f"{counts.count(which)} {word}" for which, word in _VERDICTS.items() if counts.count(which)
        )
        lines.append(f"| [{experiment.name}]({path.name}) | {experiment.title} | {experiment.source} | {verdicts} |")
    index = folder / "README.md"
    index.write_text(_INDEX + "\n".join(lines) + "\n", "utf-8")
    return [*written, index]


_INDEX = """# Published runs of experiments

This page is for readers who want the findings of the lab without running it: one page for each
experiment, with its settings, findings and figures. `postroad lab report --pages docs/lab` writes
these pages from runs; [the lab](../lab.md) lists all experiments and says how to run them.

| experiment | what is compared | source | findings |
| --- | --- | --- | --- |
"""


def _markdown(experiment: Experiment, run: RunFolder, results: Results, folder: Path) -> str:
    parts = [f"# {experiment.title[:1].upper()}{experiment.title[1:]}", ""]
    parts += [f"<!-- written by `postroad lab report --pages`; run: {json.dumps(_asked(run))} -->", ""]
    parts += [f"| | |\n| --- | --- |\n| experiment | `{experiment.name}` |\n| source | {experiment.source} |"]
    parts += [f"| run | {_settings_line(experiment, run)} |"]
    if run.state != COMPLETE:
        parts += [f"| state | partial: {_progress(run)} |"]
    parts += ["", "## Findings", "", _markdown_rows(_HEADS, [_cells(one) for one in experiment.findings(results)])]
    for plot in experiment.plots(results):
        name = f"{experiment.name}-{plot.name}.svg"
        (folder / name).write_text(_standalone(draw(plot)), "utf-8")
        parts += ["", f"## {plot.title}", "", f"![{plot.title}]({name})", "", *_wrapped(plot.caption)]
    for title, rows in experiment.tables(results).items():
        heads = list(rows[0]) if rows else []
        parts += ["", f"## {title}", "", _markdown_rows(heads, [[_text(row[head]) for head in heads] for row in rows])]
    return "\n".join(parts) + "\n"


def _asked(run: RunFolder) -> dict[str, Any]:
    return {name: value for name, value in run.read()["asked"].items() if name != "trials"}


def _markdown_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _wrapped(text: str, columns: int = 100) -> list[str]:
    import textwrap

    return textwrap.wrap(text, columns)


def _standalone(svg: str) -> str:
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg.rstrip() + "\n"
