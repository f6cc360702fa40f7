"""The options of all commands that talk to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from postroad.cli.option_sources import is_written
from postroad.errors import PostroadError

if TYPE_CHECKING:
    import ssl

    from postroad.client import Client

__all__ = ["Attributes", "Ca", "Directory", "Login", "Passcode", "Reach", "Server", "read_attributes"]

Server = Annotated[
    str, typer.Option(envvar="POSTROAD_SERVER", help="Where the broker is: stomp://host:port, or stomps://… for TLS.")
]
Directory = Annotated[
    str | None,
    typer.Option(
        envvar="POSTROAD_DIRECTORY",
        help="Where the directory of a network is, http://host:port: it names a broker; instead of --server.",
    ),
]
Login = Annotated[str | None, typer.Option(envvar="POSTROAD_LOGIN", help="The login, if the broker asks for one.")]
Passcode = Annotated[
    str | None,
    typer.Option(
        envvar="POSTROAD_PASSCODE",
        help="The passcode of the login. Prefer the variable: all users of the machine can see arguments.",
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(envvar="POSTROAD_CA", help="A PEM file with the authority of the broker's certificate, for TLS."),
]
Attributes = Annotated[
    list[str] | None, typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="An attribute; may be repeated.")
]


class Reach(NamedTuple):
    """How to reach a broker."""

    server: str
    login: str | None
    passcode: str | None
    ca: str | None
    directory: str | None = None

    def chosen(self, context: typer.Context) -> Reach:
        """Return the way that the command says; variables say the rest.

        Raises:
            PostroadError: options of the command contradict each other.
        """
        found = self
        if is_written(context, "server") and self.directory is not None:
            if is_written(context, "directory"):
                raise PostroadError("--server and --directory both say where to connect: give one of them")
            found = found._replace(directory=None)
        if is_written(context, "passcode") and self.login is None:
            raise PostroadError("--passcode proves a login: give --login, too")
        if found.directory is None and found.server.startswith("stomp://") and not is_written(context, "ca"):
            # The variable says whom to trust where there is TLS.
            found = found._replace(ca=None)
        return found

    def client(self, *, reconnect: bool = False, publishes: bool = True) -> Client:
        """Return a client, not connected yet; one that never publishes needs no publisher number."""
        from postroad.client import Reconnect, connect

        return connect(
            None if self.directory else self.server,
            directory=self.directory,
            login=self.login,
            passcode=self.passcode,
            tls=self._tls(),
            reconnect=Reconnect() if reconnect else None,
            ids="client" if publishes else "broker",
        )

    def _tls(self) -> ssl.SSLContext | None:
        import ssl

        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise PostroadError(f"--ca {self.ca}: not a readable PEM file ({error.strerror or error})") from None


def read_attributes(texts: list[str] | None) -> dict[str, str]:
    """Return the attributes given as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise PostroadError(f"--attribute {text!r}: write it as NAME=VALUE")
        if name in found:
            raise PostroadError(f"--attribute {text!r}: {name} is given twice")
        found[name] = value
    return found
