"""`postroad broker`: run one broker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json

if TYPE_CHECKING:
    from postroad.config import BrokerConfig
    from postroad.server import Service

__all__ = ["LogLevel", "broker"]


class LogLevel(StrEnum):
    """What brokers log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line of the log is written."""

    JSON = "json"
    TEXT = "text"


class EventLoop(StrEnum):
    """What the broker runs on."""

    AUTO = "auto"
    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


def broker(
    config: Annotated[Path | None, typer.Option(help="A TOML file with the settings; options come before it.")] = None,
    number: Annotated[int | None, typer.Option(help="The broker's number, part of every message id.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port for STOMP; 0 takes a free one.")] = None,
    websocket_port: Annotated[int | None, typer.Option(help="The port for STOMP over WebSocket.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="The port for health, status and metrics.")] = None,
    data: Annotated[str | None, typer.Option(help="The directory for what must survive a restart.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(metavar="FORMAT", help="json or text.")] = None,
    event_loop: Annotated[
        EventLoop | None, typer.Option(metavar="LOOP", help="auto (uvloop if installed), uvloop or asyncio.")
    ] = None,
    join_seconds: Annotated[
        float | None, typer.Option(help="How long to wait for the network before clients can connect.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Prints one line when clients can connect; logs go to stderr."""
    from postroad.server import run_broker
    from postroad.server.directories import warn_of_exposed_secrets
    from postroad.server.logs import log_to_stderr

    given = {
        "number": number,
        "host": host,
        "port": port,
        "websocket_port": websocket_port,
        "admin_port": admin_port,
        "data": data,
        "log_level": log_level,
        "log_format": log_format,
        "event_loop": event_loop,
    }
    before = {
        name: str(value) if isinstance(value, StrEnum) else value for name, value in given.items() if value is not None
    }
    chosen = settings(config, before, join_seconds)

    def ready(service: Service) -> None:
        where = addresses(service)
        if as_json:
            echo_json({"broker": chosen.number, **where})
        else:
            typer.echo(f"broker {chosen.number} is ready: {', '.join(where.values())}")

    log_to_stderr(chosen.log_level, form=chosen.log_format)
    warn_of_exposed_secrets(chosen, config)
    read = None if config is None else lambda: settings(config, before, join_seconds)
    raise typer.Exit(run_broker(chosen, ready, read))


def settings(config: Path | None, given: dict[str, Any], join_seconds: float | None = None) -> BrokerConfig:
    """Return the settings of a file, if any, overridden by the options."""
    import msgspec

    from postroad.config import BrokerConfig, ConfigError, read_config
    from postroad.config.mistakes import explained

    base = BrokerConfig() if config is None else read_config(config)
    merged = msgspec.to_builtins(base) | given
    if join_seconds is not None:
        if merged["network"] is None:
            raise ConfigError(
                "--join-seconds is for a broker of a network, and these settings have no [network]: leave it out"
            )
        merged["network"]["join_seconds"] = join_seconds
    try:
        return msgspec.convert(merged, BrokerConfig)
    except msgspec.ValidationError as error:
        problem = explained(error, BrokerConfig)
        option = next((name for name in given if f"`$.{name}`" in problem), None)
        if option is not None:
            problem = problem.removeprefix("at the top: ").removesuffix(f" (at `$.{option}`)")
            problem = problem.removeprefix(f"{option}: ")
            problem = f"--{option.replace('_', '-')} {given[option]}: {problem}"
        raise ConfigError(f"{problem}; see `postroad broker --help`") from None


def addresses(service: Service) -> dict[str, str]:
    """Return the addresses to connect to."""
    config = service.config
    host = f"[{config.host}]" if ":" in config.host else config.host
    admin_host = f"[{config.admin_host}]" if ":" in config.admin_host else config.admin_host
    secure = "s" if config.tls else ""
    found = {"stomp": f"stomp{secure}://{host}:{service.port}"}
    if config.websocket_port is not None:
        found["websocket"] = f"ws{secure}://{host}:{service.websocket_port}"
    if config.admin_port is not None:
        found["admin"] = f"http{'s' if config.admin_tls else ''}://{admin_host}:{service.admin_port}"
    return found
