"""`postroad top`: what the brokers of a network do, one line each, redrawn every few seconds."""

from __future__ import annotations

import asyncio
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from postroad.cli.admin_requests import (
    AdminAuthority,
    TokenFile,
    admin_base,
    admin_endpoint,
    check_token_stays_secret,
    is_one_of_network,
    local_network,
    read_token,
    trusting,
)
from postroad.cli.output import AsJson, echo_json, printable
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from postroad.client import AdminAccess

__all__ = [
    "BrokerFigures",
    "NetworkView",
    "SessionFigures",
    "broker_figures",
    "figures_between",
    "session_figures",
    "top",
]

DEFAULT_ADDRESS = "127.0.0.1:8161"
# A busy broker responds between two batches.
ANSWER_SECONDS = 3.0
# A status lists up to 10,000 subscriptions with some 300 bytes each.
MOST_BYTES = 16 << 20
# Sessions that fit below the brokers on a screen.
MOST_SESSIONS = 15
_UNITS = ("", "k", "M", "G", "T")
# Columns of a terminal that the table of brokers fits into with borders and whole headings.
WIDE = 132


class BrokerFigures(NamedTuple):
    """Recent figures of one broker. Rates are per second."""

    broker: int
    state: str
    in_per_second: float
    out_per_second: float
    relayed_per_second: float
    received_bytes_per_second: float
    sent_bytes_per_second: float
    shed_per_second: float
    waiting: int
    sessions: int
    subscriptions: int
    links_up: int
    links: int
    load: float | None


class SessionFigures(NamedTuple):
    """Recent figures of one session. Rates are per second."""

    broker: int
    session: int
    principal: str
    address: str
    in_per_second: float
    out_per_second: float
    waiting: int
    subscriptions: int
    state: str


