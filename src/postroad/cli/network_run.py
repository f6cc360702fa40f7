"""`postroad network up`, `status`, `restart` and `stop`: run a whole network on this machine."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.brokers import LogLevel
from postroad.cli.output import AsJson, echo_json
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.config import TrackingConfig
    from postroad.network import Listener, NetworkRun, Place
    from postroad.topology import Plan

__all__ = ["read_plan", "reload", "restart", "status", "stop", "up"]

# The exit code if the answer to "is all well?" is no.
EXIT_NOT_WELL = 1

Where = Annotated[Path, typer.Argument(metavar="PLAN|DIR", help="The plan, or the data directory of the network.")]
Data = Annotated[
    Path | None, typer.Option(help="Where its settings, logs and data are; PLAN's name with .network by default.")
]


def _recorder_names(incomplete: str) -> list[str]:
    """Return the recorders whose name begins so: for Tab, which alone has to load them."""
    from typing import get_args

    from postroad.config import RecorderName

    return [name for name in get_args(RecorderName) if name.startswith(incomplete)]


def up(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, as `postroad network plan` writes it.")],
    data: Data = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is up, and leave it running.")] = False,
    directory_port: Annotated[int, typer.Option(min=0, max=65_535, help="For clients that ask for brokers.")] = 8160,
    directory_host: Annotated[str, typer.Option(help="The directory's address.")] = "127.0.0.1",
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="POSTROAD_SECRET", help="What all brokers share; beside keys and TLS, or instead on this machine."
        ),
    ] = None,
    wait: Annotated[float, typer.Option(min=1, help="Seconds that the network may take to come up.")] = 300.0,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help="What brokers log: debug, info, warning or error, and worse.")
    ] = LogLevel.INFO,
    recorder: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=_recorder_names,
            help="The recorder: none, log, exact, bloom or sealed.",
        ),
    ] = "exact",
    persist: Annotated[
        float | None, typer.Option(min=0.1, help="How often the record is written at least, in seconds; 60 by default.")
    ] = None,
    journal: Annotated[bool, typer.Option("--journal", help="A crash loses nothing that has a receipt.")] = False,
    alias: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The attribute or header with a message's name in another system."),
    ] = None,
    ship: Annotated[
        str | None, typer.Option(metavar="URI", help="Copy the record to this place too, such as s3://bucket/trail.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="The group of the system that may read data, logs and trail; by default none.")
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option(help="Logins and passcodes, as `postroad users` writes them; without it everybody may log in."),
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="The token that the brokers' admin endpoints ask for; by default none.")
    ] = None,
    admin_tls: Annotated[
        bool, typer.Option("--admin-tls", help="Admin endpoints speak TLS, with the certificates of the plan.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start brokers that die again, after a pause that grows.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Start every broker of a plan as a process, wait until they are linked, and watch them until Ctrl-C."""
    from postroad.network import NetworkRun, RunOptions, credentials_of, place_of

    place = place_of(plan, data)
    if plan.is_dir():
        raise PostroadError(f"{plan} is a directory; name the plan, and its data directory with --data")
    read = read_plan(plan)
    # Before anything starts in the background, so that a mistake is reported here and not in a log.
    tracking = _tracking(recorder, persist, journal, alias, ship)
    if admin_tls:
        _check_admin_tls(read, admin_token_file)
    if detach:
        arguments = _options(
            json=True,
            data=place.root,
            directory_port=directory_port,
            directory_host=directory_host,
            wait=wait,
            log_level=log_level.value,
            recorder=recorder,
            persist=persist,
            journal=journal,
            no_restart=not restart,
            alias=alias,
            ship=ship,
            group=group,
            users_file=users_file,
            admin_token_file=admin_token_file,
            admin_tls=admin_tls,
        )
        _start_in_background([str(plan), *arguments], place.root, secret, as_json, group)
        return
    options_given = RunOptions(
        secret=secret,
        log_level=log_level.value,
        directory_host=directory_host,
        directory_port=directory_port,
        wait_seconds=wait,
        tracking=tracking,
        group=group,
        restart=restart,
        credentials=credentials_of(plan),
        users_file=users_file,
        admin_token_file=admin_token_file,
        admin_tls=admin_tls,
    )
    asyncio.run(_until_stopped(NetworkRun(read, plan, place, _listener(as_json), options_given)))


def _check_admin_tls(plan: Plan, token_file: Path | None) -> None:
    from postroad.config import is_loopback

    if not plan.tls:
        raise PostroadError("--admin-tls: the plan has no certificates; `postroad network plan … --tls` makes them")
    distant = next((one.host for one in plan.brokers if not is_loopback(one.host)), None)
    if distant is not None and token_file is None:
        raise PostroadError(f"--admin-tls: other machines reach {distant}; say --admin-token-file too")


def _options(**given: object) -> list[str]:
    """Return options in the form of a command line: flags that are set, and all others that have a value."""
    found: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif value is not None and value is not False:
            found += [option, str(value)]
    return found


