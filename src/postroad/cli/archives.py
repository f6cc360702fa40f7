"""`postroad archive`: retained messages for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.cli.pipelines import Since, Until, moment
from postroad.cli.topics import check_written

__all__ = ["export"]


def export(
    to: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to write the dataset; it must not exist yet.")],
    data: Annotated[Path, typer.Option(help="The data directory of a broker, running or not.")] = Path("postroad-data"),
    topic: Annotated[str | None, typer.Option(help="Only topics that match this pattern.")] = None,
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Write what a broker retains (`[[store.retain]]`) as Parquet: id, time, topic, attributes, body."""
    from postroad.archive import export_archive

    if topic is not None:
        check_written(topic, pattern=True)
    report = export_archive(data / "store", to, topic, moment(since, "--since"), moment(until, "--until"))
    figures = {"messages": report.messages, "files": report.files, "gone": report.gone}
    if as_json:
        echo_json({**figures, "retained": report.retained, "written": str(to)})
    else:
        echo_table(f"archive: {to}", {**figures, "retained": ", ".join(report.retained)})
