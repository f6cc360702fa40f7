"""The commands of `postroad`: which module has which, imported when it is named.

A command imports the module of its own alone, so that none waits for the others. Help, completion and mistakes take
all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import typer

from postroad.cli.plain_values import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["add_commands"]


class _Group(NamedTuple):
    """Commands under one word."""

    help: str
    commands: Mapping[str, str]


# Name -> module and function, in the order of the help.
_COMMANDS: dict[str, str] = {
    "broker": "brokers.broker",
    "publish": "publisher.publish",
    "subscribe": "subscriber.subscribe",
    "match": "match.match",
    "trace": "trace.trace",
    "top": "top.top",
    "warm": "warm.warm",
    "doctor": "doctor.doctor",
    "completion": "completion.completion",
}
_GROUPS: dict[str, _Group] = {
    "network": _Group(
        "Networks of brokers.",
        {
            "plan": "network_plan.plan",
            "keys": "network_plan.keys",
            "up": "network_run.up",
            "status": "network_run.status",
            "reload": "network_run.reload",
            "restart": "network_run.restart",
            "stop": "network_run.stop",
        },
    ),
    "capacity": _Group(
        "What brokers can carry, and how many are needed.",
        {name: f"capacity.{name}" for name in ("fit", "calibrate", "plan", "figures")},
    ),
    "users": _Group(
        "Who may log in to a broker.",
        {"add": "users.add", "passwd": "users.passwd", "remove": "users.remove", "list": "users.list_users"},
    ),
    "subscriptions": _Group(
        "Durable subscriptions of a running broker.",
        {
            "list": "subscriptions.list_subscriptions",
            "show": "subscriptions.show",
            "purge": "subscriptions.purge",
            "purge-outgoing": "subscriptions.purge_outgoing",
            "delete": "subscriptions.delete",
        },
    ),
    "sessions": _Group(
        "Sessions of a running broker's clients.", {"list": "sessions.list_sessions", "close": "sessions.close"}
    ),
    "queues": _Group(
        "Queues of a running broker.",
        {
            "list": "queues.list_queues",
            "show": "queues.show",
            "purge": "queues.purge",
            "delete": "queues.delete",
        },
    ),
    "archive": _Group("Messages that a broker retains.", {"export": "archives.export"}),
    "lab": _Group(
        "Experiments.",
        {
            "trail": "labs.trail",
            "list": "experiments.list_experiments",
            "run": "experiments.run",
            "report": "experiments.report",
            "workload": "experiments.workload",
            "replay": "experiments.replay",
        },
    ),
    "pipeline": _Group(
        "Jobs over a whole trail, on Spark.",
        {
            name: f"pipelines.{name}"
            for name in (
                "trace",
                "compact",
                "erase",
                "audit",
                "storage",
                "timings",
                "publish",
                "follow",
                "match",
                "run",
                "serve",
            )
        },
    ),
}


def add_commands(app: typer.Typer, first: str | None = None) -> None:
    """Give a program its commands: the one that the first argument names, or all."""
    for name, place in _COMMANDS.items():
        if first == name or not _is_known(first):
            _add(app, name, place)
    for name, group in _GROUPS.items():
        if first == name or not _is_known(first):
            app.add_typer(_group(group), name=name)


def _is_known(name: str | None) -> bool:
    return name in _COMMANDS or name in _GROUPS


def _add(app: typer.Typer, name: str, place: str) -> None:
    module, _, function = place.partition(".")
    app.command(name=name, cls=PlainCommand)(getattr(import_module(f"postroad.cli.{module}"), function))


def _group(group: _Group) -> typer.Typer:
    made = typer.Typer(help=group.help, no_args_is_help=True, cls=PlainGroup)
    # A group of one command would become that command without this.
    made.callback()(_nothing)
    for name, place in group.commands.items():
        _add(made, name, place)
    return made


def _nothing() -> None:
    pass
