"""`postroad network plan`: write down a network."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.topology import Graph, Hierarchy, Plan, StrategyName

__all__ = ["keys", "plan"]

DEFAULT_BROKERS = 8
DEFAULT_CLUSTER = "1,2,2,2"
DEFAULT_FAN_OUT = 4
DEFAULT_LINKS = 2


class NetworkShape(StrEnum):
    """The shapes of networks."""

    TREE = "tree"
    CLUSTER = "cluster"
    STAR = "star"
    RING = "ring"
    SQUARE = "square"
    LINE = "line"
    POWER_LAW = "power-law"
    WAXMAN = "waxman"


# Shapes that are drawn at random.
GROWN = (NetworkShape.POWER_LAW, NetworkShape.WAXMAN)


class Promise(StrEnum):
    """What a crash may lose."""

    RELAY = "relay"
    CUSTODY = "custody"


class Order(StrEnum):
    """What order subscribers are promised."""

    NONE = "none"
    PUBLISHER = "publisher"


def plan(
    shape: Annotated[NetworkShape, typer.Argument(metavar="SHAPE", help="How the brokers are linked.")],
    brokers: Annotated[int | None, typer.Option(min=1, help="How many; 8 by default. A square has 4.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="power-law, waxman: another seed, another network; 1 by default.")
    ] = None,
    fan_out: Annotated[int | None, typer.Option(min=1, help="tree: children of each broker; 4 by default.")] = None,
    links_each: Annotated[
        int | None, typer.Option(min=1, help="power-law, waxman: links of each broker that joins; 2 by default.")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="T,S,U,N", help="cluster: tops, supers per top, units per super, nodes per unit."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=_strategy_names,
            help="Routing; by default that of the shape, tree or cluster, else drp.",
        ),
    ] = None,
    delivery: Annotated[Promise, typer.Option(help="What a crash may lose.")] = Promise.RELAY,
    order: Annotated[Order, typer.Option(help="publisher: keep the order of each publisher.")] = Order.NONE,
    host: Annotated[str, typer.Option(help="Where the brokers listen.")] = "127.0.0.1",
    first_port: Annotated[int, typer.Option(min=1, max=65_535, help="Each takes two ports from here on.")] = 20_000,
    name: Annotated[str | None, typer.Option(help="The name of the network; by default that of the shape.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; by default, standard output.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    keys: Annotated[
        bool | None,
        typer.Option(
            "--keys/--no-keys",
            help="Make a key for each broker, beside --out; by default where --host is another machine.",
            show_default=False,
        ),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Make certificates too, with an authority of its own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a plan of a network as TOML, to be read, edited and started."""
    from postroad.topology import Plan, Settings

    if force and out is None:
        raise PostroadError("--force overwrites the file of --out: name it, or leave --force out")
    if tls and keys is False:
        raise PostroadError("--tls makes certificates for keys: leave --no-keys out")
    made = Plan.of(
        _network(shape, brokers, seed, fan_out, links_each, sizes),
        name or shape.value,
        strategy=_strategy(strategy, shape),
        delivery=delivery.value,
        host=host,
        first_port=first_port,
        settings=Settings(order=order.value),
    )
    from postroad.config import is_loopback

    if keys or tls or (keys is None and not is_loopback(host)):
        made = _with_credentials(made, out, tls, force)
    if out is None and not as_json:
        typer.echo(made.to_toml(), nl=False)
    if out is not None:
        _write(out, made.to_toml(), force)
    if as_json:
        echo_json(summary(made) | ({} if out is None else {"file": str(out)}))
    else:
        echo_table(f"network {made.name}{'' if out is None else f', written to {out}'}", summary(made), err=out is None)


def _strategy_names(incomplete: str) -> list[str]:
    """Return the strategies whose name begins so, for Tab."""
    from postroad.topology import STRATEGY_NAMES

    return [name for name in STRATEGY_NAMES if name.startswith(incomplete)]


def _strategy(name: str | None, shape: NetworkShape) -> StrategyName:
    from postroad.topology import HIERARCHICAL, STRATEGY_NAMES

    wanted = name or (shape.value if shape.value in HIERARCHICAL else "drp")
    for known in STRATEGY_NAMES:
        if known == wanted:
            return known
    raise PostroadError(f"--strategy {wanted!r} is not known; choose one of {', '.join(STRATEGY_NAMES)}")