def _tracking(
    recorder: str, persist: float | None, journal: bool, alias: str | None, ship: str | None
) -> TrackingConfig:
    import msgspec

    from postroad.config import TrackingConfig
    from postroad.config.mistakes import explained

    wants = {"--persist": persist, "--journal": journal or None, "--alias": alias, "--ship": ship}
    unused = [option for option, value in wants.items() if value is not None]
    if recorder == "none" and unused:
        raise PostroadError(
            f"--recorder none keeps no record: leave out {' and '.join(unused)}, or choose another recorder"
        )
    fields = {
        "recorder": recorder,
        **({} if persist is None else {"persist_seconds": persist}),
        "journal": journal,
        "alias_attribute": alias,
        "ship": ship,
    }
    try:
        return msgspec.convert(fields, TrackingConfig)
    except msgspec.ValidationError as error:
        wrong = {
            "recorder": f"--recorder {recorder!r}",
            "alias_attribute": f"--alias {alias!r}",
            "ship": f"--ship {ship!r}",
        }
        named = next((said for field, said in wrong.items() if field in str(error)), f"--persist {persist}")
        raise PostroadError(f"{named}: {explained(error, TrackingConfig)}") from None


def read_plan(path: Path) -> Plan:
    """Return the plan in a file.

    Raises:
        PostroadError: it cannot be read, or is not a plan.
    """
    import msgspec

    from postroad.config.mistakes import explained
    from postroad.topology import Plan, PlanError

    try:
        return Plan.parse(path.read_text("utf-8"))
    except OSError as error:
        hint = "write a plan with `postroad network plan SHAPE --out FILE`"
        raise PostroadError(f"{path}: cannot be read ({error.strerror}); {hint}") from None
    except UnicodeDecodeError:
        raise PostroadError(f"{path}: not a plan: it is not text") from None
    except PlanError as error:
        cause = error.__cause__
        problem = explained(cause, Plan) if isinstance(cause, msgspec.ValidationError) else str(error)
        raise PostroadError(f"{path}: {problem}") from None


def _listener(as_json: bool) -> Listener:
    from postroad.cli import network_view

    if as_json:
        return network_view.JsonEvents()
    return network_view.LiveTable() if sys.stdout.isatty() else network_view.PlainLines()


async def _until_stopped(run: NetworkRun) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, run.stop)
    await run.run()


def _start_in_background(
    arguments: list[str], root: Path, secret: str | None, as_json: bool, group: str | None
) -> None:
    import os

    from postroad.cli.network_view import up_fields, up_lines
    from postroad.network import Place, start_detached

    if secret is not None:
        # All users of the machine can see arguments.
        os.environ["POSTROAD_SECRET"] = secret
    state = asyncio.run(start_detached(Place(root), arguments, group))
    if as_json:
        echo_json(up_fields(state))
    else:
        typer.echo(up_lines(state))
        typer.echo(f"look at it with `postroad network status {root}`, stop it with `postroad network stop {root}`")


def _place(where: Path, data: Path | None) -> Place:
    """Return the data directory of a network that the arguments name."""
    from postroad.network import place_of

    if data is not None and where.is_dir():
        raise PostroadError(f"{where} is a data directory, and so is --data {data}: give one of them")
    return place_of(where, data)


def status(where: Where, data: Data = None, as_json: AsJson = False) -> None:
    """Show the brokers of a running network. The exit code is 1 when one is dead, silent, or not as planned."""
    from rich.console import Console

    from postroad.cli.network_view import as_table, up_fields, view_fields
    from postroad.network import Condition, find, look_once

    state = find(_place(where, data))
    views = asyncio.run(look_once(state))
    if as_json:
        echo_json({**up_fields(state), "brokers": [view_fields(view) for view in views]})
    else:
        console = Console(emoji=False)
        console.print(as_table(state, views, console.width))
    if any(view.condition is not Condition.READY for view in views):
        raise typer.Exit(EXIT_NOT_WELL)


def reload(where: Where, data: Data = None, as_json: AsJson = False) -> None:
    """Have every broker of a running network read its settings, users and certificates again."""
    from postroad.network import reload_users

    count = reload_users(_place(where, data))
    if as_json:
        echo_json({"event": "reload", "brokers": count})
    else:
        typer.echo(
            f"told {count} broker{'' if count == 1 else 's'} to read settings and users again;"
            " their logs say how it went"
        )


def restart(
    where: Where,
    data: Data = None,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One broker after the other, each when the one before is back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restart the brokers of a running network. Ctrl-C ends it between two brokers: the present one comes back."""
    if not rolling:
        raise PostroadError(
            "say --rolling to restart one broker after the other while the network goes on; "
            "`postroad network stop` and `up` restart all of them at once"
        )
    try:
        whole = asyncio.run(_rolled(_place(where, data), as_json))
    except KeyboardInterrupt:
        typer.echo("interrupted: the broker that is being restarted comes back, and the others stay as they are")
        raise
    if not whole:
        raise typer.Exit(EXIT_NOT_WELL)


async def _rolled(place: Place, as_json: bool) -> bool:
    import msgspec

    from postroad.cli.network_view import rolled_line
    from postroad.network import follow_restart

    whole = False
    async for progress in follow_restart(place):
        whole = progress.finished and not progress.failure
        if as_json:
            echo_json(msgspec.to_builtins(progress))
        elif progress.broker or progress.finished:
            typer.echo(rolled_line(progress), err=bool(progress.failure))
    return whole


def stop(where: Where, data: Data = None, as_json: AsJson = False) -> None:
    """Stop a running network, from any terminal."""
    from postroad.network import stop_network

    stopped = asyncio.run(stop_network(_place(where, data)))
    if as_json:
        echo_json({"event": "stopped", **stopped._asdict()})
    else:
        killed = f", {stopped.killed} of them the hard way" if stopped.killed else ""
        typer.echo(f"stopped {stopped.brokers} broker{'' if stopped.brokers == 1 else 's'}{killed}")
