"""The console: one page that shows the network, served by the admin endpoint of any broker.

The page asks for `/console/data` every two seconds. This broker knows itself, and its strategy knows how the others are
linked. It asks the admin endpoints of the others, if `network.admins` names them, and only while somebody looks.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.client import HttpError
from postroad.server.http import HttpResponse, json_response
from postroad.server.status import status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.server.admin_client import AdminClient
    from postroad.server.durable_admin import DurableAdmin
    from postroad.server.observation import Observation
    from postroad.server.queue_admin import QueueAdmin
    from postroad.server.service import Service

__all__ = ["CONSOLE", "CONSOLE_DATA", "Console", "console_file"]

CONSOLE = "/console"
CONSOLE_DATA = f"{CONSOLE}/data"
# A broker that does not respond within this time is shown as silent.
ANSWER_SECONDS = 2.0
# Sessions and subscriptions of each broker that the page gets.
MOST_SESSIONS = 500
MOST_SUBSCRIPTIONS = 2_000
# Queues and durable subscriptions of each.
MOST_STORED = 500

_QUEUE_FIELDS = (
    "name",
    "waiting_messages_now",
    "in_flight_messages_now",
    "delayed_messages_now",
    "consumers_now",
    "oldest_ms_now",
    "dead_lettered",
    "shed",
)
_DURABLE_FIELDS = (
    "client",
    "name",
    "topic",
    "selector",
    "session_now",
    "stopped",
    "waiting_messages_now",
    "unacknowledged_now",
    "oldest_ms_now",
    "shed",
)
# Errors of a response that is not a status; the last one of brackets without end.
_NO_STATUS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_FILES = {
    CONSOLE: ("index.html", "text/html; charset=utf-8"),
    f"{CONSOLE}/style.css": ("style.css", "text/css; charset=utf-8"),
    f"{CONSOLE}/app.js": ("app.js", "text/javascript; charset=utf-8"),
}
# The page loads nothing from elsewhere, sends nothing elsewhere, and cannot be embedded in another page.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def console_file(path: str) -> HttpResponse | None:
    """Return a file of the page; None if the path names none."""
    named = _FILES.get(path)
    if named is None:
        return None
    name, kind = named
    body = resources.files("postroad.server").joinpath("console_page", name).read_bytes()
    return HttpResponse(HTTPStatus.OK, kind, body, _HEADERS)


class Console:
    """Collects what the page shows.

    Args:
        service: the broker.
        observation: what is counted while the console is open.
        queues: lists the queues.
        durable: lists the durable subscriptions.
        client: asks the other brokers.
    """

    def __init__(
        self, service: Service, observation: Observation, queues: QueueAdmin, durable: DurableAdmin, client: AdminClient
    ) -> None:
        self._service = service
        self._observation = observation
        self._queues = queues
        self._durable = durable
        self.client = client

    async def page(self) -> HttpResponse:
        """Return the response to `/console/data`."""
        self._observation.ask()
        own = msgspec.to_builtins(status(self._service))
        now = self._service.dispatcher.clock()
        number, network = own["broker"], self._service.config.network
        admins = {} if network is None else {int(key): address for key, address in network.admins.items()}
        others = {other: address for other, address in admins.items() if other != number}
        answers = await asyncio.gather(*(_ask(self.client, address, now) for address in others.values()))
        linked = self._service.neighbourhoods()
        stored = msgspec.to_builtins((self._queues.listed(MOST_STORED), self._durable.listed(MOST_STORED)))
        brokers = [_broker(own, now, stored[0], stored[1], self._service.troubles())]
        for other, found in zip(others, answers, strict=True):
            brokers.append(found if found is not None and found["number"] == other else _silent(other, now))
        known = {each["number"] for each in brokers}
        brokers += [_silent(other, now, "unknown") for other in sorted(linked) if other not in known]
        return json_response(
            {
                "time": now,
                "broker": number,
                "network": None if network is None else network.name,
                "strategy": None if network is None else network.strategy,
                "brokers": sorted(brokers, key=lambda each: int(each["number"])),
                "other_links": [[one, other] for one, ends in linked.items() for other in ends if one < other],
                "latency": [point._asdict() for point in self._observation.latencies()],
                "topics": self._observation.topics(),
            }
        )


def _silent(number: int, now: int, condition: str = "silent") -> dict[str, Any]:
    return {
        "number": number,
        "time": now,
        "condition": condition,
        "links": [],
        "sessions": [],
        "queues": [],
        "durables": [],
        "left_out": 0,
        "counts": None,
        "troubles": [],
        "version": "",
    }


def _broker(
    report: Mapping[str, Any],
    now: int,
    queues: list[dict[str, Any]],
    durables: list[dict[str, Any]],
    troubles: list[str] | None = None,
) -> dict[str, Any]:
    """Return a broker in the form of the page, from its status and what it stores."""
    counts, server, network = report["statistics"], report["server"], report["network"]
    links = [] if network is None else network["neighbours"]
    relay = {} if network is None else network["relay"]
    sessions = _sessions(report["sessions"])
    listed = sum(len(session["subscriptions"]) for session in sessions)
    planned_down = any(not link["up_now"] for link in links) if network is not None else False
    ready = "degraded" if troubles or planned_down else "ready"
    return {
        "number": report["broker"],
        "time": now,
        "condition": ready if report["ready"] else "degraded",
        "version": report["version"],
        "uptime_seconds": report["process_seconds"],
        "troubles": troubles or [],
        "counts": {
            "sessions": counts["sessions_now"],
            "subscriptions": counts["subscriptions_now"],
            "accepted": counts["accepted"],
            "delivered": counts["delivered"],
            "relayed": relay.get("sent", 0) + relay.get("relayed", 0),
            "waiting": counts["waiting_messages_now"] + counts["stored_messages_now"],
            "shed": sum(value for name, value in counts.items() if name.startswith("shed_")),
            "held_bytes": server["held_bytes_now"],
        },
        "links": [
            {
                "neighbour": link["neighbour"],
                "up": link["up_now"],
                "crowded": link["crowded_now"],
                "sent": link["sent_messages"],
                "held": link["held_messages_now"],
            }
            for link in links
        ],
        "sessions": sessions,
        "queues": [{name: queue[name] for name in _QUEUE_FIELDS} for queue in queues[:MOST_STORED]],
        "durables": [{name: one[name] for name in _DURABLE_FIELDS} for one in durables[:MOST_STORED]],
        "left_out": counts["subscriptions_now"] - listed,
    }


def _sessions(sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found, room = [], MOST_SUBSCRIPTIONS
    for session in sessions[:MOST_SESSIONS]:
        subscriptions = [
            {
                "topic": each["topic"],
                "selector": each["selector"],
                "waiting": each["waiting_messages_now"],
                "delivered": each["delivered"],
                "shed": each["shed"],
            }
            for each in session["subscriptions"][:room]
        ]
        room -= len(subscriptions)
        about = {name: session[name] for name in ("number", "principal", "address", "protocol")}
        found.append({**about, "subscriptions": subscriptions})
    return found


async def _ask(client: AdminClient, address: str, now: int) -> dict[str, Any] | None:
    """Return another broker in the form of the page; None if it does not respond like one."""
    pages = ("/status", "/queues", "/subscriptions")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            report, queues, durables = await asyncio.gather(*(client.page(address, path) for path in pages))
        return _broker(report, now, queues["queues"], durables["subscriptions"])
    # Another program may have the port, and send anything.
    except (HttpError, OSError, *_NO_STATUS):
        return None
