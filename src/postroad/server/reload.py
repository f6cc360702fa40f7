"""Reading the settings again while the broker runs: what can change does, and the log names what needs a restart."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.config import ConfigError, check_admin, load_token, load_users
from postroad.errors import PostroadError
from postroad.server.admin_client import AdminClient
from postroad.server.logs import log_to_stderr
from postroad.server.named_files import file_digests
from postroad.server.tls import console_context, link_tls, server_context
from postroad.sessions import Terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig
    from postroad.server.admin import Admin
    from postroad.server.login_gate import Gate
    from postroad.server.service import Service
    from postroad.sessions import Audit

__all__ = ["RELOADED", "Reload", "terms_of"]

log = logging.getLogger("postroad.server")

# Settings that count from a reload on. Those of sessions (heart-beats, frames, TLS, push-back) count for clients that
# connect from then on.
RELOADED = frozenset(
    {
        "admin_tls",
        "admin_token_file",
        "connect_seconds",
        "heart_beat_ms",
        "limits",
        "log_format",
        "log_level",
        "push_back",
        "tls",
        "users_file",
        "websocket_origins",
    }
)
# Within `limits`: the table of known publishers is made once.
FIXED_LIMITS = frozenset({"publishers_kept"})
CHANGED_USER = "this user was removed or has another passcode now; log in again"


def terms_of(config: BrokerConfig, gate: Gate, audit: Audit) -> Terms:
    """What holds for every session."""
    return Terms(
        gate=gate,
        audit=audit,
        heart_beat_ms=config.heart_beat_ms,
        connect_ms=int(config.connect_seconds * 1_000),
        push_back=config.push_back,
    )


class Reload:
    """Carries out reloads, one after the other.

    Args:
        service: the broker.
        gate: who may log in.
        admin: the endpoint that uses the token.
    """

    def __init__(self, service: Service, gate: Gate, admin: Admin) -> None:
        self._service = service
        self._gate = gate
        self._admin = admin
        # To tell which files have other contents, such as a renewed certificate.
        self._digests = file_digests(service.config)
        # So that the last to be asked for is the last to be read.
        self._lock = asyncio.Lock()

    async def run(self, read: Callable[[], BrokerConfig] | None = None) -> None:
        """Read settings, users, token and certificates again. What cannot be read changes nothing; the log says so.

        Args:
            read: reads the settings; None if there is no file, and only the files that they name are read again.
        """
        async with self._lock:
            before = self._service.config
            try:
                after = before if read is None else await asyncio.to_thread(read)
                needs_restart = fixed_changes(before, after)
                config = with_changes(before, after)
                check_admin(config)
                users = (
                    None if config.users_file is None else await asyncio.to_thread(load_users, Path(config.users_file))
                )
                token = None if config.admin_token_file is None else load_token(Path(config.admin_token_file))
                links = None if config.network is None else link_tls(config.network.tls)
                contexts = server_context(config.tls), server_context(config.admin_tls, "admin_tls"), links
                others = AdminClient(token or "", console_context(config.network, links))
                digests = await asyncio.to_thread(file_digests, config)
                if (users is None) != (self._gate.users is None):
                    raise ConfigError("users_file: whether logins are checked at all can change at a restart only")
            except PostroadError as error:
                log.error("settings not reloaded", extra={"reason": str(error)})
                return
            # From here on nothing can fail: all of it counts, or nothing.
            self._service.take_config(config)
            self._service.take_tls(*contexts)
            self._admin.take_token(token, others)
            self._service.dispatcher.core.take_limits(config.limits)
            self._service.clients.take_limits(config.limits)
            self._service.clients.terms = terms_of(config, self._gate, self._service.audit)
            if (before.log_level, before.log_format) != (config.log_level, config.log_format):
                log_to_stderr(config.log_level, form=config.log_format)
            if users is not None:
                self._take_users(users)
            log.info("settings reloaded", extra={"changed": self._changed(before, config, digests)})
            self._digests = digests
            if needs_restart:
                advice = "restart the broker, or `postroad network restart --rolling` a network"
                log.warning("settings need a restart", extra={"settings": needs_restart, "advice": advice})

    def _changed(self, before: BrokerConfig, after: BrokerConfig, digests: dict[str, bytes]) -> list[str]:
        """Return the settings with other values, and those whose files have other contents under the same name."""
        settings = [name for name in after.__struct_fields__ if getattr(before, name) != getattr(after, name)]
        files = [setting for setting, digest in digests.items() if self._digests.get(setting, digest) != digest]
        return settings + [setting for setting in files if setting.split(".")[0] not in settings]

    def _take_users(self, users: dict[str, str]) -> None:
        before = self._gate.users or {}
        self._gate.replace_users(users)
        gone = {login for login, record in before.items() if users.get(login) != record}
        self._service.clients.close_logins(gone, CHANGED_USER)
        log.info("users reloaded", extra={"users": len(users), "changed_or_removed": len(gone)})


def fixed_changes(before: BrokerConfig, after: BrokerConfig) -> list[str]:
    """The settings that differ and cannot change while the broker runs, as the file names them."""
    found = [
        name
        for name in before.__struct_fields__
        if name not in RELOADED and getattr(before, name) != getattr(after, name)
    ]
    found += [f"limits.{name}" for name in FIXED_LIMITS if getattr(before.limits, name) != getattr(after.limits, name)]
    # TLS where there was none, or the other way round, is another kind of port.
    found += [name for name in ("tls", "admin_tls") if _appears(getattr(before, name), getattr(after, name))]
    return sorted(found)


def with_changes(before: BrokerConfig, after: BrokerConfig) -> BrokerConfig:
    """The settings with what can change while the broker runs."""
    changes: dict[str, Any] = {name: getattr(after, name) for name in RELOADED}
    fixed = {name: getattr(before.limits, name) for name in FIXED_LIMITS}
    changes["limits"] = msgspec.structs.replace(after.limits, **fixed)
    for name in ("tls", "admin_tls"):
        if _appears(getattr(before, name), getattr(after, name)):
            changes[name] = getattr(before, name)
    return msgspec.structs.replace(before, **changes)


def _appears(before: object | None, after: object | None) -> bool:
    return (before is None) != (after is None)
