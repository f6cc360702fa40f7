"""`postroad trace`: where did a message go?"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from postroad.cli.admin_requests import (
    AdminAuthority,
    NeedsTokenError,
    NotThereError,
    TokenFile,
    admin_base,
    admin_endpoint,
    admin_request,
    is_one_of_network,
    local_network,
    read_token,
)
from postroad.cli.option_sources import is_written
from postroad.cli.output import AsJson, echo_json
from postroad.cli.unwritten_messages import not_all_is_written, unwritten
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.messages import MessageId

__all__ = ["show_journey", "trace"]

DEFAULT_TRAIL = Path("postroad-data/trail")
# The suffix of plans; an argument without it that is not a file is an address.
PLAN_SUFFIX = ".toml"


class Explore(StrEnum):
    """Whom to ask next."""

    RELAYED = "relayed"
    NEIGHBOURS = "neighbours"


def trace(
    context: typer.Context,
    message: Annotated[str, typer.Argument(metavar="ID", help="The id of a message, or an alias of it.")],
    trail: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URI",
            help=f"The trail: a directory, or file://, s3:// or hdfs://; by default {DEFAULT_TRAIL}.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN|DIR|ADDRESS",
            envvar="POSTROAD_ADMIN",
            help="Ask a running network: its plan, data directory or directory's address; or one broker: its admin "
            "address, or PLAN:N.",
        ),
    ] = None,
    explore: Annotated[
        Explore, typer.Option(help="Ask only those that a broker relayed it to, or all its neighbours.")
    ] = Explore.RELAYED,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Write the journey as OpenTelemetry spans (OTLP, JSON) to a file, - for stdout, or POST it to a URL.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell where a message went: who sent it, which brokers it passed, who got it, and how sure that is.

    Ends with 0 if it passed, with 1 if it never was accepted or is not on record.
    """
    if otlp == "-" and as_json:
        raise PostroadError("--otlp - and --json both print JSON: give one of them, or name a file with --otlp")
    if network is not None and trail is not None:
        if is_written(context, "network"):
            raise PostroadError("give --trail or --network, not both")
        # A variable says where to ask when the command does not.
        network = None
    admin = token = ""
    if network is not None and is_one_of_network(network):
        admin, token, admin_ca = admin_endpoint(network, admin_token_file, admin_ca)
    else:
        if network is not None and _is_local(network):
            admin, admin_token_file, admin_ca = _of_directory(Path(network), admin_token_file, admin_ca)
        token = read_token(admin_token_file)
    asking = _Asking(explore, as_json, token, admin_ca, otlp == "-", [])
    if network is not None:
        passed = _from_network(admin or _admin_address(network, asking), message, asking)
    else:
        root = DEFAULT_TRAIL if trail is None else trail
        passed = _from_trail(root, message, asking)
    if otlp is not None:
        from postroad.cli.spans import export_spans

        export_spans(otlp, asking.documents, message)
    if not passed:
        raise typer.Exit(1)


class _Asking(NamedTuple):
    """The request, and the answers so far."""

    explore: Explore
    as_json: bool
    token: str
    authority: Path | None
    quiet: bool
    documents: list[dict[str, Any]]

    def request(self, base: str, path: str) -> dict[str, Any]:
        return admin_request(base, path, self.token, authority=self.authority)

    def answered(self, document: dict[str, Any]) -> None:
        self.documents.append(document)
        if not self.quiet:
            show_journey(document, self.as_json)


def _from_trail(root: str | Path, text: str, asking: _Asking) -> bool:
    from postroad.tracking import journey_document
    from postroad.trail import Trail, keep_pandas_out

    keep_pandas_out()
    if root == DEFAULT_TRAIL and not DEFAULT_TRAIL.is_dir():
        raise PostroadError(
            f"there is no trail at {root}: name one with --trail, or ask running brokers with --network"
        )
    trail = Trail(root)
    passed = True
    for message in _messages(trail, text):
        story = trail.trace(message, exploration=asking.explore.value)
        # What the record rules out with certainty will not be written later either.
        open_still = not story.journey.stops and not story.journey.certainty
        if open_still and (young := unwritten(trail.root, message)) is not None:
            document = young.asked_of_brokers(asking.explore.value, asking.request)
            if document is not None:
                asking.answered(document)
                continue
        passed = passed and bool(story.journey.stops)
        reads = {"files_opened": trail.reads.files, "bytes_read": trail.reads.bytes, "warnings": trail.warnings}
        asking.answered(journey_document(story) | reads)
    for warning in trail.warnings:
        typer.echo(f"postroad: warning: {warning}", err=True)
    return passed


