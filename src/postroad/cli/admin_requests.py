"""Requests to the admin endpoint of a running broker, or to the directory of a network."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from postroad.errors import PostroadError

if TYPE_CHECKING:
    import ssl

    from postroad.client import HttpReply
    from postroad.network import BrokerEntry

__all__ = [
    "AdminAddress",
    "AdminAnswer",
    "AdminAuthority",
    "AdminEndpoint",
    "LocalNetwork",
    "NeedsTokenError",
    "NotThereError",
    "TokenFile",
    "admin_base",
    "admin_endpoint",
    "admin_request",
    "check_token_stays_secret",
    "is_one_of_network",
    "local_network",
    "operator_name",
    "read_token",
    "trusting",
]

AdminAddress = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="ADDRESS|PLAN:N",
        envvar="POSTROAD_ADMIN",
        help="The broker's admin address, https://HOST:PORT where it speaks TLS; or broker N of a network that runs.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="POSTROAD_ADMIN_TOKEN_FILE", help="The token of the broker's admin endpoint, if it asks."),
]
AdminAuthority = Annotated[
    Path | None,
    typer.Option(
        "--admin-ca",
        metavar="FILE",
        envvar="POSTROAD_ADMIN_CA",
        help="A PEM file with the authority of the admin endpoint's certificate; by default the system's authorities.",
    ),
]

PLAN_SUFFIX = ".toml"
# Longer than the broker at the other end allows for its own requests.
ASK_SECONDS = 65.0
# A status lists up to 10,000 subscriptions with some 300 bytes each.
MOST_BYTES = 16 << 20


class NotThereError(PostroadError):
    """The endpoint has no such page."""


class NeedsTokenError(PostroadError):
    """The endpoint asks for a token, or for another one."""


_REFUSALS: dict[int, type[PostroadError]] = {
    HTTPStatus.NOT_FOUND: NotThereError,
    HTTPStatus.UNAUTHORIZED: NeedsTokenError,
}


class AdminAnswer(dict[str, Any]):
    """The fields of a response; a missing field means that another program responded."""

    def __init__(self, base: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._base = base

    def __missing__(self, key: str) -> Any:
        raise PostroadError(f"{self._base}: the answer is not that of a broker of this version (it has no {key!r})")


def read_token(path: Path | None) -> str:
    """Return the token in a file; empty without a file.

    Raises:
        PostroadError: it cannot be read.
    """
    if path is None:
        return ""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PostroadError(f"--admin-token-file {path}: cannot be read ({error})") from None


class LocalNetwork(NamedTuple):
    """A network that runs on this machine: the addresses of its brokers, and what they require."""

    brokers: tuple[BrokerEntry, ...]
    token_file: Path | None
    authority: Path | None


def local_network(where: Path, token_file: Path | None, authority: Path | None) -> LocalNetwork:
    """Return the network of a plan or a data directory; options override what its state says.

    Raises:
        PostroadError: there is none.
    """
    import os

    from postroad.network import find, place_of

    state = find(place_of(where))
    # Another user may look too, and sees what needs no token.
    if token_file is None and state.admin_token_file and os.access(state.admin_token_file, os.R_OK):
        token_file = Path(state.admin_token_file)
    if authority is None and state.admin_ca:
        authority = Path(state.admin_ca)
    return LocalNetwork(state.brokers, token_file, authority)


class AdminEndpoint(NamedTuple):
    """Where a broker is asked, and what that takes."""

    base: str
    token: str
    authority: Path | None


def admin_endpoint(given: str, token_file: Path | None, authority: Path | None) -> AdminEndpoint:
    """The endpoint of an address, or of a broker of a network of this machine: `plan.toml:2`.

    Raises:
        PostroadError: the token cannot be read; there is no such network or broker.
    """
    named, number = _named(given)
    if "://" in given or not (named.endswith(PLAN_SUFFIX) or Path(named).exists()):
        return AdminEndpoint(admin_base(given), read_token(token_file), authority)
    network = local_network(Path(named), token_file, authority)
    brokers = {str(entry.number): entry for entry in network.brokers}
    wanted = number or (next(iter(brokers)) if len(brokers) == 1 else "")
    if wanted not in brokers:
        problem = f"it has no broker {number}" if number else f"it has {len(brokers)} brokers"
        raise PostroadError(f"{given}: {problem}; name one of them, such as {named}:{next(iter(brokers))}")
    return AdminEndpoint(brokers[wanted].admin, read_token(network.token_file), network.authority)


def is_one_of_network(given: str) -> bool:
    """Return whether this is one broker of a network of this machine, `plan.toml:2`, and not an address."""
    named, number = _named(given)
    return bool(number) and "://" not in given and (named.endswith(PLAN_SUFFIX) or Path(named).exists())


def _named(given: str) -> tuple[str, str]:
    """The plan or data directory, and the number of the broker; empty without one."""
    path, _, number = given.rpartition(":")
    return (path, number) if path and number.isdigit() else (given, "")


def admin_base(address: str) -> str:
    """Return the address of an admin endpoint with its scheme."""
    if address.isascii() and address.isdigit():
        return f"http://127.0.0.1:{address}"
    return (address if "://" in address else f"http://{address}").rstrip("/")


def admin_request(
    base: str, path: str, token: str = "", method: str = "GET", authority: Path | None = None
) -> dict[str, Any]:
    """Return the JSON of a page.

    Args:
        base: the address of the admin endpoint.
        path: the page.
        token: what the endpoint asks for; empty for none.
        method: GET or DELETE.
        authority: a PEM file with the authority of its certificate; None for those that the system trusts.

    Raises:
        NotThereError: there is no such page.
        NeedsTokenError: the token is missing, or another one.
        PostroadError: there is no answer, or the request is refused.
    """
    import asyncio
    import json

    from postroad.client import AdminAccess, HttpError, StrangerError, admin_reply

    access = AdminAccess(token, None if authority is None else trusting(authority))
    check_token_stays_secret(base, token)

    async def ask() -> HttpReply:
        async with asyncio.timeout(ASK_SECONDS):
            return await admin_reply(base + path, MOST_BYTES, access, method)

    try:
        reply = asyncio.run(ask())
        if reply.status != HTTPStatus.OK:
            refusal = reply.body.decode(errors="replace").strip()
            if reply.status == HTTPStatus.UNAUTHORIZED:
                # The broker speaks of a header, to programs.
                refusal = f"{refusal}; here, give the file with --admin-token-file"
            raise _REFUSALS.get(reply.status, PostroadError)(f"{base}: {refusal}")
        fields = json.loads(reply.body)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        return AdminAnswer(base, fields)
    except StrangerError as error:
        raise PostroadError(f"{base}: {error}") from None
    # Any program may listen at the address, and may send anything.
    except (OSError, HttpError, ValueError, RecursionError) as error:
        raise PostroadError(f"{base}: no answer ({error}); {_advice(base, error)}") from None


def _advice(base: str, error: Exception) -> str:
    """What to do about an endpoint that does not answer."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "name who vouches for its certificate with --admin-ca"
    if isinstance(error, ConnectionRefusedError):
        return "is a broker running there? It has an admin endpoint if it is started with --admin-port, such as 8161"
    secure = "" if base.startswith("https:") else ", and https:// where it speaks TLS"
    return f"give the admin address of a running broker, such as 127.0.0.1:8161{secure}"


def operator_name() -> str:
    """Return who asks, for the log of the broker; the number of a user who has no name, as in many containers."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def trusting(authority: Path) -> ssl.SSLContext:
    """Return how to check the certificate of an endpoint that this authority has signed.

    Raises:
        PostroadError: the file cannot be read, or holds no certificate.
    """
    import ssl

    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ValueError) as error:
        raise PostroadError(f"--admin-ca {authority}: cannot be read ({error}); it is a PEM file") from None


def check_token_stays_secret(base: str, token: str) -> None:
    """Refuse to send a token to another machine without TLS.

    Raises:
        PostroadError: it would be.
    """
    if not token or not base.startswith("http://"):
        return
    from urllib.parse import urlsplit

    from postroad.config import is_loopback

    if not is_loopback(urlsplit(base).hostname or ""):
        raise PostroadError(f"{base}: the token could be read on the network path; write https:// for another machine")
