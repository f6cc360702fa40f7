"""Brokers that are killed at any moment: what the record has of the messages whose receipts they gave.

Without a journal the last records are gone, and a reader says so. With one, nothing is missing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from postroad.messages import MessageId
from postroad.protocols.stomp import FrameReader, encode_frame
from postroad.recording.writer import LOOK_SECONDS
from postroad.tracking import Verdict
from postroad.trail import Trail, pin
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# After its first commit a broker lives on for up to this long: some commits more.
LONGEST_LIFE_SECONDS = 0.6
PERSIST_SECONDS = 0.1
# Where what a crash takes is measured: far more than a commit takes.
LONG_PERSIST_SECONDS = 1.0
# A commit that happens to be disturbed, on a machine with much else to do and a slow disk.
SLOW_COMMIT_MS = 5_000
# Messages under way: some batches of them.
WINDOW = 200


class Life(NamedTuple):
    """What a client saw of one life of a broker: ids in receipts, and bodies that came back."""

    confirmed: list[MessageId]
    received: int


class Nursery:
    """Starts brokers on one data directory, and kills them."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, tracking: str) -> None:
        self._process = process
        self._settings = folder / "broker.toml"
        self._settings.write_text(f"port = 0\ndata = '{folder}'\n[tracking]\n{tracking}\n")
        self.trail = folder / "trail"

    @contextmanager
    def broker(self) -> Iterator[int]:
        """A broker on the port answered; at the end of the context it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out = self._settings.with_suffix(".stdout")
        out.unlink(missing_ok=True)
        self._process.stdin.write(f"{self._settings}\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        try:
            wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
            yield int(json.loads(out.read_text())["stomp"].rpartition(":")[2])
        finally:
            os.kill(pid, signal.SIGKILL)
            assert self._process.stdout.readline() == "ended\n"

    def life(self, chance: random.Random, longest: float = LONGEST_LIFE_SECONDS) -> Life:
        """Publish with receipts from the start to the end of a life, which comes without warning."""
        began = self._commits()
        with self.broker() as port:
            client = Publisher(port)
            wait_until(lambda: client.go_on() and self._commits() > began + 1 and self._has(client.first))
            end = time.monotonic() + chance.random() * longest
            while time.monotonic() < end:
                client.go_on()
        return client.last_words()

    def _commits(self) -> int:
        return pin(self.trail, 1).number if self.trail.exists() else 0

    def _has(self, message: MessageId | None) -> bool:
        return message is not None and pin(self.trail, 1).runs[-1].through >= message.time


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 3 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Publisher:
    """Publishes to its own subscription, each message with a receipt, a window of them at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._frames = FrameReader()
        self._sent = 0
        self._confirmed: list[MessageId] = []
        self._received = 0
        self._say("CONNECT", {"accept-version": "1.2", "host": "here"})
        self._say("SUBSCRIBE", {"id": "1", "destination": "/topic/quotes"})

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._socket.sendall(encode_frame(command, headers, body))

    @property
    def first(self) -> MessageId | None:
        """The message whose receipt came first."""
        return self._confirmed[0] if self._confirmed else None

    def go_on(self) -> bool:
        """Fill the window, and take what came."""
        while self._sent < len(self._confirmed) + WINDOW:
            self._sent += 1
            headers = {"destination": "/topic/quotes", "receipt": str(self._sent)}
            self._say("SEND", headers, b"%d" % self._sent)
        return self._take()

    def _take(self) -> bool:
        data = self._socket.recv(1 << 16)
        for frame in self._frames.receive(data):
            if frame.command == "RECEIPT" and "message-id" in frame.headers:
                assert "tracked" not in frame.headers
                self._confirmed.append(MessageId.parse(frame.headers["message-id"]))
            self._received += frame.command == "MESSAGE"
            assert frame.command != "ERROR", frame
        return bool(data)

    def last_words(self) -> Life:
        """What was under way when the broker was killed."""
        try:
            while self._take():
                pass
        except ConnectionError:
            pass
        self._socket.close()
        return Life(self._confirmed, self._received)


@pytest.fixture(scope="module")
def brokers() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.server.lives"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE)


def chosen(life: Life, chance: random.Random) -> list[MessageId]:
    """Those confirmed last, which a crash hits, and some of all others."""
    some = min(30, len(life.confirmed))
    return [*chance.sample(life.confirmed, some), *life.confirmed[-70:]]


