"""What the admin pages of durable subscriptions and queues share: list, show, purge, delete."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar
from urllib.parse import unquote

from postroad.broker import Outbox
from postroad.server.http import HttpResponse, json_response, text_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from postroad.broker import Broker
    from postroad.server.http import Request

__all__ = ["StoredAdmin"]

log = logging.getLogger("postroad.server")

MESSAGES = "messages"
# The longest name of the operator, in the record.
MAX_BY_CHARACTERS = 64

Item = TypeVar("Item")


class StoredAdmin(ABC, Generic[Item]):
    """Answers requests about stored items that have messages.

    Args:
        core: the broker.
        carry_out: carries out what the core says.
        clock: the time in ms.

    Attributes:
        path: of the list; an item is below it, its messages below the item.
        field: of the response that lists all items.
        noun: for one item, in messages to people.
        names: how an item is named in the path.
    """

    path: ClassVar[str]
    field: ClassVar[str]
    noun: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __init__(self, core: Broker, carry_out: Callable[[Outbox], None], clock: Callable[[], int]) -> None:
        self._core = core
        self._carry_out = carry_out
        self._clock = clock

    def listed(self, most: int | None = None) -> list[msgspec.Struct]:
        """Return all items, or the first of them; none while the store is not open."""
        return [self._status(each) for each in itertools.islice(self._items() or (), most)]

    def page(self, request: Request) -> HttpResponse:
        """GET lists or shows; DELETE deletes one, or its messages."""
        items = self._items()
        if items is None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the store is not open yet; ask again")
        parts = [unquote(part) for part in request.path.removeprefix(self.path).split("/")[1:]]
        if not parts:
            if request.method != "GET":
                text = f"name a {self.noun}: {'/'.join((self.path, *self.names))}"
                return text_response(HTTPStatus.METHOD_NOT_ALLOWED, text)
            return json_response({self.field: [self._status(each) for each in items]})
        name, rest = parts[: len(self.names)], parts[len(self.names) :]
        found = self._find(*name) if len(name) == len(self.names) else None
        if found is None or rest not in ([], [MESSAGES]):
            text = f"there is no {self.noun} {'/'.join(parts)}; {self.path} lists them as {'/'.join(self.names)}"
            return text_response(HTTPStatus.NOT_FOUND, text)
        if request.method == "GET":
            return json_response(self._status(found))
        return self._given_up(found, "/".join(name), request, purges=bool(rest))

    def _given_up(self, item: Item, name: str, request: Request, purges: bool) -> HttpResponse:
        outbox = Outbox()
        by = "".join(each for each in request.query.get("by", "") if each.isprintable())[:MAX_BY_CHARACTERS]
        reason = f"{'purged' if purges else 'deleted'} by {by or 'the admin endpoint'}"
        count = self._purge(item, reason) if purges else self._delete(item, reason, outbox)
        if isinstance(count, HttpResponse):
            return count
        self._carry_out(outbox)
        fields = {"what": f"{self.noun} {name}", "messages": count, "by": by}
        log.info("purged by operator" if purges else "deleted by operator", extra=fields)
        return json_response({"messages": count, "reason": reason})

    @abstractmethod
    def _items(self) -> Iterable[Item] | None:
        """Return all items; None while the store is not open."""

    @abstractmethod
    def _find(self, *name: str) -> Item | None:
        """Return the item of a name."""

    @abstractmethod
    def _status(self, item: Item) -> msgspec.Struct:
        """Return what people see of an item."""

    @abstractmethod
    def _purge(self, item: Item, reason: str) -> int:
        """Give up the messages of an item; return how many there were."""

    @abstractmethod
    def _delete(self, item: Item, reason: str, outbox: Outbox) -> int | HttpResponse:
        """End an item; returns how many messages went with it, or why that cannot be."""

    def _age(self, stored: int | None) -> int:
        """Return how long ago something was stored, in ms; 0 without anything."""
        return 0 if stored is None else max(0, self._clock() - stored)