def _with_credentials(made: Plan, out: Path | None, tls: bool, force: bool) -> Plan:
    from postroad.network import credentials_of, make_credentials

    if out is None:
        raise PostroadError("private keys are written beside the plan; name its file with --out, or say --no-keys")
    if out.exists() and not force:
        raise PostroadError(f"{out} exists already; name another file, or overwrite it with --force")
    return make_credentials(made, credentials_of(out), tls=tls)


def keys(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, as `postroad network plan` writes it.")],
    tls: Annotated[bool, typer.Option("--tls", help="Make certificates too, with an authority of its own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make keys for the brokers of a plan that have none yet, and certificates for all, beside the plan."""
    from postroad.cli.network_run import read_plan
    from postroad.network import credentials_of, make_credentials

    folder = credentials_of(plan)
    made = make_credentials(read_plan(plan), folder, tls=tls)
    _write(plan, made.to_toml(), force=True)
    facts = {"brokers": len(made.brokers), "tls": made.tls, "keys": str(folder)}
    if as_json:
        echo_json(facts)
    else:
        echo_table(f"network {made.name}, keys in {folder}", facts)


def _network(
    shape: NetworkShape,
    brokers: int | None,
    seed: int | None,
    fan_out: int | None,
    links_each: int | None,
    sizes: str | None,
) -> Graph | Hierarchy:
    from postroad import topology

    _check_shape(shape, {"--fan-out": fan_out, "--seed": seed, "--links-each": links_each})
    if shape is NetworkShape.CLUSTER:
        if brokers is not None:
            raise PostroadError(f"a cluster's number of brokers follows from --sizes, such as {DEFAULT_CLUSTER}")
        return topology.cluster(*_four(sizes or DEFAULT_CLUSTER))
    if sizes is not None:
        raise PostroadError(f"--sizes is for a cluster; say how large a {shape.value} is with --brokers")
    if shape is NetworkShape.SQUARE:
        if brokers not in (None, 4):
            raise PostroadError(f"a square has 4 brokers, not {brokers}")
        return topology.square_with_diagonal()
    count = brokers or DEFAULT_BROKERS
    if shape is NetworkShape.TREE:
        return topology.tree(count, DEFAULT_FAN_OUT if fan_out is None else fan_out)
    if shape in GROWN:
        grow = topology.power_law if shape is NetworkShape.POWER_LAW else topology.waxman
        return grow(count, 1 if seed is None else seed, DEFAULT_LINKS if links_each is None else links_each)
    plain = {NetworkShape.STAR: topology.star, NetworkShape.RING: topology.ring, NetworkShape.LINE: topology.line}
    return plain[shape](count)


def _check_shape(shape: NetworkShape, given: dict[str, int | None]) -> None:
    """Refuse options of another shape."""
    shapes = {"--fan-out": (NetworkShape.TREE,), "--seed": GROWN, "--links-each": GROWN}
    for option, value in given.items():
        if value is not None and shape not in shapes[option]:
            names = " or ".join(f"a {one.value}" for one in shapes[option])
            raise PostroadError(f"{option} is for {names}; a {shape.value} has no use for it: leave it out")


def _four(text: str) -> tuple[int, int, int, int]:
    parts = text.split(",")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise PostroadError(f"--sizes {text!r}: write four whole numbers, such as {DEFAULT_CLUSTER}")
    tops, supers, units, nodes = map(int, parts)
    return tops, supers, units, nodes


def _write(path: Path, text: str, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PostroadError(f"{path} exists already; name another file, or overwrite it with --force") from None
    except OSError as error:
        raise PostroadError(f"{path}: cannot be written ({error.strerror})") from None


def summary(made: Plan) -> dict[str, Any]:
    """Return the size of a plan."""
    graph = made.graph()
    degrees = [len(graph.neighbours(number)) for number in graph.brokers]
    ports = [port for one in made.brokers for port in (one.port, one.link_port)]
    return {
        "strategy": made.strategy,
        "delivery": made.delivery,
        **({"order": made.settings.order} if made.settings.order != "none" else {}),
        "brokers": len(graph.brokers),
        "links": len(graph.links),
        "most_links_at_one_broker": max(degrees),
        "ports": f"{min(ports)} to {max(ports)}",
        **({"keys": sum(one.key is not None for one in made.brokers)} if made.brokers[0].key is not None else {}),
        **({"tls": True} if made.tls else {}),
    }
