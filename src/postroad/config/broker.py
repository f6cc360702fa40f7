"""The settings of a broker: a TOML file, checked as a whole; an error names the place and what would do."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path  # noqa: TC003 - read_config is part of the public API, and its types are looked up
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from postroad.broker import Limits, QueueSettings
from postroad.config.mistakes import explained
from postroad.config.network import NetworkConfig, is_loopback
from postroad.config.tracking import TrackingConfig
from postroad.errors import PostroadError
from postroad.protocols.stomp.limits import MAX_BODY_BYTES, MAX_HEADER_BYTES, MAX_HEADERS, StompLimits
from postroad.selectors import TopicError, TopicPattern
from postroad.store import StoreSettings
from postroad.tracking import TrackingError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BrokerConfig", "ConfigError", "FrameConfig", "TlsConfig", "check_admin", "read_config"]

_DESTINATION_PREFIX = "/topic/"

# A day: nobody waits longer for a client, and timers of event loops do not take every number.
MAX_CONNECT_SECONDS = 86_400

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class ConfigError(PostroadError):
    """The settings are not usable."""


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS for everything that clients connect to.

    Attributes:
        certificate: a PEM file: the broker's certificate, then those that vouch for it.
        key: a PEM file with the key of the certificate, without a password.
        client_ca: a PEM file; clients must then show a certificate that one of these vouches for.
    """

    certificate: str
    key: str
    client_ca: str | None = None


class FrameConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How large a frame of a client may be; the defaults are the limits of the message format.

    Attributes:
        header_bytes: all header lines of a frame.
        headers: how many lines.
        body_bytes: the body.
    """

    header_bytes: Annotated[int, msgspec.Meta(ge=256, le=MAX_HEADER_BYTES)] = MAX_HEADER_BYTES
    headers: Annotated[int, msgspec.Meta(ge=8, le=MAX_HEADERS)] = MAX_HEADERS
    body_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)] = MAX_BODY_BYTES

    def limits(self) -> StompLimits:
        """As the codec wants them."""
        return StompLimits(header_bytes=self.header_bytes, headers=self.headers, body_bytes=self.body_bytes)


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker.

    Attributes:
        number: its number in the plan; part of every message id, never given to another broker.
        host: the address to listen on. Only this machine can connect by default.
        port: the port for STOMP over TCP; 0 takes a free one.
        websocket_port: the port for STOMP over WebSocket; none without.
        websocket_origins: the web pages that may connect besides those from the broker's own host, such as
            "https://example.org"; "*" lets all pages.
        admin_token_file: a file with the token that the admin endpoint asks for; none without.
        admin_port: the port for health, status and metrics; none without.
        admin_host: the address of that port. One that other machines reach needs `admin_token_file` and `admin_tls`.
        admin_tls: certificates; the admin endpoint then speaks TLS and nothing else.
        data: the directory for what must survive a restart.
        group: the group of the system that may read data and trail; without, only the user that runs the broker may.
        users_file: logins and hashed passcodes, as `postroad users` writes them; without, everybody is let in, and a
            login proves nothing.
        tls: certificates; with them both STOMP ports speak TLS and nothing else.
        limits: what the broker keeps at most.
        frames: how large a frame of a client may be.
        heart_beat_ms: the shortest heart-beat the broker sends and asks for; a client chooses a longer one, or none.
        connect_seconds: how long a new connection may take until its CONNECT has come.
        push_back: whether subscribers may keep publishers waiting, for as long as they like; not where they are not
            trusted.
        log_level: what is logged: this and worse.
        log_format: `json` logs an object a line, `text` a line for people.
        event_loop: "auto" takes uvloop when it is installed.
        network: the other brokers; none without.
        tracking: the record of where messages went.
        store: how messages that have to wait are kept on disk.
        queues: how queues treat messages that come back to them.
    """

    number: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 1
    host: str = "127.0.0.1"
    port: Port = 61613
    websocket_port: Port | None = None
    websocket_origins: list[str] = []
    admin_port: Port | None = None
    admin_host: str = "127.0.0.1"
    admin_tls: TlsConfig | None = None
    admin_token_file: str | None = None
    data: str = "postroad-data"
    group: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    users_file: str | None = None
    tls: TlsConfig | None = None
    limits: Limits = msgspec.field(default_factory=Limits)
    frames: FrameConfig = msgspec.field(default_factory=FrameConfig)
    heart_beat_ms: Annotated[int, msgspec.Meta(ge=10)] = 1_000
    connect_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_CONNECT_SECONDS)] = 10.0
    push_back: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    event_loop: Literal["auto", "uvloop", "asyncio"] = "auto"
    network: NetworkConfig | None = None
    tracking: TrackingConfig = msgspec.field(default_factory=TrackingConfig)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    queues: QueueSettings = msgspec.field(default_factory=QueueSettings)


