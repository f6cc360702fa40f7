"""What `postroad network up` shows: a live table for a terminal, lines for a log, JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from postroad.cli.output import echo_json, printable
from postroad.network import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.network import BrokerView, NetworkState, RestartProgress

__all__ = ["JsonEvents", "LiveTable", "PlainLines", "as_table", "rolled_line", "up_fields", "up_lines", "view_fields"]

_COLOURS = {
    Condition.READY: "green",
    Condition.STARTING: "yellow",
    Condition.DEGRADED: "yellow",
    Condition.SILENT: "red",
    Condition.DEAD: "red",
}
# Columns of a terminal that the whole table fits into, also with a parent for each broker.
WIDE = 100
# Brokers in trouble come first: with many brokers, a terminal shows only the first.
_ORDER = (Condition.DEAD, Condition.SILENT, Condition.DEGRADED, Condition.STARTING, Condition.READY)


def up_fields(state: NetworkState) -> dict[str, Any]:
    """Return a network in a few fields."""
    return {
        "network": state.name,
        "strategy": state.strategy,
        "directory": state.directory,
        "up": state.up,
        "watcher_pid": state.watcher.pid,
        "brokers": [
            {
                "broker": each.number,
                "address": each.address,
                "admin": each.admin,
                "pid": each.process.pid if each.process else None,
            }
            for each in state.brokers
        ],
    }


def up_lines(state: NetworkState) -> str:
    """Return the text that a network is up."""
    count = len(state.brokers)
    return (
        f"network {state.name} is up: {count} broker{'' if count == 1 else 's'}, routing by {state.strategy}\n"
        f"clients: --directory {state.directory}\n"
        f"console: {state.brokers[0].admin}/console"
    )


def view_fields(view: BrokerView) -> dict[str, Any]:
    """Return a broker in a few fields."""
    fields: dict[str, Any] = msgspec.to_builtins(view)
    return {**fields, "in_per_second": round(view.in_per_second, 1), "out_per_second": round(view.out_per_second, 1)}


def as_table(state: NetworkState, views: Sequence[BrokerView], width: int = WIDE) -> Table:
    """Return a table of the brokers, those in trouble first; with their admin ports if there is room."""
    title = f"network {state.name}, {state.strategy}"
    if state.directory:
        title += f"; directory {state.directory}"
    table = Table(title=title, title_justify="left")
    table.add_column("broker", justify="right")
    table.add_column("clients at", no_wrap=True)
    has_admins = width >= WIDE
    if has_admins:
        table.add_column("admin", justify="right")
    has_parents = any(view.planned_parent is not None for view in views)
    for heading in ("links", *(("parent",) if has_parents else ()), "sessions", "subs", "in/s", "out/s"):
        table.add_column(heading, justify="right", no_wrap=heading == "parent")
    table.add_column("state", no_wrap=True)
    for view in sorted(views, key=lambda view: (_ORDER.index(view.condition), view.broker)):
        answers = view.condition not in (Condition.DEAD, Condition.SILENT)
        counts = [
            f"{view.links_up}/{view.links_planned}",
            *((_parent(view),) if has_parents else ()),
            f"{view.sessions:,}",
            f"{view.subscriptions:,}",
            f"{view.in_per_second:,.0f}",
            f"{view.out_per_second:,.0f}",
        ]
        shown = counts if answers else ["-"] * len(counts)
        where, colour = view.address.partition("//")[2], _COLOURS[view.condition]
        admin = (view.admin.rpartition(":")[2],) if has_admins else ()
        table.add_row(str(view.broker), where, *admin, *shown, f"[{colour}]{view.condition}{_history(view)}[/{colour}]")
    return table


def _history(view: BrokerView) -> str:
    if view.given_up and view.condition is Condition.DEAD:
        return ", given up"
    return f", restarts: {view.restarts}" if view.restarts else ""


def _parent(view: BrokerView) -> str:
    actual, planned = (str(one) if one else "-" for one in (view.parent, view.planned_parent))
    return actual if actual == planned else f"{actual} (planned {planned})"


def _death(broker: int, how: str, tail: str, command: str) -> str:
    log = "\n".join(f"  {printable(line)}" for line in tail.splitlines()) or "  (nothing)"
    return f"broker {broker} died: {how}. The end of its log:\n{log}\nto start it again: {command}"


def _given_up(broker: int, restarts: int, seconds: float) -> str:
    return (
        f"broker {broker} was started again {restarts} time{'' if restarts == 1 else 's'} and died again within "
        f"{seconds:g} s: it stays dead until somebody starts it"
    )


def rolled_line(progress: RestartProgress) -> str:
    """Return the progress of a rolling restart, in a line."""
    count = f"{progress.done} of {len(progress.brokers)} brokers restarted"
    if progress.failure:
        left = progress.brokers[progress.done :]
        listed = ", ".join(map(str, left[:10])) + (" …" if len(left) > 10 else "")
        return f"{count}, and no more: {progress.failure}. Not restarted, or not seen back: {listed}"
    return f"{count}; broker {progress.broker}: {progress.step}" if progress.broker else count


def _stopped(brokers: int, killed: int) -> str:
    hard = f", {killed} of them the hard way" if killed else ""
    return f"stopped {brokers} broker{'' if brokers == 1 else 's'}{hard}"


class LiveTable:
    """A table that is redrawn at each look, with lines above it for events."""

    def __init__(self) -> None:
        self._console = Console(emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")

    def looked(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Draw the table."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(as_table(state, views, self._console.width), refresh=True)

    def came_up(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Print that the network is up, above the table."""
        self._console.print(f"{up_lines(state)}\nCtrl-C stops it", highlight=False)

    def died(self, broker: int, how: str, tail: str, command: str) -> None:
        """Print that a broker died, above the table."""
        self._console.print(_death(broker, how, tail, command), highlight=False, markup=False, style="red")

    def restarts(self, broker: int, seconds: float) -> None:
        """Print when a broker will be restarted, above the table."""
        self._console.print(f"broker {broker} will be started again in {seconds:g} s", highlight=False)

    def restarted(self, broker: int, pid: int) -> None:
        """Print that a broker was restarted, above the table."""
        self._console.print(f"broker {broker} was started again, as process {pid}", highlight=False)

    def gave_up(self, broker: int, restarts: int, seconds: float) -> None:
        """Print that a broker is not restarted any more, above the table."""
        self._console.print(_given_up(broker, restarts, seconds), highlight=False, style="red")

    def rolled(self, progress: RestartProgress) -> None:
        """Print the progress of a rolling restart, above the table."""
        self._console.print(rolled_line(progress), highlight=False, markup=False)

    def stopping(self) -> None:
        """Leave the table as it is."""
        self._live.stop()
        self._console.print("stopping…")

    def stopped(self, brokers: int, killed: int) -> None:
        """Print how the network stopped."""
        self._console.print(_stopped(brokers, killed), highlight=False)


