"""Asks the running network where a message went: this broker's own record, and those of others over links."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from postroad.broker.questions import QuestionError, Questions
from postroad.tracking import AnswerError, Reconstruction, decode_answer, encode_answer, with_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from postroad.broker.questions import Said
    from postroad.messages import MessageId
    from postroad.routing.link_state_records import Seals
    from postroad.tracking import Answer, Exploration, NamedJourney

__all__ = ["ANSWER_SECONDS", "Inquiry"]

log = logging.getLogger("postroad.tracking")

# How long a trace waits for brokers that do not answer, in all: the user waits, and files answer for
# the others. A broker that lives needs a few reads of its disk, and the way there and back.
ANSWER_SECONDS = 1.0
# A broker that is asked late has at least this long to answer.
LEAST_SECONDS = 0.3
# After this the files of a broker are read, and those asked that they name, while it may still answer itself.
HEDGE_SECONDS = 0.15
# Questions of other brokers answered at once; more are not answered, and their askers say so.
MOST_ANSWERS = 64
# Of these, of one asker: the others are left for the others.
MOST_OF_ASKER = 16


class QuestionLinks(Protocol):
    """The links, as an inquiry needs them."""

    @property
    def up(self) -> frozenset[int]:
        """The neighbours whose links work."""

    def ask(self, number: int, payload: bytes) -> None:
        """Send a neighbour a question or an answer."""

    def refused(self, number: int, reason: str) -> None:
        """Count what a neighbour sent and is not believed."""


class Inquiry:
    """Questions about messages, asked and answered by one broker.

    Args:
        broker: this broker.
        epoch: when it was started.
        own: this broker's own answer.
        clock: the time in ms.
        links: the links to other brokers; None for a broker alone.
        topology: the neighbours of other brokers, as far as this one knows.
        written: what a broker that does not answer has written of a message, as far as this one can read it.
        seals: signs questions and answers, and checks those of others; None if brokers have no keys.
    """

    def __init__(
        self,
        broker: int,
        epoch: int,
        own: Callable[[MessageId], Awaitable[Answer]],
        clock: Callable[[], int],
        links: QuestionLinks | None = None,
        topology: Callable[[], Mapping[int, Collection[int]]] = dict,
        written: Callable[[int, MessageId], Awaitable[Answer | None]] | None = None,
        seals: Seals | None = None,
    ) -> None:
        self._broker = broker
        self._questions = Questions(broker, epoch, seals)
        self._own = own
        self._clock = clock
        self._links = links
        self._topology = topology
        self._written = written
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        # Answers that are being found, and who asked.
        self._answering: dict[asyncio.Task[None], int] = {}

    async def trace(self, message: MessageId, exploration: Exploration = "relayed") -> NamedJourney:
        """Where a message went, asked broker by broker from its origin.

        A broker that does not answer does not delay the others: what it has written is used in the meantime, and
        its own answer takes the place of that if it comes in time.
        """
        work = Reconstruction(message, exploration, self._topology())
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        answers: dict[int, Answer] = {}
        live: dict[asyncio.Task[Answer | None], int] = {}
        files: dict[asyncio.Task[Answer | None], int] = {}
        asked: set[int] = set()
        try:
            while True:
                for broker in work.to_ask():
                    if broker not in asked:
                        asked.add(broker)
                        task = asyncio.create_task(self._ask(broker, message, until))
                        live[task] = broker
                        files[asyncio.create_task(self._ask_files(broker, message, task))] = broker
                if not live and not files:
                    break
                done, _ = await asyncio.wait({*live, *files}, return_when=asyncio.FIRST_COMPLETED)
                # A broker's own answer first: what its files say does not take the place of that.
                for task in sorted(done, key=lambda one: one in files):
                    is_live = task in live
                    broker, answer = live.pop(task) if is_live else files.pop(task), task.result()
                    if answer is not None and (is_live or broker not in answers):
                        answers[broker] = answer
                        work.tell(broker, answer.findings)
                    elif not is_live and broker not in answers:
                        work.tell(broker, None)
        finally:
            for task in (*live, *files):
                task.cancel()
        return with_names(work.journey(), answers.values())

    async def _ask(self, broker: int, message: MessageId, until: float) -> Answer | None:
        """A broker's own answer, or None when it has given none by then."""
        if broker == self._broker:
            return await self._own(message)
        return None if self._links is None else await self._ask_over(self._links, broker, message, until)

    async def _ask_files(self, broker: int, message: MessageId, live: asyncio.Task[Answer | None]) -> Answer | None:
        """What a broker has written, once it has been silent for a moment; None if it answers in the meantime."""
        if broker == self._broker:
            await asyncio.wait({live})
            return None
        await asyncio.wait({live}, timeout=HEDGE_SECONDS)
        if (live.done() and live.result() is not None) or self._written is None:
            return None
        return await self._written(broker, message)

    async def _ask_over(self, links: QuestionLinks, broker: int, message: MessageId, until: float) -> Answer | None:
        if not links.up:
            # Nobody hears the question.
            return None
        number, said = self._questions.ask(broker, message, links.up, self._clock())
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(said)
            left = until - asyncio.get_running_loop().time()
            answer = decode_answer(await asyncio.wait_for(future, max(left, LEAST_SECONDS)))
        except (TimeoutError, AnswerError) as error:
            log.warning("no answer", extra={"asked": broker, "id": str(message), "reason": str(error) or "timeout"})
            return None
        finally:
            del self._waiting[number]
        return answer if answer.findings.broker == broker else None

    def received(self, payload: bytes, link: int) -> None:
        """A question or an answer came over a link.

        Raises:
            QuestionError: it is neither, or was not signed by the broker that it claims to be of.
        """
        assert self._links is not None
        said = self._questions.receive(payload, link, self._links.up, self._clock())
        self._send(said)
        if said.refused:
            self._links.refused(link, said.refused)
        if said.asked is not None and self._has_room(said.asked[0][0]):
            task = asyncio.create_task(self._answer(*said.asked))
            self._answering[task] = said.asked[0][0]
            task.add_done_callback(self._answering.pop)
        if said.answered is not None:
            number, answer = said.answered
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(answer)

    def _has_room(self, asker: int) -> bool:
        """Whether another question of a broker is answered now."""
        of_asker = sum(one == asker for one in self._answering.values())
        return len(self._answering) < MOST_ANSWERS and of_asker < MOST_OF_ASKER

    async def _answer(self, key: tuple[int, int, int], message: MessageId) -> None:
        try:
            answer = encode_answer(await self._own(message))
            assert self._links is not None
            self._send(self._questions.answer(key, answer, self._links.up, self._clock()))
        except QuestionError as error:
            log.warning("answer not sent", extra={"id": str(message), "reason": str(error)})

    def _send(self, said: Said) -> None:
        assert self._links is not None
        for link, data in said.sends:
            self._links.ask(link, data)

    async def stop(self) -> None:
        """Answer nothing more."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