def top(
    where: Annotated[
        str,
        typer.Argument(
            metavar="PLAN|DIR|ADDRESS",
            envvar="POSTROAD_ADMIN",
            help="A running network: its plan, data directory or directory's address; or one broker: its admin "
            "address, or PLAN:N.",
        ),
    ] = DEFAULT_ADDRESS,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and end.")] = False,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Show what brokers do: messages and bytes a second, what waits, what is shed, and the busiest sessions."""
    from postroad.client import AdminAccess

    if is_one_of_network(where):
        where, token, admin_ca = admin_endpoint(where, admin_token_file, admin_ca)
    else:
        if _is_local(where):
            _, admin_token_file, admin_ca = local_network(Path(where), admin_token_file, admin_ca)
        token = read_token(admin_token_file)
    access = AdminAccess(token, None if admin_ca is None else trusting(admin_ca))
    asyncio.run(_watch(where, interval, once, access, as_json))


async def _watch(where: str, interval: float, once: bool, access: AdminAccess, as_json: bool) -> None:
    before = await _look(where, access)
    if not any(report is not None for report in before.reports.values()):
        raise PostroadError(f"{where}: no broker answers; give a running network, or the admin address of a broker")
    screen = None
    if not once and not as_json and sys.stdout.isatty():
        from rich.live import Live

        screen = Live(auto_refresh=False, screen=True)
        screen.start()
    try:
        while True:
            await asyncio.sleep(interval)
            after = await _look(where, access)
            brokers, sessions = figures_between(before, after)
            if as_json:
                document = {
                    "brokers": [one._asdict() for one in brokers],
                    "sessions": [one._asdict() for one in sessions],
                }
                echo_json({"time": round(time.time(), 3), **document})
            else:
                _draw(brokers, sessions, screen)
            if once:
                return
            # A broker that stays silent keeps its number.
            before = after._replace(numbers=before.numbers | after.numbers)
    finally:
        if screen is not None:
            screen.stop()


class NetworkView(NamedTuple):
    """What all brokers reported at one time; None for one that did not."""

    at: float
    reports: dict[str, dict[str, Any] | None]
    numbers: dict[str, int]


# What a status has that this command reads of every broker.
_PARTS = frozenset(("broker", "ready", "process_seconds", "statistics", "server", "network", "sessions", "capacity"))


async def _look(where: str, access: AdminAccess) -> NetworkView:
    admins = await _admins(where, access)
    found = await asyncio.gather(*(_report(admin, access, asks=True) for admin in admins))
    reports = {
        admin: report if report is not None and report.keys() >= _PARTS else None
        for admin, report in zip(admins, found, strict=True)
    }
    numbers = {admin: int(report["broker"]) for admin, report in reports.items() if report is not None}
    return NetworkView(time.monotonic(), reports, numbers)


async def _admins(where: str, access: AdminAccess) -> list[str]:
    """Return the admin addresses of the brokers."""
    if _is_local(where):
        return [entry.admin for entry in local_network(Path(where), None, None).brokers]
    base = admin_base(where)
    # A directory asks for no token, and none is shown to it.
    found = await _report(base, access._replace(token=""))
    if found is not None and isinstance(found.get("brokers"), list):
        # The directory of a network, which lists its brokers.
        return [str(view["admin"]) for view in found["brokers"]]
    return [base]


def _is_local(where: str) -> bool:
    """Return whether the argument is a plan or a directory of a network that runs on this machine."""
    path = Path(where)
    return "://" not in where and (path.exists() or path.suffix == ".toml")


async def _report(base: str, access: AdminAccess, asks: bool = False) -> dict[str, Any] | None:
    """Return what an endpoint reports, None if it does not; one that `asks` for a token it does not get is an error."""
    import msgspec

    from postroad.client import HttpError, admin_reply

    check_token_stays_secret(base, access.token)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reply = await admin_reply(f"{base}/status", MOST_BYTES, access)
        if asks and reply.status == HTTPStatus.UNAUTHORIZED:
            raise PostroadError(f"{base} asks for another token; give it with --admin-token-file")
        return msgspec.json.decode(reply.body, type=dict[str, Any])
    # Any program may listen there, and may send anything.
    except (OSError, HttpError, ValueError, RecursionError):
        return None


def figures_between(before: NetworkView, after: NetworkView) -> tuple[list[BrokerFigures], list[SessionFigures]]:
    seconds = max(after.at - before.at, 1e-9)
    brokers: list[BrokerFigures] = []
    sessions: list[SessionFigures] = []
    for admin, report in after.reports.items():
        was = before.reports.get(admin)
        if report is None:
            number = before.numbers.get(admin, 0)
            brokers.append(BrokerFigures(number, "silent", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None))
            continue
        # A broker that was started again counts from 0.
        is_same = was is not None and was["process_seconds"] <= report["process_seconds"]
        earlier = was if was is not None and is_same else report
        brokers.append(broker_figures(earlier, report, seconds))
        sessions += session_figures(earlier, report, seconds)
    sessions.sort(key=lambda one: (-(one.in_per_second + one.out_per_second), -one.waiting, one.broker, one.session))
    return sorted(brokers), sessions[:MOST_SESSIONS]


def broker_figures(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> BrokerFigures:
    """Return the figures of one broker, from two of its statuses and the time between them."""
    was, now = before["statistics"], after["statistics"]
    was_server, now_server = before["server"], after["server"]
    network = after["network"]
    links = [] if network is None else network["neighbours"]
    up = sum(bool(link["up_now"]) for link in links)
    shed = [name for name in now if name.startswith("shed_")]
    state = "ready" if after["ready"] else "not ready"
    return BrokerFigures(
        broker=int(after["broker"]),
        state="degraded" if after["ready"] and (up < len(links) or _has_trouble(after)) else state,
        in_per_second=(now["accepted"] - was["accepted"]) / seconds,
        out_per_second=(now["delivered"] - was["delivered"]) / seconds,
        relayed_per_second=(_relayed(after) - _relayed(before)) / seconds,
        received_bytes_per_second=(now_server["received_bytes"] - was_server["received_bytes"]) / seconds,
        sent_bytes_per_second=(now_server["sent_bytes"] - was_server["sent_bytes"]) / seconds,
        shed_per_second=sum(now[name] - was[name] for name in shed) / seconds,
        waiting=now["waiting_messages_now"] + now["stored_messages_now"] + now["queued_messages_now"],
        sessions=now["sessions_now"],
        subscriptions=now["subscriptions_now"],
        links_up=up,
        links=len(links),
        load=after["capacity"]["load"],
    )


def _has_trouble(report: Mapping[str, Any]) -> bool:
    parts = (("tracking", "trouble"), ("tracking", "ship_trouble"), ("store", "trouble"))
    return any(report[part] is not None and report[part][trouble] for part, trouble in parts)


def _relayed(report: Mapping[str, Any]) -> int:
    network = report["network"]
    return 0 if network is None else int(network["relay"]["sent"]) + int(network["relay"]["relayed"])


def session_figures(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> list[SessionFigures]:
    """Return the sessions of one broker, from two of its statuses."""
    earlier = {session["number"]: session for session in before["sessions"]}
    found = []
    for session in after["sessions"]:
        was = earlier.get(session["number"], session)
        state = "paused" if session["paused"] else "congested" if session["congested"] else ""
        found.append(
            SessionFigures(
                broker=int(after["broker"]),
                session=int(session["number"]),
                principal=session["principal"],
                address=session["address"],
                in_per_second=(session["accepted"] - was["accepted"]) / seconds,
                out_per_second=max(0, _total(session, "delivered") - _total(was, "delivered")) / seconds,
                waiting=_total(session, "waiting_messages_now"),
                subscriptions=len(session["subscriptions"]),
                state=state,
            )
        )
    return found


def _total(session: Mapping[str, Any], name: str) -> int:
    return sum(int(one[name]) for one in session["subscriptions"])


# --- on the screen ----------------------------------------------------------------------------------------------------


def _draw(brokers: Sequence[BrokerFigures], sessions: Sequence[SessionFigures], screen: Any) -> None:
    from rich.console import Console, Group

    console = Console(emoji=False) if screen is None else screen.console
    is_wide = console.width >= WIDE
    drawn = Group(_brokers_table(brokers, is_wide), *((_sessions_table(sessions, is_wide),) if sessions else ()))
    if screen is None:
        console.print(drawn)
    else:
        screen.update(drawn, refresh=True)


def _table(title: str, left: Iterable[str], right: Iterable[str], is_wide: bool) -> Table:
    """A table with headings of which each has a short form, after a bar, for narrow terminals."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    if not is_wide:
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    for heading in left:
        table.add_column(_heading(heading, is_wide), no_wrap=True)
    for heading in right:
        table.add_column(_heading(heading, is_wide), justify="right", no_wrap=True)
    return table


def _heading(text: str, is_wide: bool) -> str:
    long, _, short_form = text.partition("|")
    return long if is_wide or not short_form else short_form


def _brokers_table(brokers: Sequence[BrokerFigures], is_wide: bool) -> Table:
    speeds = ("in/s", "out/s", "relayed/s|relay\n/s", "bytes in/s|bytes\nin/s", "bytes out/s|bytes\nout/s")
    numbers = ("shed/s|shed\n/s", "waiting|wait-\ning", "sessions|ses-\nsions", "subs", "links", "load")
    table = _table("brokers", ("broker|#", "state"), (*speeds, *numbers), is_wide)
    for one in brokers:
        colour = {"ready": "green", "silent": "red"}.get(one.state, "yellow")
        rates = (
            one.in_per_second,
            one.out_per_second,
            one.relayed_per_second,
            one.received_bytes_per_second,
            one.sent_bytes_per_second,
            one.shed_per_second,
        )
        table.add_row(
            str(one.broker) if one.broker else "?",
            f"[{colour}]{one.state}[/{colour}]",
            *(short(rate) for rate in rates),
            *(f"{count:,}" if is_wide else short(count) for count in (one.waiting, one.sessions, one.subscriptions)),
            f"{one.links_up}/{one.links}",
            "-" if one.load is None else f"{100 * one.load:.0f} %",
        )
    return table


def _sessions_table(sessions: Sequence[SessionFigures], is_wide: bool) -> Table:
    left = ("broker|#", "session|ses-\nsion", "principal", "address")
    table = _table("busiest sessions", left, ("in/s", "out/s", "waiting|wait-\ning", "subs"), is_wide)
    table.add_column("state")
    for one in sessions:
        from rich.text import Text

        table.add_row(
            str(one.broker),
            str(one.session),
            # As Text, since a login may contain what looks like markup.
            Text(printable(one.principal) or "-"),
            Text(one.address),
            short(one.in_per_second),
            short(one.out_per_second),
            *(f"{count:,}" if is_wide else short(count) for count in (one.waiting, one.subscriptions)),
            one.state,
        )
    return table


def short(value: float) -> str:
    """Format a number in four or five characters: 999, 1.5k, 23M."""
    unit = 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1_000
        unit += 1
    return f"{value:.1f}{_UNITS[unit]}" if unit and value < 10 else f"{value:.0f}{_UNITS[unit]}"
