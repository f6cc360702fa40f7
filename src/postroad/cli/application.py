"""The program `postroad`: its commands, and how it ends.

Commands import the rooms they need when they run: `postroad --help` must not wait for numba.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from postroad import __version__
from postroad.cli import archives, pipelines
from postroad.cli import capacity as capacity_commands
from postroad.cli import experiments as lab_commands
from postroad.cli import queues as queues_commands
from postroad.cli import sessions as sessions_commands
from postroad.cli import subscriptions as subscriptions_commands
from postroad.cli import users as users_commands
from postroad.cli.brokers import broker
from postroad.cli.completion import COMPLETION_VARIABLE, completion, enable_completion
from postroad.cli.doctor import doctor
from postroad.cli.labs import trail
from postroad.cli.match import match
from postroad.cli.network_plan import keys, plan
from postroad.cli.network_run import reload, restart, status, stop, up
from postroad.cli.publisher import publish
from postroad.cli.subscriber import subscribe
from postroad.cli.top import top
from postroad.cli.trace import trace
from postroad.cli.warm import warm
from postroad.errors import PostroadError

__all__ = ["EXIT_REFUSED", "main"]

# Also the code for mistakes in the arguments. 1 means that the answer is no, or that the reader of the output is gone.
EXIT_REFUSED = 2

app = typer.Typer(
    name="postroad",
    help="A content-based messaging network that can tell you where every message went.",
    no_args_is_help=True,
    # `postroad completion` instead of two options that every help would list.
    add_completion=False,
    # Groups and commands below inherit it.
    context_settings={"help_option_names": ["-h", "--help"]},
    # A PostroadError becomes a line of text below; anything else is a defect, and its plain traceback is what helps.
    pretty_exceptions_enable=False,
)
network = typer.Typer(help="Networks of brokers.", no_args_is_help=True)
app.command()(broker)
app.command()(publish)
app.command()(subscribe)
app.command()(match)
app.command()(trace)
app.command()(top)
app.command()(warm)
app.command()(doctor)
app.command()(completion)
app.add_typer(network, name="network")
for command in (plan, keys, up, status, reload, restart, stop):
    network.command()(command)
capacity = typer.Typer(help="What brokers can carry, and how many are needed.", no_args_is_help=True)
app.add_typer(capacity, name="capacity")
capacity.command()(capacity_commands.fit)
capacity.command()(capacity_commands.calibrate)
capacity.command()(capacity_commands.plan)
capacity.command()(capacity_commands.figures)
users = typer.Typer(help="Who may log in to a broker.", no_args_is_help=True)
app.add_typer(users, name="users")
for change in (users_commands.add, users_commands.passwd, users_commands.remove):
    users.command()(change)
users.command(name="list")(users_commands.list_users)
subscriptions = typer.Typer(help="Durable subscriptions of a running broker.", no_args_is_help=True)
app.add_typer(subscriptions, name="subscriptions")
subscriptions.command(name="list")(subscriptions_commands.list_subscriptions)
subscriptions.command()(subscriptions_commands.show)
subscriptions.command()(subscriptions_commands.purge)
subscriptions.command()(subscriptions_commands.delete)
sessions = typer.Typer(help="Sessions of a running broker's clients.", no_args_is_help=True)
app.add_typer(sessions, name="sessions")
sessions.command(name="list")(sessions_commands.list_sessions)
sessions.command()(sessions_commands.close)
queues = typer.Typer(help="Queues of a running broker.", no_args_is_help=True)
app.add_typer(queues, name="queues")
queues.command(name="list")(queues_commands.list_queues)
queues.command()(queues_commands.show)
queues.command()(queues_commands.purge)
queues.command()(queues_commands.delete)
archive = typer.Typer(help="Messages that a broker retains.", no_args_is_help=True)
app.add_typer(archive, name="archive")
archive.command()(archives.export)
lab = typer.Typer(help="Experiments.", no_args_is_help=True)
app.add_typer(lab, name="lab")
lab.command()(trail)
for lab_name, lab_command in lab_commands.COMMANDS.items():
    lab.command(name=lab_name)(lab_command)
pipeline = typer.Typer(help="Jobs over a whole trail, on Spark.", no_args_is_help=True)
app.add_typer(pipeline, name="pipeline")
for job in pipelines.COMMANDS:
    pipeline.command()(job)


@network.callback()
def _network() -> None:
    """Networks of brokers."""


@users.callback()
def _users() -> None:
    """Who may log in to a broker."""


@subscriptions.callback()
def _subscriptions() -> None:
    """Durable subscriptions of a running broker."""


@sessions.callback()
def _sessions() -> None:
    """Sessions of a running broker's clients."""


@queues.callback()
def _queues() -> None:
    """Queues of a running broker."""


@archive.callback()
def _archive() -> None:
    """Messages that a broker retains."""


@pipeline.callback()
def _pipeline() -> None:
    """Jobs over a whole trail, on Spark."""


@capacity.callback()
def _capacity() -> None:
    """What brokers can carry, and how many are needed."""


@lab.callback()
def _lab() -> None:
    """Experiments."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"postroad {__version__}")
        raise typer.Exit


@app.callback()
def _postroad(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A content-based messaging network that can tell you where every message went."""


def main() -> None:
    """Run the command that the arguments name. Ctrl-C ends it with 130, a closed output with 1: both quietly."""
    enable_completion()
    try:
        app(prog_name="postroad", complete_var=COMPLETION_VARIABLE)
    except PostroadError as error:
        typer.echo(f"postroad: {error}", err=True)
        if details := getattr(error, "details", ""):
            typer.echo(details, err=True)
        sys.exit(EXIT_REFUSED)
