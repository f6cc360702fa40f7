"""Two brokers and a pipe between them that cuts anywhere, under a model that remembers everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from postroad.messages import Batch, Draft
from postroad.protocols.link import (
    CUSTODY,
    Data,
    Heard,
    Identity,
    LinkConversation,
    LinkReceiver,
    LinkSender,
    Neighbour,
    SenderLimits,
    decode_data,
)

LIMITS = SenderLimits(bytes=3_000, rows=12, frames=6, frame_bytes=500)
SECRET = b"shared by both ends"
SETS = np.array([[6]], np.uint64)


def _neighbour_of(end: Process, _: int) -> Neighbour:
    return end.neighbour


def texts(data: Data) -> list[str]:
    return [message.body.decode() for message in data.batch]


@dataclass
class Process:
    """One incarnation of a broker, with what happened to it."""

    number: int
    epoch: int
    custody: bool
    neighbour: Neighbour = field(init=False)
    conversation: LinkConversation | None = None
    taken: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    # Per epoch of the peer, in order.
    received: dict[int, list[str]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    unsettled: list[tuple[int, int, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sender = LinkSender(self.epoch, custody=self.custody, limits=LIMITS)
        self.neighbour = Neighbour(sender, LinkReceiver(every_frames=3, every_ms=20))

    def held(self) -> list[str]:
        return [text for held in self.neighbour.sender._held.values() for text in texts(decode_data(held.frame))]

    def identity(self) -> Identity:
        return Identity(self.number, self.epoch, "net", 1, SECRET, CUSTODY if self.custody else 0, 100)

    def hear(self, heard: Heard) -> None:
        receiver = self.neighbour.receiver
        for frame in heard.frames:
            assert isinstance(frame, Data)
            self.received.setdefault(receiver.epoch, []).extend(texts(frame))
            self.unsettled.append((receiver.epoch, frame.number, texts(frame)))
        for data in heard.returned:
            self.returned += texts(data)

    def settle(self, which: int) -> None:
        if self.unsettled:
            epoch, number, done = self.unsettled.pop(which % len(self.unsettled))
            self.neighbour.receiver.settle(epoch, number)
            self.settled.update(done)


class World:
    """Both ends, and what is on its way between them."""

    def __init__(self, custody: bool) -> None:
        self.custody = custody
        self.now = 1_000
        self.count = 0
        self.ends = [Process(1, 1_001, custody), Process(2, 1_002, custody)]
        self.past: list[Process] = []
        self.on_the_way = [bytearray(), bytearray()]  # to end 0, to end 1

    def unique(self) -> int:
        self.count += 1
        return self.count

    def send(self, side: int, rows: int) -> None:
        end = self.ends[side]
        names = [f"{end.number}/{end.epoch}/{self.unique()}" for _ in range(rows % 4 + 1)]
        batch = Batch.build([Draft("a.b", body=name.encode()) for name in names])
        sent = end.neighbour.sender.send(batch, np.arange(len(batch)), SETS, np.zeros(len(batch), np.int64), 1)
        end.taken += names[: sent.taken]
        if sent.frames:
            self.write(side, sent.frames)

    def write(self, side: int, output: list[Any]) -> None:
        for data in output:
            self.on_the_way[1 - side] += data

    def connect(self, side: int, _: int = 0) -> None:
        """A new connection, dialled by one side; an older one is cut."""
        self.cut(side)
        for place, end in enumerate(self.ends):
            end.conversation = LinkConversation(
                end.identity(),
                partial(_neighbour_of, end),
                dialling=place == side,
                nonce=self.unique().to_bytes(32, "big"),
                now=self.now,
                expected={3 - end.number},
            )
            self.write(place, [end.conversation.begin()])

    def deliver(self, side: int, size: int) -> None:
        """Some bytes arrive at one end."""
        end = self.ends[side]
        data = bytes(self.on_the_way[side][:size])
        del self.on_the_way[side][:size]
        if data and end.conversation is not None:
            heard = end.conversation.receive(data, self.now)
            assert heard.error is None, heard.error
            end.hear(heard)
            self.write(side, heard.output)

    def exchange(self, side: int, size: int) -> None:
        """Bytes go both ways while time passes, so that handshakes get done and progress is told."""
        for step in range(4):
            self.deliver((side + step) % 2, size + 100)
            self.tick((side + step) % 2, 11)

    def cut(self, side: int, size: int = 0) -> None:
        """The connection goes. A last piece may still arrive at one end; the rest is lost."""
        self.deliver(side, size)
        for end in self.ends:
            if end.conversation is not None:
                end.conversation.closed()
            end.conversation = None
        self.on_the_way = [bytearray(), bytearray()]

    def restart(self, side: int, _: int = 0) -> None:
        self.cut(side)
        old = self.ends[side]
        self.past.append(old)
        self.ends[side] = Process(old.number, old.epoch + 1_000, self.custody)

    def give_up(self, side: int, _: int = 0) -> None:
        end = self.ends[side]
        if end.conversation is None:
            for data in end.neighbour.sender.give_up():
                end.returned += texts(data)

    def settle(self, side: int, which: int) -> None:
        self.ends[side].settle(which)

    def tick(self, side: int, elapsed: int) -> None:
        self.now += elapsed % 60
        end = self.ends[side]
        if end.conversation is not None:
            heard = end.conversation.tick(self.now)
            if heard.error is not None:
                self.cut(side)
            else:
                self.write(side, heard.output)

    def drain(self) -> None:
        """Connect for good, let everything arrive, settle everything, tell everything."""
        self.connect(0)
        for _ in range(40):
            self.now += 25
            for side in (0, 1):
                self.deliver(side, 1_000_000)
                while self.ends[side].unsettled:
                    self.ends[side].settle(0)
                self.tick(side, 0)

    def check(self) -> None:
        """What must hold at any time."""
        for end in self.ends:
            peers = [process for process in (*self.past, *self.ends) if process.number != end.number]
            received = [text for peer in peers for text in peer.received.get(end.epoch, [])]
            for peer in peers:
                got = peer.received.get(end.epoch, [])
                assert len(got) == len(set(got))
                assert got == [text for text in end.taken if text in set(got)]
            held = end.held()
            freed = set(end.taken) - set(held) - set(end.returned)
            promised = set().union(*(peer.settled for peer in peers)) if self.custody else set(received)
            assert freed <= promised
            assert len(end.returned) == len(set(end.returned))
            assert not set(held) & set(end.returned)
            found = end.neighbour.sender.statistics()
            assert found.held_rows == len(held) <= LIMITS.rows
            assert found.held_bytes <= LIMITS.bytes
            assert found.held_frames <= LIMITS.frames
            receiver = end.neighbour.receiver
            assert receiver.settled <= receiver.received