def read_config(path: Path) -> BrokerConfig:
    """Read a TOML file.

    Raises:
        ConfigError: it cannot be read, is not TOML, or a setting is unknown, of a wrong type, or contradicts others.
    """
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name another file with --config") from error
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: too many digits for Python, bytes that are not UTF-8, too deeply nested brackets.
        raise ConfigError(f"{path}: not TOML: {error}") from error
    if "users" in settings:
        raise ConfigError(f"{path}: {_plain_users(settings['users'], path)}")
    if place := _nul_in(settings):
        raise ConfigError(f"{path}: a text has a NUL character, which no setting may have (at `{place}`)")
    try:
        config = msgspec.convert(settings, BrokerConfig)
        config.tracking.histories()
    except TrackingError as error:
        raise ConfigError(f"{path}: $.tracking: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explained(error, BrokerConfig)}") from error
    for rule in config.store.retain:
        if mistake := _retained_mistake(rule.topic):
            raise ConfigError(f"{path}: [store.retain]: topic {rule.topic!r}: {mistake}")
    return config


def _nul_in(settings: object, place: str = "$") -> str:
    """Where a text has a NUL character; empty if none has. The system calls it an error of another kind."""
    if isinstance(settings, str):
        return place if "\0" in settings else ""
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(settings, dict):
        inner = ((f"{place}.{name}", value) for name, value in settings.items())
    elif isinstance(settings, list):
        inner = ((f"{place}[{number}]", value) for number, value in enumerate(settings))
    return next((found for below, value in inner if (found := _nul_in(value, below))), "")


def _retained_mistake(topic: str) -> str:
    """Why nothing could be retained by a pattern; empty for a good one."""
    if topic.startswith(_DESTINATION_PREFIX):
        return f"write it without {_DESTINATION_PREFIX}"
    try:
        TopicPattern.parse(topic)
    except TopicError as error:
        return str(error)
    return ""


def check_admin(config: BrokerConfig) -> None:
    """An admin endpoint that other machines reach asks for a token, and nobody on the way reads it.

    Raises:
        ConfigError: the token or TLS is missing.
    """
    if config.admin_port is None or is_loopback(config.admin_host):
        return
    lacking = [
        setting
        for setting, value in (("admin_token_file", config.admin_token_file), ("admin_tls", config.admin_tls))
        if value is None
    ]
    if lacking:
        raise ConfigError(
            f"admin_host {config.admin_host} can be reached from other machines, and whoever asks there may close "
            f"sessions and delete queues: set {' and '.join(lacking)}, or leave admin_host at 127.0.0.1"
        )


def _plain_users(users: object, path: Path) -> str:
    """A warning about passcodes in plain text, which every reader of the settings can see."""
    names = list(users) if isinstance(users, dict) else []
    file = path.with_name("users.toml")
    first = shlex.quote(str(names[0])) if names else "LOGIN"
    more = f", and the same for {len(names) - 1} more" if len(names) > 1 else ""
    return (
        "passcodes do not stand in the settings any more. Hash them into a file of their own with "
        f"`postroad users add {first} --file {shlex.quote(str(file))}`{more}; then put "
        f'users_file = "{file}" in place of [users]'
    )
