"""Brokers as processes: recorded, started, stopped, and reaped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from postroad.config import Credentials, TlsConfig, broker_config
from postroad.network.configuration import write_config
from postroad.network.ports import free_ports
from postroad.network.processes import is_alive, mark_of, send_signal
from postroad.network.state import LOOPBACK, BrokerEntry
from postroad.trail import TrailError, note_brokers
from postroad.trail.access import append_to

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from postroad.network.nursery import Nursery
    from postroad.network.processes import ProcessMark
    from postroad.network.run import RunOptions
    from postroad.network.state import Place
    from postroad.topology import Plan

__all__ = [
    "BROKER_PROGRAM",
    "STOP_SECONDS",
    "RunningProcess",
    "admin_authority",
    "command_line",
    "end",
    "how_it_ended",
    "launch",
    "log_tail",
    "prepare",
    "resolved",
    "restart_command",
]

# A broker gives its clients 5 s to disconnect, and its neighbours up to 20 s; after this time it hangs.
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.05
# The end of a log that an error shows: a traceback fits.
TAIL_BYTES = 4_000
TAIL_LINES = 12

# Nothing is imported from the working directory (-P). A reload that comes while the program is still loading must not
# end it.
BROKER_PROGRAM = (
    "-P",
    "-c",
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from postroad.cli import main; main()",
)


class RunningProcess(Protocol):
    """A broker's process, started by this or another process."""

    @property
    def pid(self) -> int:
        """Its number."""

    async def wait(self) -> int:
        """Its exit code when it has ended; minus the number of the signal that ended it."""


def prepare(plan: Plan, place: Place, options: RunOptions) -> list[BrokerEntry]:
    """Write the settings of every broker; none runs yet."""
    taken = {port for broker in plan.brokers for port in (broker.port, broker.link_port)}
    graph = plan.graph()
    entries = []
    if options.tracking.recorder != "none":
        # Brokers start even if a trail cannot be written, and report it themselves.
        with contextlib.suppress(TrailError):
            note_brokers(Path(options.tracking.trail or place.trail), [broker.number for broker in plan.brokers])
    ports = dict(zip([broker.number for broker in plan.brokers], free_ports(len(plan.brokers), taken), strict=True))
    scheme = "https://" if options.admin_tls else ""
    hosts = {broker.number: broker.host if options.admin_tls else LOOPBACK for broker in plan.brokers}
    admins = {str(number): f"{scheme}{_bracketed(hosts[number])}:{port}" for number, port in ports.items()}
    for broker in plan.brokers:
        number, admin_port = broker.number, ports[broker.number]
        config = broker_config(
            plan,
            number,
            place.data(number).resolve(),
            secret=options.secret,
            admin_port=admin_port,
            credentials=options.credentials,
        )
        trail = options.tracking.trail or str(place.trail.resolve())
        tracking = msgspec.structs.replace(options.tracking, trail=trail)
        assert config.network is not None
        settings = msgspec.structs.replace(
            config,
            network=msgspec.structs.replace(config.network, admins=admins),
            log_level=options.log_level,
            tracking=tracking,
            group=options.group,
            users_file=resolved(options.users_file),
            admin_token_file=resolved(options.admin_token_file),
            admin_tls=_admin_tls(options, number),
            admin_host=hosts[number],
        )
        write_config(place.config_file(number), settings)
        entries.append(
            BrokerEntry(
                number=number,
                address=f"{'stomp' if settings.tls is None else 'stomps'}://{_bracketed(broker.host)}:{broker.port}",
                link_port=broker.link_port,
                admin_port=admin_port,
                links=len(graph.neighbours(number)),
                admin_host=hosts[number],
                admin_tls=options.admin_tls,
            )
        )
    return entries


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def admin_authority(options: RunOptions) -> str | None:
    """The authority of the certificates of the admin endpoints; None if they have no certificates."""
    folder = resolved(options.credentials)
    return Credentials(folder).authority if options.admin_tls and folder is not None else None


def _admin_tls(options: RunOptions, number: int) -> TlsConfig | None:
    folder = resolved(options.credentials)
    if not options.admin_tls or folder is None:
        return None
    files = Credentials(folder).tls(number)
    return TlsConfig(certificate=files.certificate, key=files.key)


def resolved(path: Path | None) -> str | None:
    """A path that means the same file wherever a broker is started again."""
    return None if path is None else str(path.resolve())


def command_line(place: Place, broker: int, join_seconds: float = 0.0) -> list[str]:
    """How a broker is started.

    Args:
        place: the data directory of the network.
        broker: which one.
        join_seconds: how long it waits for the network before clients can connect.
    """
    joining = ("--join-seconds", f"{join_seconds:g}") if join_seconds else ()
    return [sys.executable, *BROKER_PROGRAM, "broker", "--config", str(place.config_file(broker)), *joining]


async def launch(
    place: Place, entry: BrokerEntry, join_seconds: float = 0.0, nursery: Nursery | None = None
) -> tuple[RunningProcess, BrokerEntry]:
    """Start a broker; it may take a while until it answers.

    Args:
        place: the data directory of the network.
        entry: which broker.
        join_seconds: how long it waits for the network before clients can connect.
        nursery: forks it, if it can.
    """
    command = command_line(place, entry.number, join_seconds)
    with os.fdopen(append_to(place.log_file(entry.number)), "ab") as output:
        process: RunningProcess | None = None if nursery is None else await nursery.fork(command, output.fileno())
        if process is None:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal goes only to the watching process, which then stops the brokers in order.
                start_new_session=True,
            )
    return process, msgspec.structs.replace(entry, process=mark_of(process.pid))


async def end(marks: Collection[ProcessMark], seconds: float = STOP_SECONDS) -> int:
    """Ask processes to stop, and end those that have not after a while; returns how many had to be ended."""
    for mark in marks:
        send_signal(mark, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _gone(marks)
            return 0
    stuck = [mark for mark in marks if send_signal(mark, signal.SIGKILL)]
    await _gone(stuck)
    return len(stuck)


async def _gone(marks: Collection[ProcessMark]) -> None:
    # They need not be children of this process, so nothing tells when they end.
    while any(is_alive(mark) for mark in marks):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def log_tail(path: Path) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
            lines: Sequence[str] = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-TAIL_LINES:])


def restart_command(place: Place, broker: int) -> str:
    """How to start a broker that died."""
    return f"postroad broker --config {place.config_file(broker)}"
