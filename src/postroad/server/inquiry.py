"""Asking the running network where a message went: this broker's own record, and others' over the links."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from postroad.broker.questions import QuestionError, Questions
from postroad.tracking import AnswerError, Reconstruction, decode_answer, encode_answer, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from postroad.broker.questions import Said
    from postroad.messages import MessageId
    from postroad.tracking import Answer, Exploration, Told

__all__ = ["ANSWER_SECONDS", "Inquiry"]

log = logging.getLogger("postroad.tracking")

# How long another broker may take: a few reads of its disk, and the way there and back. After that it counts as silent.
ANSWER_SECONDS = 3.0
# Questions of other brokers answered at once; more are not answered, and their askers say so.
MOST_ANSWERS = 64


class Lines(Protocol):
    """The links, as an inquiry needs them."""

    @property
    def up(self) -> frozenset[int]:
        """The neighbours whose links work."""

    def ask(self, number: int, payload: bytes) -> None:
        """Send a neighbour a question or an answer."""


class Inquiry:
    """Questions about messages, asked and answered by one broker.

    Args:
        broker: this broker.
        epoch: when it was started.
        own: this broker's own answer.
        clock: the time in ms.
        lines: the links to other brokers; None for a broker alone.
        topology: the neighbours of other brokers, as far as this one knows.
        written: what a broker that does not answer has written of a message, as far as this one can read it.
    """

    def __init__(
        self,
        broker: int,
        epoch: int,
        own: Callable[[MessageId], Awaitable[Answer]],
        clock: Callable[[], int],
        lines: Lines | None = None,
        topology: Callable[[], Mapping[int, Collection[int]]] = dict,
        written: Callable[[int, MessageId], Awaitable[Answer | None]] | None = None,
    ) -> None:
        self._broker = broker
        self._questions = Questions(broker, epoch)
        self._own = own
        self._clock = clock
        self._lines = lines
        self._topology = topology
        self._written = written
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def trace(self, message: MessageId, exploration: Exploration = "next-hops") -> Told:
        """Where a message went, asked broker by broker from its origin."""
        work = Reconstruction(message, exploration, self._topology())
        answers: list[Answer] = []
        while asked := work.to_ask():
            for broker, answer in zip(
                asked, await asyncio.gather(*(self._ask(b, message) for b in asked)), strict=True
            ):
                work.tell(broker, None if answer is None else answer.findings)
                if answer is not None:
                    answers.append(answer)
        return told(work.journey(), answers)

    async def _ask(self, broker: int, message: MessageId) -> Answer | None:
        if broker == self._broker:
            return await self._own(message)
        answer = None if self._lines is None else await self._ask_over(self._lines, broker, message)
        if answer is None and self._written is not None:
            return await self._written(broker, message)
        return answer

    async def _ask_over(self, lines: Lines, broker: int, message: MessageId) -> Answer | None:
        if not lines.up:
            # Nobody hears the question.
            return None
        number, said = self._questions.ask(broker, message, lines.up, self._clock())
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(said)
            answer = decode_answer(await asyncio.wait_for(future, ANSWER_SECONDS))
        except (TimeoutError, AnswerError) as error:
            log.warning("no answer", extra={"asked": broker, "id": str(message), "reason": str(error) or "timeout"})
            return None
        finally:
            del self._waiting[number]
        return answer if answer.findings.broker == broker else None

    def received(self, payload: bytes, link: int) -> None:
        """A question or an answer came over a link.

        Raises:
            QuestionError: it is neither.
        """
        assert self._lines is not None
        said = self._questions.receive(payload, link, self._lines.up, self._clock())
        self._send(said)
        if said.asked is not None and len(self._answering) < MOST_ANSWERS:
            task = asyncio.create_task(self._answer(*said.asked))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        if said.answered is not None:
            number, answer = said.answered
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(answer)

    async def _answer(self, key: tuple[int, int, int], message: MessageId) -> None:
        try:
            answer = encode_answer(await self._own(message))
            self._send(self._questions.answer(key, answer, self._clock()))
        except QuestionError as error:
            log.warning("answer not sent", extra={"id": str(message), "reason": str(error)})

    def _send(self, said: Said) -> None:
        assert self._lines is not None
        for link, data in said.sends:
            self._lines.ask(link, data)

    async def stop(self) -> None:
        """Answer nothing more."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