class PlainLines:
    """A line for each event."""

    def looked(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Print nothing."""

    def came_up(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Print that the network is up."""
        typer.echo(up_lines(state))

    def died(self, broker: int, how: str, tail: str, command: str) -> None:
        """Print that a broker died."""
        typer.echo(_death(broker, how, tail, command), err=True)

    def restarts(self, broker: int, seconds: float) -> None:
        """Print when a broker will be restarted."""
        typer.echo(f"broker {broker} will be started again in {seconds:g} s", err=True)

    def restarted(self, broker: int, pid: int) -> None:
        """Print that a broker was restarted."""
        typer.echo(f"broker {broker} was started again, as process {pid}", err=True)

    def gave_up(self, broker: int, restarts: int, seconds: float) -> None:
        """Print that a broker is not restarted any more."""
        typer.echo(_given_up(broker, restarts, seconds), err=True)

    def rolled(self, progress: RestartProgress) -> None:
        """Print the progress of a rolling restart."""
        typer.echo(rolled_line(progress), err=True)

    def stopping(self) -> None:
        """Print nothing yet."""

    def stopped(self, brokers: int, killed: int) -> None:
        """Print how the network stopped."""
        typer.echo(_stopped(brokers, killed))


class JsonEvents:
    """A JSON object for each event."""

    def looked(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Print nothing."""

    def came_up(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Print that the network is up."""
        echo_json({"event": "up", **up_fields(state)})

    def died(self, broker: int, how: str, tail: str, command: str) -> None:
        """Print that a broker died."""
        echo_json({"event": "died", "broker": broker, "how": how, "log": tail, "restart": command})

    def restarts(self, broker: int, seconds: float) -> None:
        """Print when a broker will be restarted."""
        echo_json({"event": "restarts", "broker": broker, "seconds": seconds})

    def restarted(self, broker: int, pid: int) -> None:
        """Print that a broker was restarted."""
        echo_json({"event": "restarted", "broker": broker, "pid": pid})

    def gave_up(self, broker: int, restarts: int, seconds: float) -> None:
        """Print that a broker is not restarted any more."""
        echo_json({"event": "gave up", "broker": broker, "restarts": restarts, "seconds": seconds})

    def rolled(self, progress: RestartProgress) -> None:
        """Print the progress of a rolling restart."""
        echo_json({"event": "rolled", **msgspec.to_builtins(progress)})

    def stopping(self) -> None:
        """Print that the network stops."""
        echo_json({"event": "stopping"})

    def stopped(self, brokers: int, killed: int) -> None:
        """Print how the network stopped."""
        echo_json({"event": "stopped", "brokers": brokers, "killed": killed})