def slowest_commit(trail: Path, since: int, through: int) -> int:
    """How long, in ms, the files of one commit took to be on disk, at most: by the manifest's own word of each time."""
    taken = [0]
    for change in (trail / "manifests" / "broker=1").glob("????????????.json"):
        stands = json.loads(change.read_bytes().split(b"\n", 1)[1])["run"]
        if stands is not None and since < stands[2] <= through:
            taken.append(change.stat().st_mtime_ns // 1_000_000 - stands[2])
    return max(taken)


def spread(messages: list[MessageId], many: int) -> list[MessageId]:
    """Some of them, from all over, with the first and the last."""
    return messages[:: len(messages) // many + 1] + messages[-1:]


@pytest.mark.parametrize(("recorder", "kills"), [("exact", 2), ("sealed", 2), ("bloom", 1)])
def test_without_a_journal_a_crash_takes_no_more_than_the_last_interval_and_a_reader_names_it(
    tmp_path: Path, brokers: subprocess.Popen[str], recorder: str, kills: int
) -> None:
    nursery = Nursery(brokers, tmp_path, f"persist_seconds = {LONG_PERSIST_SECONDS}\nrecorder = '{recorder}'")
    chance = random.Random(5)
    lives = [nursery.life(chance, LONG_PERSIST_SECONDS) for _ in range(kills)]
    trail = Trail(nursery.trail)
    runs = trail.pinned(1).runs
    assert len(runs) == len(lives)
    for life, run in zip(lives, runs, strict=True):
        assert not run.closed
        # The commit that was under way may take twice what the slowest took, on a machine that has other things to do.
        files = max(SLOW_COMMIT_MS, 2 * slowest_commit(nursery.trail, run.since, run.through))
        lost_at_most = round(1_000 * (LONG_PERSIST_SECONDS + LOOK_SECONDS)) + files
        written = [message for message in life.confirmed if message.time <= run.through]
        lost = [message for message in life.confirmed if message.time > run.through]
        assert written
        assert life.confirmed[-1].time - run.through <= lost_at_most
        for message in spread(written, 60):
            found = trail.findings(1, message, tolerance=0, skew=0)
            assert found.accepted is not None
            assert found.gaps == ()
        for message in spread(lost, 60):
            found = trail.findings(1, message, tolerance=0, skew=0)
            # A message of the millisecond in which the last commit began may be in it: then only what became of it
            # later can be missing.
            # Later ends count as well: what is not on record may have come then, after a wait elsewhere.
            gap = min({*found.gaps, *found.ends})
            assert found.gaps or found.accepted
            assert gap.since <= message.time < gap.until
        for message in [*spread(written, 20), *spread(lost, 20)]:
            verdict = trail.trace(message).journey.verdict
            assert verdict in (Verdict.DELIVERED, Verdict.RECORDED_IN_PART, Verdict.NOT_RECORDED)
    assert trail.warnings == []


@pytest.mark.parametrize("journal", [False, True])
def test_what_a_killed_broker_has_on_disk_is_told_for_certain_before_it_starts_again(
    tmp_path: Path, brokers: subprocess.Popen[str], journal: bool
) -> None:
    nursery = Nursery(brokers, tmp_path, f"persist_seconds = {PERSIST_SECONDS}\njournal = {str(journal).lower()}")
    life = nursery.life(random.Random(7))
    trail = Trail(nursery.trail)
    # With a journal that is all that has a receipt, otherwise what was committed; the broker died a moment later.
    known = [one for one in life.confirmed if journal or one.time <= trail.pinned(1).runs[-1].through]
    for message in [*spread(known, 30), *known[-30:]]:
        journey = trail.trace(message).journey
        assert (journey.verdict, journey.certainty, journey.gaps) == (Verdict.DELIVERED, 1.0, ())
    after = MessageId(life.confirmed[-1].publisher, 1, life.confirmed[-1].time + 60_000, 0)
    assert trail.trace(after).journey.verdict is Verdict.NOT_RECORDED


@pytest.mark.parametrize(("recorder", "kills"), [("exact", 3), ("sealed", 1)])
def test_with_a_journal_nothing_whose_receipt_was_given_is_missing(
    tmp_path: Path, brokers: subprocess.Popen[str], recorder: str, kills: int
) -> None:
    settings = f"persist_seconds = {PERSIST_SECONDS}\njournal = true\nrecorder = '{recorder}'"
    nursery = Nursery(brokers, tmp_path, settings)
    chance = random.Random(6)
    lives = [nursery.life(chance) for _ in range(kills)]
    with nursery.broker():
        pass  # recovers what the last one left
    trail = Trail(nursery.trail)
    for life in lives:
        assert life.confirmed
        for message in chosen(life, chance):
            found = trail.findings(1, message, tolerance=0, skew=0)
            assert found.accepted is not None
            assert found.delivered
        story = trail.trace(chance.choice(life.confirmed))
        assert [stop.broker for stop in story.journey.stops] == [1]
    assert trail.warnings == []
