"""The directory: hands each client some live brokers in turn, so that many brokers look like one and load spreads."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from postroad.server.http import LOOPBACK, LOOPBACK_NAMES, Endpoint, HttpResponse, Request, json_response, text_response

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

__all__ = ["DEFAULT_COUNT", "Directory"]

# One to connect to, and two others in case it is gone by then.
DEFAULT_COUNT = 3
MOST_COUNT = 100
# A crowd of clients that lost its broker asks within the same second; each is answered within a millisecond.
MOST_REQUESTS = 1_000

_COUNT = re.compile(r"[0-9]{1,9}")


class Directory:
    """Answers /brokers, /targets, /status and /health.

    Two clients that ask one after the other get lists that begin with different brokers: broker after broker comes
    first, then those that follow in the order of the plan.

    Args:
        name: of the network.
        live: the addresses of the brokers that live, in the order of the plan.
        admins: the addresses of the admin endpoints of all brokers, also of those that are dead.
        status: the content of /status.
    """

    def __init__(
        self,
        name: str,
        live: Callable[[], Sequence[str]],
        admins: Callable[[], Sequence[str]],
        status: Callable[[], object],
    ) -> None:
        self._name = name
        self._live = live
        self._admins = admins
        self._status = status
        self._turn = 0
        self._asked = 0

    async def listen(self, port: int, host: str = LOOPBACK) -> asyncio.Server:
        """Open the port. On an address other than loopback, everyone who reaches the machine may ask."""
        names = LOOPBACK_NAMES if host in (LOOPBACK, "localhost", "::1") else ()
        return await Endpoint(self._page, MOST_REQUESTS, names).listen(port, host)

    def pick(self, count: int = DEFAULT_COUNT) -> list[str]:
        """Up to `count` live brokers, beginning with the one whose turn it is."""
        live = self._live()
        if not live:
            return []
        first = self._turn % len(live)
        self._turn = first + 1
        self._asked += 1
        return [live[(first + place) % len(live)] for place in range(min(count, len(live)))]

    def statistics(self) -> dict[str, int]:
        """How many clients asked, and how many brokers there are to name."""
        return {"asked": self._asked, "live_now": len(self._live())}

    def _page(self, request: Request) -> HttpResponse:
        path = request.path
        if path == "/brokers":
            return self._brokers(request.query.get("count", str(DEFAULT_COUNT)))
        if path == "/targets":
            return json_response(self._targets())
        if path == "/status":
            return json_response(self._status())
        if path == "/health":
            return text_response(HTTPStatus.OK, "ok")
        return text_response(HTTPStatus.NOT_FOUND, "there are /brokers, /targets, /status and /health")

    def _brokers(self, count: str) -> HttpResponse:
        # Python converts some thousand digits at most, so the length comes first.
        if _COUNT.fullmatch(count) is None or not 1 <= int(count) <= MOST_COUNT:
            return text_response(HTTPStatus.BAD_REQUEST, f"count is a whole number from 1 to {MOST_COUNT}")
        return json_response({"network": self._name, "brokers": self.pick(int(count))})

    def _targets(self) -> list[dict[str, object]]:
        """What Prometheus finds by `http_sd_configs`; with the dead, so that it notices."""
        found: dict[str, list[str]] = {}
        for admin in self._admins():
            scheme, _, place = admin.partition("://")
            found.setdefault(scheme, []).append(place)
        return [
            {"targets": places, "labels": {"network": self._name, "__scheme__": scheme}}
            for scheme, places in found.items()
        ]
