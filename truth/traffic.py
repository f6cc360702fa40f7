"""Clients of a network that is being harmed: what each publisher sent and each subscriber got, as they saw it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.client import connect
from postroad.errors import PostroadError
from postroad.messages import Draft
from postroad.security import principal_of
from truth.facts import Fact

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from postroad.client import AckMode, Client, Overflow
    from postroad.messages import MessageId
    from truth.fleet import Fleet
    from truth.replies import Claim

__all__ = ["Account", "Inbox", "Sent", "Traffic", "Wish"]

TOPIC = "quotes.truth"
MARK = "postroad-duplicate"
# Prices are 0 to 99, and every wish is for those below some bound.
PRICES = 100
# A client that found no broker tries again after this.
RETRY_SECONDS = 0.2
# After a broker came back it learns in moments what others want; what is published before matches nobody elsewhere.
LEARN_SECONDS = 1.0
CLIENT_SECONDS = 5.0
QUIET_SECONDS = 1.0
LONGEST_QUIET_SECONDS = 20.0


@dataclass
class Wish:
    """A subscriber that is wanted: where, and below which price.

    Attributes:
        broker: where it subscribes.
        below: it wants prices below this.
        acknowledges: it acknowledges each message.
        reads: it reads what it gets; one that does not fills its queue.
        sheds: what its queue does not take is shed, not spooled.
        durable: the name of its durable subscription, which goes on over all its connections; empty for none.
    """

    broker: int
    below: int
    acknowledges: bool = False
    reads: bool = True
    sheds: bool = False
    durable: str = ""


@dataclass
class Inbox:
    """What one connection of a subscriber got.

    Attributes:
        login: names this connection and no other; or all those of a durable subscription.
        wish: what it asked for.
        since: when it had subscribed, by the clock of this process.
        number: its number in the record; 0 while it is not known.
        got: ids, and how often each came.
        marked: how many of these the broker marked as perhaps not the first.
        whole: the connection never broke.
    """

    login: str
    wish: Wish
    since: float
    number: int = 0
    got: Counter[MessageId] = field(default_factory=Counter)
    marked: Counter[MessageId] = field(default_factory=Counter)
    whole: bool = True


@dataclass
class Sent:
    """A message that a publisher sent.

    Attributes:
        at: when, by the clock of this process.
        price: what wishes look at.
        confirmed: a receipt came for it, or for one after it on the same connection.
    """

    at: float
    price: int
    confirmed: bool = False


@dataclass
class Account:
    """All that clients saw."""

    sent: dict[MessageId, Sent] = field(default_factory=dict)
    inboxes: list[Inbox] = field(default_factory=list)

    @property
    def received(self) -> int:
        """How many copies came, to all together."""
        return sum(inbox.got.total() for inbox in self.inboxes)

    @property
    def doubled(self) -> list[tuple[str, MessageId]]:
        """Copies beyond the first, by the connection that got them."""
        return [
            (inbox.login, one)
            for inbox in self.inboxes
            for one, times in inbox.got.items()
            if times - inbox.marked[one] > 1
        ]

    def roster(self) -> dict[Claim, str]:
        """The login behind each number of a subscriber that is known."""
        return {(inbox.wish.broker, inbox.number): inbox.login for inbox in self.inboxes if inbox.number}

    def got_by(self) -> dict[MessageId, set[tuple[int, int | str]]]:
        """Who got each message so far."""
        found: dict[MessageId, set[tuple[int, int | str]]] = {}
        for inbox in self.inboxes:
            for one in inbox.got:
                found.setdefault(one, set()).add((inbox.wish.broker, inbox.login))
        return found

    def fact(
        self,
        identity: MessageId,
        received: Collection[tuple[int, int | str]],
        *,
        final: bool,
        owed: Collection[tuple[int, int | str]] = (),
    ) -> Fact:
        """What clients know of a message.

        Args:
            identity: the message.
            received: who got it.
            final: nothing more comes, so that who did not get it never will.
            owed: who was promised it and did not get it.
        """
        sent = self.sent.get(identity)
        entered: bool | None = True if received or (sent is not None and sent.confirmed) else None
        missed: set[tuple[int, int | str]] = set()
        if final:
            missed = {(one.wish.broker, one.login) for one in self.inboxes if one.whole and one.wish.reads}
        return Fact(entered, frozenset(received), frozenset(missed - set(received)), owed=frozenset(owed))


class Traffic:
    """Publishers and subscribers, until told to stop.

    Args:
        fleet: the network.
        wishes: subscribers; each subscribes again when its connection is lost, as another one.
        publishers: the brokers at which somebody publishes.
        rate: messages a second of each publisher.
        chance: draws prices and batches.
    """

    def __init__(
        self, fleet: Fleet, wishes: list[Wish], publishers: list[int], rate: float, chance: random.Random
    ) -> None:
        self.account = Account()
        self._fleet = fleet
        self._wishes = wishes
        self._publishers = publishers
        self._rate = rate
        self._chance = chance
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []
        self._logins = 0

    async def subscribe(self) -> None:
        """Have all subscribers in place."""
        ready: list[asyncio.Event] = []
        for wish in self._wishes:
            ready.append(asyncio.Event())
            self._tasks.append(asyncio.create_task(self._subscribed(wish, ready[-1].set)))
        async with asyncio.timeout(60):
            for event in ready:
                await event.wait()

    def publish(self) -> None:
        """Begin to publish."""
        self._publishing += [asyncio.create_task(self._published(broker)) for broker in self._publishers]

    async def stop_publishing(self) -> None:
        """Publish nothing more."""
        for task in self._publishing:
            task.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)
        self._publishing.clear()

    async def quiet(self) -> None:
        """Wait until nothing more comes."""
        end = time.monotonic() + LONGEST_QUIET_SECONDS
        count, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < end:
            if self.account.received != count:
                count, since = self.account.received, time.monotonic()
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Nobody listens any more; whose connection was whole until now keeps that mark."""
        await self.stop_publishing()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _login(self, kind: str) -> str:
        self._logins += 1
        return f"{kind}-{self._logins}"

    # --- subscribers ----------------------------------------------------------------------------------------------

    async def _subscribed(self, wish: Wish, ready: Callable[[], None]) -> None:
        while True:
            with contextlib.suppress(PostroadError, OSError, TimeoutError):
                await self._one_subscription(wish, ready)
            await asyncio.sleep(RETRY_SECONDS)

    async def _one_subscription(self, wish: Wish, ready: Callable[[], None]) -> None:
        login = wish.durable or self._login("reader")
        client = connect(self._fleet.address(wish.broker), login=login, timeout=CLIENT_SECONDS, ids="broker")
        async with client:
            ack: AckMode = "client-individual" if wish.acknowledges else "auto"
            queue = 1_000_000 if wish.reads else 1
            overflow: Overflow | None = "drop-oldest" if wish.sheds else None
            subscription = client.subscribe(
                "quotes.>",
                f"price < {wish.below}",
                ack=ack,
                overflow=overflow,
                queue=queue,
                durable=wish.durable or None,
            )
            await subscription.start()
            # The brokers here have no users, and mark logins accordingly.
            inbox = Inbox(principal_of(login, verified=False), wish, time.monotonic())
            self.account.inboxes.append(inbox)
            inbox.number = await self._number(inbox)
            ready()
            try:
                if not wish.reads:
                    await asyncio.Event().wait()
                async for message in subscription:
                    # A copy that the broker itself marks as perhaps the second is not held against it.
                    inbox.got[message.id] += 1
                    inbox.marked[message.id] += MARK in message.attributes
                    if wish.acknowledges:
                        await client.ack(message)
                # The broker, or the way to it, has gone.
                inbox.whole = False
            except (PostroadError, OSError, TimeoutError):
                inbox.whole = False
                raise

    async def _number(self, inbox: Inbox) -> int:
        """The subscriber's number in the record, as its broker has it now."""
        with contextlib.suppress(OSError, ValueError, KeyError, TimeoutError):
            status = await self._fleet.document(inbox.wish.broker, "/status")
            for session in status["sessions"]:
                if session["principal"] == inbox.login:
                    return int(session["subscriptions"][0]["number"])
        return 0

    # --- publishers -----------------------------------------------------------------------------------------------

    async def _published(self, broker: int) -> None:
        while True:
            with contextlib.suppress(PostroadError, OSError, TimeoutError):
                client = connect(self._fleet.address(broker), login=self._login("feed"), timeout=CLIENT_SECONDS)
                async with client:
                    await self._publish_on(client)
            await asyncio.sleep(RETRY_SECONDS + LEARN_SECONDS)

    async def _publish_on(self, client: Client) -> None:
        unconfirmed: list[MessageId] = []
        while True:
            prices = [self._chance.randrange(PRICES) for _ in range(self._chance.choice((1, 2, 8)))]
            drafts = [Draft(TOPIC, {"price": price}, {}, b"truth") for price in prices]
            now = time.monotonic()
            ids = await client.publish_many(drafts)
            for one, price in zip(ids, prices, strict=True):
                self.account.sent[one] = Sent(now, price)
            unconfirmed += ids
            price = self._chance.randrange(PRICES)
            last = await client.publish(TOPIC, {"price": price}, b"truth", receipt=True)
            assert last is not None
            # A broker reads a connection in order: a receipt for this one is a receipt for those before it.
            self.account.sent[last] = Sent(now, price, confirmed=True)
            for one in unconfirmed:
                self.account.sent[one].confirmed = True
            unconfirmed.clear()
            await asyncio.sleep(len(drafts) / self._rate)
