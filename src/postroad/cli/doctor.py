"""`postroad doctor`: finds what is wrong with this machine or these settings, and what to do about it."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad import __version__
from postroad.cli.admin_requests import AdminAuthority, TokenFile  # noqa: TC001 - typer reads the annotations
from postroad.cli.option_sources import is_written
from postroad.cli.output import AsJson, echo_json
from postroad.cli.symptoms import Health, Symptom, network_symptoms
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.config import BrokerConfig

__all__ = ["doctor", "symptoms"]

# The trail of a busy day and the store of its subscribers; less is full soon.
LITTLE_DISK_BYTES = 2 * 1024**3
# Files that a broker has open besides the connections of its clients.
OTHER_FILES = 256
LIBRARIES = ("numpy", "numba", "llvmlite", "msgspec", "pyarrow")
EXIT_NOT_WELL = 1


def doctor(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="The settings of a broker; by default those without a file.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN|DIR|ADDRESS",
            help="Look at a running network too: its plan or data directory; or one broker: its admin address, or "
            "PLAN:N.",
        ),
    ] = None,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Look at versions, kernels, ports, directories, limits, Java and clocks, and say what to do about what is wrong.

    Ends with 0 if a broker can run, with 1 if something is bad.
    """
    from postroad.cli.brokers import settings

    for name, option in (("admin_token_file", "--admin-token-file"), ("admin_ca", "--admin-ca")):
        if network is None and is_written(context, name):
            raise PostroadError(f"{option} is for a running network: name it with --network, or leave {option} out")
    try:
        chosen = settings(config, {})
        found = list(symptoms(chosen, config))
    except PostroadError as error:
        found = [Symptom("settings", Health.BAD, str(error), "mend the file, then ask again")]
    else:
        if network is not None:
            found += network_symptoms(network, admin_token_file, admin_ca, chosen.tracking.broker_skew_ms)
    if as_json:
        echo_json({"findings": [one._asdict() for one in found]})
    else:
        for one in found:
            typer.echo(f"{one.health.value:<9}{one.what}: {one.found}")
            if one.advice:
                typer.echo(f"{'':<9}  {one.advice}")
    if any(one.health is Health.BAD for one in found):
        raise typer.Exit(EXIT_NOT_WELL)


def symptoms(config: BrokerConfig, path: Path | None) -> Iterator[Symptom]:
    """Yield all checks for a broker with these settings."""
    yield _versions()
    yield _kernels(config)
    yield from _ports(config)
    yield from _directory("data", Path(config.data))
    if config.tracking.trail is not None and config.tracking.recorder != "none":
        yield from _directory("tracking.trail", Path(config.tracking.trail))
    if path is not None:
        yield from _modes(config, path)
    yield _open_files(config)
    yield _spark()


def _versions() -> Symptom:
    from importlib.metadata import PackageNotFoundError, version

    found = [f"postroad {__version__}", f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            return Symptom("versions", Health.BAD, f"{library} is not installed", f"pip install {library}")
    return Symptom("versions", Health.GOOD, ", ".join(found))


def _kernels(config: BrokerConfig) -> Symptom:
    from postroad.kernels import missing_kernels
    from postroad.server import spared_kernels

    missing = len(missing_kernels(spared_kernels(config)))
    if missing:
        advice = "postroad warm compiles them; otherwise the first start does, in about half a minute"
        return Symptom("kernels", Health.DOUBTFUL, f"{missing} are not compiled for this machine", advice)
    return Symptom("kernels", Health.GOOD, "all that these settings call for are compiled for this machine")


def _ports(config: BrokerConfig) -> Iterator[Symptom]:
    wanted = [("port", config.host, config.port), ("websocket_port", config.host, config.websocket_port)]
    wanted.append(("admin_port", config.admin_host, config.admin_port))
    if config.network is not None:
        wanted.append(("network.port", config.network.host, config.network.port))
    for setting, host, port in wanted:
        if not port:
            continue
        try:
            with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                yield Symptom(setting, Health.GOOD, f"{host}:{port} is free")
        except OSError as error:
            advice = "if that is a broker, all is well; else stop what listens there, or choose another port"
            yield Symptom(setting, Health.DOUBTFUL, f"{host}:{port} cannot be opened ({error.strerror})", advice)


def _directory(setting: str, data: Path) -> Iterator[Symptom]:
    existing = data
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        advice = "make it writable for the user that runs the broker, or name another with --data"
        yield Symptom(setting, Health.BAD, f"{existing} cannot be written", advice)
        return
    free = shutil.disk_usage(existing).free
    found = f"{data}: {free / 1024**3:,.1f} GB free"
    if free < LITTLE_DISK_BYTES:
        yield Symptom(setting, Health.DOUBTFUL, found, "make room: a broker that cannot write its record is degraded")
    else:
        yield Symptom(setting, Health.GOOD, found)


def _modes(config: BrokerConfig, path: Path) -> Iterator[Symptom]:
    """Yield files with secrets that are not there, or that others may read or change."""
    from postroad.server.directories import file_exposure, secret_files

    for file, what in secret_files(config, path):
        try:
            file.stat()
        except OSError as error:
            yield Symptom("files", Health.BAD, f"{file}: {error.strerror}", "name a file that is there")
            continue
        who, mend = file_exposure(file)
        if who:
            yield Symptom("files", Health.DOUBTFUL, f"{file} holds {what}, and {who}", f"chmod {mend} {file}")


def _open_files(config: BrokerConfig) -> Symptom:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = config.limits.sessions + config.limits.strangers + OTHER_FILES
    found = f"{most:,} may be open, {needed:,} are needed for limits.sessions = {config.limits.sessions:,}"
    if most != resource.RLIM_INFINITY and most < needed:
        advice = f"ulimit -n {needed}, or LimitNOFILE={needed} in the unit of systemd; or set limits.sessions lower"
        return Symptom("open files", Health.DOUBTFUL, found, advice)
    return Symptom("open files", Health.GOOD, found)


def _spark() -> Symptom:
    from importlib.metadata import PackageNotFoundError, version

    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        return Symptom("Spark", Health.GOOD, "not installed; only `postroad pipeline` needs it (postroad[spark])")
    from postroad.pipeline import check_java

    try:
        check_java()
    except PostroadError as error:
        return Symptom("Spark", Health.DOUBTFUL, f"pyspark {spark} without Java", str(error))
    return Symptom("Spark", Health.GOOD, f"pyspark {spark} and a Java that it runs on")