def _messages(trail: Any, text: str) -> list[MessageId]:
    """Return the message with this id, or those with this alias."""
    from postroad.messages import MessageId, check_alias

    try:
        return [MessageId.parse(text)]
    except PostroadError as error:
        check_alias(text)
        found: list[MessageId] = trail.aliased(text)
        if not found:
            perhaps = _perhaps(trail.may_hide()) + not_all_is_written(trail.root)
            raise PostroadError(f"{error}; and no message on this trail has the alias {text!r}{perhaps}") from error
        return found


def _perhaps(hidden: list[str]) -> str:
    """Return why a negative answer is not certain."""
    return f", as far as the record goes, which is not complete: {'; '.join(hidden)}" if hidden else ""


def show_journey(document: dict[str, Any], as_json: bool) -> None:
    """Print a journey, as a tree or as JSON."""
    if as_json:
        echo_json(document)
        return
    from postroad.cli.journey_tree import journey_lines, journey_tree

    # Without colours where they are not wanted (no-color.org); `echo` finds out whether there is a terminal.
    colour = False if os.environ.get("NO_COLOR") else None
    for line in (*journey_tree(document).lines(), *journey_lines(document)):
        typer.echo(line, color=colour)


def _is_local(given: str) -> bool:
    """Return whether the argument is a plan or a data directory, not an address."""
    path = Path(given)
    return "://" not in given and (path.exists() or path.suffix == PLAN_SUFFIX or os.sep in given.rstrip(os.sep))


def _admin_address(given: str, asking: _Asking) -> str:
    """Return the address of a broker that is named by its own address or by that of its network's directory."""
    base = admin_base(given)
    # A directory asks for no token, and none is shown to it.
    asks = asking._replace(token="")
    try:
        asks.request(base, "/brokers?count=1")
    except (NotThereError, NeedsTokenError):
        return base  # A broker; only the directory of a network has that page.
    views = asks.request(base, "/status")["brokers"]
    for view in views:
        if view["condition"] in ("ready", "degraded"):
            return str(view["admin"])
    raise PostroadError(f"{base}: no broker of this network answers; give --trail and where it is written")


def _of_directory(path: Path, token_file: Path | None, authority: Path | None) -> tuple[str, Path | None, Path | None]:
    """Return the address of a broker of a network on this machine, with its token and authority."""
    from postroad.network import find, place_of

    place = place_of(path)
    if not path.exists() and not place.root.is_dir():
        raise PostroadError(f"{path}: no such plan or directory; give one, or an address such as 127.0.0.1:8161")
    if place.read() is None and place.trail.is_dir():
        raise PostroadError(f"no network is up in {place.root}; its record is there: --trail {place.trail}")
    running = find(place).running()
    if not running:
        raise PostroadError(f"no broker of the network in {place.root} runs; give --trail {place.trail}")
    found = local_network(path, token_file, authority)
    return running[0].admin, found.token_file, found.authority


def _from_network(base: str, text: str, asking: _Asking) -> bool:
    """Ask a running broker, which asks the others."""
    import urllib.parse

    from postroad.messages import MessageId, check_alias

    try:
        ids = [str(MessageId.parse(text))]
    except PostroadError as error:
        check_alias(text)
        answer = asking.request(base, f"/aliases/{urllib.parse.quote(text, safe='')}")
        ids = answer["ids"]
        if not ids:
            perhaps = _perhaps(answer.get("may_hide", []))
            raise PostroadError(f"{error}; and {base} knows no message that has the alias {text!r}{perhaps}") from error
    passed = True
    for one in ids:
        document = asking.request(base, f"/trace/{one}?explore={asking.explore.value}")
        asking.answered(document)
        passed = passed and bool(document["stops"])
    return passed
