"""What a running network leaves in its data directory, so that other terminals find it.

DIR/network.json              this file: there as long as the network runs
DIR/network.lock              held by the process that watches the brokers
DIR/restart.json              somebody wants the brokers restarted, one at a time
DIR/brokers/N/broker.toml     the settings of broker N
DIR/brokers/N/broker.log      what it printed
DIR/brokers/N/data            what must survive a restart
DIR/trail                     where messages went, of all brokers
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it runs
from typing import TYPE_CHECKING

import msgspec

from postroad.network.errors import NetworkError
from postroad.network.processes import ProcessMark, is_alive
from postroad.trail.access import AccessError, append_to, claim, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LOOPBACK", "BrokerEntry", "NetworkState", "Place", "RestartProgress", "place_of"]

log = logging.getLogger("postroad.network")

STATE_VERSION = 1
LOOPBACK = "127.0.0.1"


class BrokerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a running network.

    Attributes:
        number: its number.
        address: where clients connect.
        link_port: where other brokers connect.
        admin_port: of its admin endpoint.
        admin_host: at which address.
        admin_tls: whether its admin endpoint speaks TLS.
        links: how many the plan gives it.
        process: its process; None before it is started.
        restarts: how often the watcher started it again.
        given_up: it died too often, and the watcher starts it no more.
    """

    number: int
    address: str
    link_port: int
    admin_port: int
    links: int
    process: ProcessMark | None = None
    restarts: int = 0
    given_up: bool = False
    admin_host: str = LOOPBACK
    admin_tls: bool = False

    @property
    def admin(self) -> str:
        """The address of its admin endpoint."""
        host = f"[{self.admin_host}]" if ":" in self.admin_host else self.admin_host
        return f"http{'s' if self.admin_tls else ''}://{host}:{self.admin_port}"


class RestartProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rolling restart has come.

    Attributes:
        request: which one.
        brokers: those to be restarted, in order.
        done: how many of them are, and had all links and ways again.
        broker: the one that is being restarted; 0 for none.
        step: what happens to it.
        failure: why it went no further; empty if it did not fail.
        finished: whether nothing more will happen.
    """

    request: str
    brokers: tuple[int, ...]
    done: int = 0
    broker: int = 0
    step: str = ""
    failure: str = ""
    finished: bool = False


class NetworkState(msgspec.Struct, frozen=True, kw_only=True):
    """A running network.

    Attributes:
        version: of this file.
        name: of the network.
        strategy: its routing strategy.
        plan: where its plan is.
        watcher: the process that started the brokers and watches them.
        directory: where clients ask for brokers; empty until that is open.
        up: whether all brokers have once been ready and linked.
        brokers: all of them.
        restart: the last rolling restart; None if there was none.
        admin_token_file: with the token of the admin endpoints; empty for none.
        admin_ca: the authority of the certificates of the admin endpoints; empty if they have no certificates.
    """

    version: int = STATE_VERSION
    name: str
    strategy: str
    plan: str
    watcher: ProcessMark
    directory: str = ""
    up: bool = False
    brokers: tuple[BrokerEntry, ...] = ()
    restart: RestartProgress | None = None
    admin_token_file: str = ""
    admin_ca: str = ""

    def running(self) -> list[BrokerEntry]:
        """The brokers whose processes live."""
        return [each for each in self.brokers if each.process is not None and is_alive(each.process)]


class Place(msgspec.Struct, frozen=True):
    """The data directory of a network."""

    root: Path

    @property
    def state_file(self) -> Path:
        """Where the state is."""
        return self.root / "network.json"

    @property
    def restart_file(self) -> Path:
        """Where a rolling restart is asked for; it continues for as long as the file is there."""
        return self.root / "restart.json"

    @property
    def lock_file(self) -> Path:
        """Held as long as the network is watched."""
        return self.root / "network.lock"

    @property
    def trail(self) -> Path:
        """Where the brokers write what passed, each its own files."""
        return self.root / "trail"

    @property
    def watcher_log(self) -> Path:
        """What a detached watcher prints."""
        return self.root / "network.log"

    def config_file(self, broker: int) -> Path:
        """The settings of a broker."""
        return self.root / "brokers" / str(broker) / "broker.toml"

    def log_file(self, broker: int) -> Path:
        """What a broker printed."""
        return self.root / "brokers" / str(broker) / "broker.log"

    def data(self, broker: int) -> Path:
        """What must survive a broker's restart."""
        return self.root / "brokers" / str(broker) / "data"

    def claim(self, group: str | None = None) -> None:
        """Make the directory, for this user alone or for a group too.

        Raises:
            NetworkError: it cannot be made, or not be given to the group.
        """
        try:
            complaint = claim(self.root, group)
        except AccessError as error:
            raise NetworkError(str(error)) from None
        except OSError as error:
            raise NetworkError(f"{self.root}: cannot be used as a data directory ({error.strerror})") from None
        if complaint:
            log.warning("%s", complaint)

    @contextlib.contextmanager
    def held(self, group: str | None = None) -> Iterator[None]:
        """Lock the directory for this process; the system releases the lock when the process ends, however it ends.

        Args:
            group: of the system, that may read it; None for the user alone.

        Raises:
            NetworkError: another process has it.
        """
        self.claim(group)
        try:
            lock = os.fdopen(append_to(self.lock_file), "a")
        except OSError as error:
            raise NetworkError(f"{self.root}: cannot be used as a data directory ({error.strerror})") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NetworkError(
                    f"a network is up in {self.root}; see it with `postroad network status {self.root}`, "
                    f"or stop it with `postroad network stop {self.root}`"
                ) from None
            yield

    def write(self, state: NetworkState) -> None:
        """Replace the state as a whole: no reader ever sees half of it."""
        write_private(self.state_file, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")

    def read(self) -> NetworkState | None:
        """The state; None when no network runs here. One that was killed left it too.

        Raises:
            NetworkError: the file cannot be read, is not one of ours, or not this user's.
        """
        try:
            with self.state_file.open("rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NetworkError(
                f"{self.state_file}: cannot be read ({error.strerror}); name the plan or the data directory of a "
                "network, as the user that runs it"
            ) from None
        # It names processes, and `stop` ends them: a file written by another user must not end one's own processes.
        if owner not in (os.geteuid(), 0):
            raise NetworkError(
                f"{self.state_file} belongs to the user {owner}, and this process runs as {os.geteuid()}; "
                "act as that user"
            )
        try:
            state = msgspec.json.decode(data, type=NetworkState)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise NetworkError(
                f"{self.state_file} cannot be understood ({error}); remove it if no broker runs"
            ) from None
        if state.version != STATE_VERSION:
            raise NetworkError(f"{self.state_file} is of version {state.version}; this program reads {STATE_VERSION}")
        return state


def place_of(given: Path, data: Path | None = None) -> Place:
    """The data directory of a plan, or the directory itself: beside `plan.toml` it is `plan.network`."""
    if data is not None:
        return Place(data)
    return Place(given if given.is_dir() else given.with_suffix(".network"))
