"""Checks that the ports of a plan are free, before anything is started."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from postroad.network.errors import NetworkError

if TYPE_CHECKING:
    from postroad.topology import Plan

__all__ = ["check_ports", "free_ports"]

# Taken ports that an error names; the others are counted.
MOST_NAMED = 5


def check_ports(plan: Plan) -> None:
    """Refuse a plan whose ports are in use, or whose hosts are elsewhere.

    Raises:
        NetworkError: names the brokers, the ports, and what would help.
    """
    taken: list[str] = []
    for broker in plan.brokers:
        for port in (broker.port, broker.link_port):
            try:
                _open(broker.host, port).close()
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
                    raise NetworkError(
                        f"broker {broker.number}: {broker.host} is not an address of this machine, and `network up` "
                        "starts brokers on this machine only; start the others there with `postroad broker --config`"
                    ) from None
                if error.errno != errno.EADDRINUSE:
                    reason = os.strerror(error.errno or 0)
                    raise NetworkError(f"broker {broker.number}: port {port} cannot be opened ({reason})") from None
                taken.append(f"{broker.host}:{port} (broker {broker.number})")
    if taken:
        more = f" and {len(taken) - MOST_NAMED} more" if len(taken) > MOST_NAMED else ""
        raise NetworkError(
            f"these ports are taken: {', '.join(taken[:MOST_NAMED])}{more}; stop the programs that listen there "
            "(`postroad network stop`, if it is another run of this network), or plan other ports with "
            "`postroad network plan … --first-port N`"
        )


def free_ports(count: int, avoiding: set[int]) -> list[int]:
    """Ports of the loopback address that are free now, and that no other process is about to take."""
    found: list[int] = []
    opened: list[socket.socket] = []
    try:
        while len(found) < count:
            # Keep each socket open until all are found, or the system would return the same port again.
            opened.append(_open("127.0.0.1", 0))
            port = int(opened[-1].getsockname()[1])
            if port not in avoiding:
                found.append(port)
    finally:
        for each in opened:
            each.close()
    return found


def _open(host: str, port: int) -> socket.socket:
    """A socket as a broker would open it, so that a port which it could have does not count as taken."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(1)
    except OSError:
        made.close()
        raise
    return made
