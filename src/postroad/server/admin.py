"""The admin endpoint: a few requests over HTTP/1.1, one per connection; on the loopback address by default."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote

from postroad.errors import PostroadError
from postroad.messages import AliasError, MessageId
from postroad.server.admin_guard import AdminGuard
from postroad.server.admin_listener import AdminListener
from postroad.server.console import CONSOLE, CONSOLE_DATA, Console, console_file
from postroad.server.durable_admin import DURABLE, DurableAdmin
from postroad.server.extras import has
from postroad.server.http import (
    JSON,
    LOOPBACK,
    LOOPBACK_NAMES,
    Endpoint,
    HttpResponse,
    Request,
    json_response,
    text_response,
)
from postroad.server.outgoing_admin import OUTGOING, OutgoingAdmin
from postroad.server.queue_admin import QUEUES, QueueAdmin
from postroad.server.status import without_people
from postroad.sessions import Audit
from postroad.tracking import Exploration

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Awaitable, Callable

    from postroad.server.admin_client import AdminClient
    from postroad.server.observation import Observation
    from postroad.server.status import Status
    from postroad.server.stored_admin import StoredAdmin


__all__ = ["Admin"]

# A question about a message travels from broker to broker, and each may take its time.
TRACE_SECONDS = 60.0
# An operator, a scraper and a health check at once, and some more.
MOST_REQUESTS = 16
# Connections that the kernel may hold until they are accepted.
BACKLOG = 64
# Questions about messages that wait for other brokers, or for the disk, at once.
MOST_QUESTIONS = 16

SESSIONS = "/sessions"
MOST_DIGITS = 18
# The longest name of the person who closes a session, in the log.
MAX_BY_CHARACTERS = 64
TRACE = "/trace/"
ALIASES = "/aliases/"
NEEDS_TOKEN = "this needs the token of admin_token_file, in the header Authorization: Bearer TOKEN"
NO_RECORD = "this broker keeps no record (tracking.recorder is none)"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Admin:
    """Answers /health, /ready, /status, /metrics, /trace, /aliases, what is stored, /sessions and /console.

    Args:
        status: returns the state of the broker.
        is_ready: returns whether clients can connect.
        troubles: returns what does not work as it should, although the broker runs.
        trace: finds where a message went, as JSON; None if no record is kept.
        aliased: finds the messages with a name in another system; None if no record is kept.
        token: what a request has to show to see who is connected and where messages went; None shows it to all.
        audit: logs and counts refusals.
        durable: answers about durable subscriptions; None if there are none.
        queues: answers about queues; None if there are none.
        outgoing: answers about messages for queues of other brokers; None if there are none.
        console: collects what the console shows; None if there is none.
        close: closes a session by its number; returns whether there was one.
        observation: counts latencies while somebody asks for metrics; None for none.
        is_private: whether all but `/health` and `/ready` needs the token, because other machines can ask.
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
        outgoing: OutgoingAdmin | None = None,
        console: Console | None = None,
        close: Callable[[int, str], bool] | None = None,
        observation: Observation | None = None,
        is_private: bool = False,
    ) -> None:
        self._status = status
        self._is_ready = is_ready
        self._troubles = troubles
        self._trace = trace
        self._aliased = aliased
        self._guard = AdminGuard(token, audit or Audit())
        self._stored: dict[str, StoredAdmin[Any] | None] = {DURABLE: durable, QUEUES: queues, OUTGOING: outgoing}
        self._console = console
        self._close = close
        self._observation = observation
        self._is_private = is_private
        self._endpoint = Endpoint(
            self._page,
            MOST_REQUESTS,
            # A client with the token of a private endpoint may use any host name for the machine.
            names=() if is_private else LOOPBACK_NAMES,
            slow_seconds=TRACE_SECONDS,
            most_slow=MOST_QUESTIONS,
            methods=("GET", "DELETE"),
            guard=self._guard,
        )

    async def listen(
        self, port: int, host: str = LOOPBACK, tls: ssl.SSLContext | None = None
    ) -> asyncio.Server | AdminListener:
        """Open the port."""
        if tls is not None:
            return await AdminListener(self._endpoint.serve, tls).listen(host, port, BACKLOG)
        return await self._endpoint.listen(port, host)

    def take_token(self, token: str | None, others: AdminClient) -> None:
        """Require this token from now on, and ask other brokers with this client."""
        self._guard.token = token
        if self._console is not None:
            self._console.client = others

    def _page(self, request: Request) -> HttpResponse | Awaitable[HttpResponse]:
        path = request.path
        for prefix, pages in self._stored.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return self._stored_page(request, pages)
        if path == SESSIONS or path.startswith(f"{SESSIONS}/"):
            return self._sessions_page(request)
        if request.method != "GET":
            named = f"{DURABLE}/CLIENT/NAME, {QUEUES}/NAME, {OUTGOING}/NAME/messages and {SESSIONS}/NUMBER"
            text = f"{request.method} is for {named}"
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, text)
        if path == CONSOLE or path.startswith(f"{CONSOLE}/"):
            return self._console_page(request)
        if path == "/health":
            troubles = self._troubles()
            return text_response(HTTPStatus.OK, "\n".join(["degraded", *troubles]) if troubles else "ok")
        if path == "/ready":
            ready = self._is_ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return text_response(status, "ready" if ready else "not ready")
        if self._is_private and not self._guard.may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        if path == "/status":
            shown = self._status()
            return json_response(shown if self._guard.may_see_people(request) else without_people(shown))
        if path == "/metrics":
            return self._metrics()
        if path.startswith((TRACE, ALIASES)) and not self._guard.may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        if path.startswith(TRACE):
            return self._traced(path.removeprefix(TRACE), request.query.get("explore", ""))
        if path.startswith(ALIASES):
            return self._ids(unquote(path.removeprefix(ALIASES)))
        text = (
            "there are /health, /ready, /status, /metrics, /trace/ID, /aliases/ALIAS, "
            f"{DURABLE}, {QUEUES}, {OUTGOING}, {SESSIONS} and {CONSOLE}"
        )
        return text_response(HTTPStatus.NOT_FOUND, text)

    def _console_page(self, request: Request) -> HttpResponse | Awaitable[HttpResponse]:
        # The page itself shows nothing; it asks for the token if the data need one.
        found = console_file(request.path)
        if found is not None:
            return found
        if request.path != CONSOLE_DATA or self._console is None:
            return text_response(HTTPStatus.NOT_FOUND, f"there is {CONSOLE}")
        if not self._guard.may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        return self._console.page()

    def _sessions_page(self, request: Request) -> HttpResponse:
        """GET lists sessions with their subscriptions; DELETE closes one."""
        if not self._guard.may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        named = request.path.removeprefix(SESSIONS).removeprefix("/")
        if request.method == "GET" and not named:
            return json_response(self._status().sessions)
        # Python converts only some thousand digits, so check the length first.
        number = int(named) if named.isascii() and named.isdigit() and len(named) <= MOST_DIGITS else -1
        if request.method == "GET":
            found = [session for session in self._status().sessions if session.number == number]
            return (
                json_response(found[0])
                if found
                else text_response(HTTPStatus.NOT_FOUND, f"there is no session {named[:20]}")
            )
        by = request.query.get("by", "")[:MAX_BY_CHARACTERS]
        if self._close is None or not self._close(number, by):
            return text_response(HTTPStatus.NOT_FOUND, f"there is no session {named[:20]}")
        return json_response({"closed": number})

    def _stored_page(self, request: Request, pages: StoredAdmin[Any] | None) -> HttpResponse:
        if not self._guard.may_see_people(request):
            return text_response(HTTPStatus.UNAUTHORIZED, NEEDS_TOKEN)
        if pages is None:
            return text_response(HTTPStatus.NOT_IMPLEMENTED, "this broker has no store")
        return pages.page(request)

    async def _ids(self, alias: str) -> HttpResponse:
        if self._aliased is None:
            return text_response(HTTPStatus.NOT_IMPLEMENTED, NO_RECORD)
        try:
            ids, hidden = await self._aliased(alias)
        except AliasError as error:
            return text_response(HTTPStatus.BAD_REQUEST, str(error))
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

        if self._observation is not None:
            self._observation.scraped()
        return HttpResponse(HTTPStatus.OK, _METRICS, metrics_text(self._status(), self._observation))
