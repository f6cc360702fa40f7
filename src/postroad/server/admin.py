"""The admin endpoint: a few requests over HTTP/1.1, on the loopback address only, one request per connection."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, get_args
from urllib.parse import unquote

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.server.durable_admin import DURABLE, DurableAdmin
from postroad.server.extras import has
from postroad.server.http import JSON, Endpoint, HttpResponse, Request, json_response, text_response
from postroad.server.queue_admin import QUEUES, QueueAdmin
from postroad.server.status import without_people
from postroad.sessions import Audit
from postroad.tracking import Exploration

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from postroad.server.status import Status


__all__ = ["Admin"]

# A question about a message goes from broker to broker, and each may take its time.
TRACE_SECONDS = 60.0
# An operator, a scraper and a health check at once, and some to spare.
MOST_REQUESTS = 16
# Questions about messages that are asked of other brokers, or of the disk, at once.
MOST_QUESTIONS = 16

TRACE = "/trace/"
ALIASES = "/aliases/"
NEEDS_TOKEN = "this needs the token of admin_token_file, in the header Authorization: Bearer TOKEN"
NO_RECORD = "this broker keeps no record (tracking.recorder is none)"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Admin:
    """Answers /health, /ready, /status, /metrics, /trace/ID, /aliases/ALIAS and /subscriptions.

    Args:
        status: tells the state of the broker.
        is_ready: whether clients can connect.
        troubles: what does not work as it should, though the broker runs.
        trace: finds where a message went, as JSON; None where no record is kept.
        aliased: finds the messages that have a name in another system; None where no record is kept.
        token: what a request has to show to see who is connected and where messages went; None shows it to all.
        audit: what is told of refusals.
        durable: answers about durable subscriptions; None where there are none.
        queues: answers about queues; None where there are none.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        is_ready: Callable[[], bool],
        troubles: Callable[[], list[str]] = list,
        trace: Callable[[MessageId, Exploration], Awaitable[bytes]] | None = None,
        aliased: Callable[[str], Awaitable[tuple[list[MessageId], list[str]]]] | None = None,
        token: str | None = None,
        audit: Audit | None = None,
        durable: DurableAdmin | None = None,
        queues: QueueAdmin | None = None,
    ) -> None:
        self._status = status
        self._is_ready = is_ready
        self._troubles = troubles
        self._trace = trace
        self._aliased = aliased
        self._token = token
        self._audit = audit or Audit()
        self._stored: dict[str, DurableAdmin | QueueAdmin | None] = {DURABLE: durable, QUEUES: queues}
        self._endpoint = Endpoint(
            self._page,
            MOST_REQUESTS,
            slow_seconds=TRACE_SECONDS,
            most_slow=MOST_QUESTIONS,
            methods=("GET", "DELETE"),
        )

    async def listen(self, port: int) -> asyncio.Server:
        """Open the port."""
        return await self._endpoint.listen(port)

    def _page(self, request: Request) -> HttpResponse | Awaitable[HttpResponse]:
        path = request.path
        for prefix, pages in self._stored.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return self._stored_page(request, pages)
        if request.method != "GET":
            text = f"{request.method} is for {DURABLE}/CLIENT/NAME and {QUEUES}/NAME"
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, text)
        if path == "/health":
            troubles = self._troubles()
            return text_response(HTTPStatus.OK, "\n".join(["degraded", *troubles]) if troubles else "ok")
        if path == "/ready":
            ready = self._is_ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return text_response(status, "ready" if ready else "not ready")
        if path == "/status":
            told = self._status()
            return json_response(told if self._may_see_people(request) else without_people(told))
        if path == "/metrics":
            return self._metrics()
        if path.startswith((TRACE, ALIASES)) and not self._may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        if path.startswith(TRACE):
            return self._traced(path.removeprefix(TRACE), request.query.get("explore", ""))
        if path.startswith(ALIASES):
            return self._ids(unquote(path.removeprefix(ALIASES)))
        text = f"there are /health, /ready, /status, /metrics, /trace/ID, /aliases/ALIAS, {DURABLE} and {QUEUES}"
        return text_response(HTTPStatus.NOT_FOUND, text)

    def _stored_page(self, request: Request, pages: DurableAdmin | QueueAdmin | None) -> HttpResponse:
        if not self._may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        if pages is None:
            return text_response(HTTPStatus.NOT_IMPLEMENTED, "this broker has no store")
        return pages.page(request)

    def _may_see_people(self, request: Request) -> bool:
        """Whether a request shows the token, if one is asked for; a wrong one is told to the audit."""
        if self._token is None or hmac.compare_digest(self._token.encode(), request.token.encode()):
            return True
        if request.token:
            self._audit.refused("admin request refused", path=request.path[:100])
        return False

    async def _ids(self, alias: str) -> HttpResponse:
        if self._aliased is None:
            return text_response(HTTPStatus.NOT_IMPLEMENTED, NO_RECORD)
        try:
            ids, hidden = await self._aliased(alias)
        except PostroadError as error:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return json_response({"alias": alias, "ids": [str(one) for one in ids], "may_hide": hidden})

    async def _traced(self, message: str, explore: str) -> HttpResponse:
        if self._trace is None:
            return text_response(HTTPStatus.NOT_IMPLEMENTED, NO_RECORD)
        if explore not in ("", *get_args(Exploration)):
            text = f"explore={explore}: say one of {', '.join(get_args(Exploration))}"
            return text_response(HTTPStatus.BAD_REQUEST, text)
        exploration: Exploration = "neighbours" if explore == "neighbours" else "relayed"
        try:
            found = MessageId.parse(message)
        except PostroadError as error:
            return text_response(HTTPStatus.BAD_REQUEST, str(error))
        return HttpResponse(HTTPStatus.OK, JSON, await self._trace(found, exploration) + b"\n")

    def _metrics(self) -> HttpResponse:
        if not has("prometheus_client"):
            text = "metrics need the library prometheus-client: pip install 'postroad[metrics]'"
            return text_response(HTTPStatus.NOT_IMPLEMENTED, text)
        from postroad.server.metrics import metrics_text

        return HttpResponse(HTTPStatus.OK, _METRICS, metrics_text(self._status()))
