"""A slow and obvious twin of the store, and the checks of what a crash leaves against it.

The owner keeps, for each cursor, which messages matched it, which of them it was told are safe, and which it settled.
A disk that is looked at between any two steps must hold what that allows, and nothing else.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from postroad.messages import Batch, Draft, MessageId
from postroad.store import Log, SimulatedDisk, StoreSettings, StoreWriteError, carry_out, recover
from postroad.store.row_sets import RowSet, runs_of, subtract

if TYPE_CHECKING:
    from postroad.store import Cursor, DiskCommit, Taken

BROKER = 7

# A message of a cursor, whether it counts as tried, how often it came back, and what is noted of it.
Waiting = tuple[tuple[int, int], bool, int, bytes]


def batch_of(publisher: int, first: int, count: int, size: int = 20) -> Batch:
    """Messages of one publisher, numbered; the body says which message it is."""
    return Batch.build(
        Draft("orders.new", {"n": n}, (("h", str(n)),), body(publisher, n, size), MessageId(publisher, BROKER, 1, n))
        for n in range(first, first + count)
    )


def body(publisher: int, number: int, size: int) -> bytes:
    return (b"%d/%d " % (publisher, number)).ljust(size, b".")


Fsync = Literal["always", "interval", "never"]


class Expected:
    """What one cursor may and must have. Messages are (publisher, number)."""

    def __init__(self) -> None:
        self.matched: list[tuple[int, int]] = []
        # All that it ever had, also before crashes.
        self.ever: set[tuple[int, int]] = set()
        self.position: dict[tuple[int, int], int] = {}
        self.handed: set[tuple[int, int]] = set()
        self.settled: set[tuple[int, int]] = set()
        self.settled_for_sure: set[tuple[int, int]] = set()
        self.tries: dict[tuple[int, int], int] = {}
        self.tries_for_sure: dict[tuple[int, int], int] = {}
        self.notes: dict[tuple[int, int], bytes] = {}
        self.is_sure = False
        self.ended = False
        self.ended_for_sure = False


class Owner:
    """Uses a store as a broker does, at random, and knows what has to come back.

    Args:
        seed: of all that is random.
        fsync: the setting.
        power: crashes are of the machine; without, of the process.
        samples: how many ways unsynced writes can go are looked at between any two steps.
    """

    def __init__(self, seed: int, fsync: Fsync = "always", power: bool = True, samples: int = 2) -> None:
        self.random = random.Random(seed)
        self.power = power
        self.samples = samples
        self.settings = StoreSettings(fsync=fsync, segment_bytes=4096, cache_bytes=8_000, interval_ms=50)
        self.disk = SimulatedDisk()
        self.log = Log(self.settings)
        self.expected: dict[int, Expected] = {}
        self.next_cursor = 1
        self.sent: dict[int, int] = {}
        self.order: dict[tuple[int, int], int] = {}
        # Messages that went from one cursor to another since the last crash.
        self.transfers: list[tuple[tuple[int, int], int, int]] = []
        self.now = 1_000
        self.crash_points = 0
        self._watch()

    def _watch(self) -> None:
        self.disk.boundary = lambda _: self.look()

    # --- what it does ------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One random thing."""
        self.now += self.random.randrange(20)
        names = ["publish"] * 6 + ["take"] * 6 + ["commit"] * 4 + ["choose"] * 3
        names += ["open", "leave", "end", "fail", "restart", "full"]
        getattr(self, self.random.choice(names))()

    def durable(self) -> list[Cursor]:
        return [each for each in self.log.cursors.values() if each.durable]

    def open(self) -> None:
        if len(self.log.cursors) < 5:
            cursor = self.log.open_cursor(self.next_cursor, b"terms %d" % self.next_cursor, self.random.random() < 0.8)
            if cursor.durable:
                self.expected[self.next_cursor] = Expected()
                self.log.attach(cursor)
            self.next_cursor += 1

    def end(self) -> None:
        if self.durable() and self.random.random() < 0.3:
            cursor = self.random.choice(self.durable())
            self.log.end_cursor(cursor)
            self.expected[cursor.number].ended = True

    def publish(self) -> None:
        if not self.log.cursors:
            return
        publisher, count = self.random.randrange(1, 4), self.random.randrange(1, 9)
        first = self.sent.get(publisher, 0)
        self.sent[publisher] = first + count
        batch = batch_of(publisher, first, count, self.random.choice([5, 20, 300]))
        matches = []
        for cursor in self.log.cursors.values():
            rows = np.array([row for row in range(count) if self.random.random() < 0.7], np.int64)
            if len(rows):
                matches.append((cursor, rows))
        if not matches:
            return
        position = self.log.append(batch, matches, self.now)
        self.order.update({(publisher, first + row): len(self.order) for row in range(count)})
        for cursor, rows in matches:
            if cursor.durable:
                expected = self.expected[cursor.number]
                for row in rows.tolist():
                    expected.matched.append((publisher, first + row))
                    expected.ever.add((publisher, first + row))
                    expected.position[publisher, first + row] = position

    def take(self) -> None:
        # Nobody takes rows from a cursor that its client has left.
        cursors = [each for each in self.log.cursors.values() if each.attached or not each.durable]
        if not cursors:
            return
        cursor = self.random.choice(cursors)
        for taken in self.pull(cursor, self.random.randrange(1, 12)):
            self.settle(cursor, taken)

    def choose(self) -> None:
        """Take some of the rows that wait, as consumers with selectors do; some are settled, some refused."""
        cursors = [each for each in self.durable() if each.attached]
        if not cursors:
            return
        cursor = self.random.choice(cursors)
        passed = RowSet()
        for _ in range(self.random.randrange(1, 4)):
            among = subtract(cursor.waiting.runs, passed.runs)
            shown = self.log.peek(cursor, among, 5)
            for read in self.log.take_reads():
                self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
            for taken in shown:
                wanted = np.array([self.random.random() < 0.5 for _ in taken.places])
                passed.add(runs_of(taken.places[~wanted]))
                if wanted.any():
                    self.log.take(cursor, taken.places[wanted])
                    self.answer(cursor, taken._replace(places=taken.places[wanted], rows=taken.rows[wanted]))

    def answer(self, cursor: Cursor, taken: Taken) -> None:
        """Rows were handed out: they are settled, come back, or go to another cursor."""
        expected = self.expected[cursor.number]
        messages = messages_of(taken)
        expected.handed.update(messages)
        if self.random.random() < 0.4:
            expected.settled.update(messages)
            self.log.settle(cursor, taken.places)
            return
        self.log.retry(cursor, taken.places)
        for message in messages:
            expected.tries[message] = expected.tries.get(message, 0) + 1
        assert cursor.tries_of(taken.places).tolist() == [expected.tries[message] for message in messages]
        others = [each for each in self.durable() if each is not cursor]
        if others and self.random.random() < 0.5:
            self.transfer(cursor, taken, self.random.choice(others))
        else:
            self.log.give_back(cursor, taken.places)

    def transfer(self, cursor: Cursor, taken: Taken, to: Cursor) -> None:
        source, target = self.expected[cursor.number], self.expected[to.number]
        messages = messages_of(taken)
        new = np.array([each not in target.ever for each in messages])
        self.log.give_back(cursor, taken.places[~new])
        note = self.random.choice([b"one", b"two"])
        self.log.transfer(cursor, taken.places[new], to, note)
        for message in [each for each, is_new in zip(messages, new, strict=True) if is_new]:
            source.settled.add(message)
            source.tries.pop(message)
            target.matched.append(message)
            target.ever.add(message)
            target.position[message] = self.log.position
            target.notes[message] = note
            self.transfers.append((message, cursor.number, to.number))

    def settle(self, cursor: Cursor, taken: Taken) -> None:
        chosen = np.array([self.random.random() < 0.7 for _ in taken.places])
        messages = messages_of(taken)
        if cursor.durable:
            expected = self.expected[cursor.number]
            expected.handed.update(messages)
            expected.settled.update(each for each, done in zip(messages, chosen, strict=True) if done)
        self.log.settle(cursor, taken.places[chosen])
        if self.random.random() < 0.5:
            self.log.give_back(cursor, taken.places[~chosen])

    def pull(self, cursor: Cursor, most: int) -> list[Taken]:
        found = self.log.pull(cursor, most)
        for read in self.log.take_reads():
            self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
        return found or self.log.pull(cursor, most)

    def leave(self) -> None:
        if self.durable():
            cursor = self.random.choice(self.durable())
            self.log.detach(cursor)
            if self.random.random() < 0.5:
                # What it wants may change while nobody takes rows; what was tried stays so.
                self.log.change_cursor(cursor, cursor.terms)
                self.commit()
            self.log.attach(cursor)

    def commit(self) -> None:
        settled = {number: set(each.settled) for number, each in self.expected.items()}
        ended = {number: each.ended for number, each in self.expected.items()}
        tries = {number: dict(each.tries) for number, each in self.expected.items()}
        known = {each.number for each in self.durable()}
        commit = self.log.take_commit(self.now)
        if commit is None:
            return
        for _ in range(self.random.choice([0, 0, 2])):
            # The loop goes on while the disk works.
            self.random.choice([self.publish, self.take])()
        try:
            carry_out(commit, self.disk)
        except StoreWriteError as error:
            self.log.failed(commit, str(error))
            return
        self.log.committed(commit)
        if commit.syncs or not self.power:
            for number, each in self.expected.items():
                each.settled_for_sure |= settled.get(number, set())
                each.ended_for_sure |= ended.get(number, False)
                each.is_sure |= number in known
                each.tries_for_sure = tries.get(number, {})

    def fail(self) -> None:
        """The disk fails for one commit."""
        self.disk.failing = True
        self.commit()
        self.disk.failing = False

    def full(self) -> None:
        """The disk is full for one commit."""
        capacity, self.disk.capacity = self.disk.capacity, sum(self.disk.segments().values()) + 100
        self.commit()
        self.disk.capacity = capacity

    def restart(self) -> None:
        """The crash happens, and the owner goes on with what is left."""
        if self.random.random() < 0.4:
            return
        self.disk = self.disk.crash(self.random, power=self.power)
        self.log = Log(self.settings, recover(self.disk.segments(), self.disk.read, self.disk.sync))
        left = self.contents(self.log)
        self.transfers = []
        for number in list(self.expected):
            if number not in self.log.cursors:
                del self.expected[number]
                continue
            expected = self.expected[number]
            kept = [message for message, _, _, _ in left[number]]
            # What is here now is here for good, and what is gone was never sure.
            expected.matched = kept
            expected.ended = False
            expected.position = dict.fromkeys(kept, 0)
            expected.settled, expected.settled_for_sure = set(), expected.settled - set(kept)
            expected.tries = {message: tries for message, _, tries, _ in left[number] if tries}
            expected.tries_for_sure = dict(expected.tries)
            self.log.attach(self.log.cursors[number])
        self._watch()

    # --- what it knows -----------------------------------------------------------------------------------------------

    def contents(self, log: Log) -> dict[int, list[Waiting]]:
        """The messages that wait for each durable cursor of a store, in order, and what is known of them."""
        found = {}
        for cursor in [each for each in log.cursors.values() if each.durable]:
            messages: list[Any] = []
            while taken := _pull_all(log, cursor, self.disk_of(log)):
                for each in taken:
                    tried = each.tried if each.tried is not None else np.zeros(len(each.places), np.bool_)
                    notes = dict.fromkeys(range(len(each.places)), b"")
                    notes.update({at: text for text, rows in each.notes or () for at in rows.tolist()})
                    tries = [0] * len(each.places) if each.tries is None else each.tries.tolist()
                    messages += zip(messages_of(each), tried.tolist(), tries, notes.values(), strict=True)
            found[cursor.number] = messages
            log.detach(cursor)
        return found

    def disk_of(self, log: Log) -> SimulatedDisk:
        return self.disk

    def look(self) -> None:
        """Crash in thought, here: whatever survives has to fit what the owner knows."""
        for _ in range(self.samples):
            self.crash_points += 1
            self.check(self.disk.crash(self.random, power=self.power))

    @property
    def is_promised(self) -> bool:
        """Whether nothing that was confirmed may be lost."""
        return self.settings.fsync == "always" or not self.power

    def check(self, disk: SimulatedDisk) -> None:
        recovered = recover(disk.segments(), disk.read, disk.sync)
        if self.is_promised:
            assert recovered.damaged == 0, recovered.notices
            assert recovered.lost_rows == 0, recovered.notices
        log = Log(self.settings, recovered)
        real, self.disk = self.disk, disk
        try:
            found = self.contents(log)
        finally:
            self.disk = real
        assert not self.is_promised or not log.statistics().damaged_records, log.notices
        for number, expected in self.expected.items():
            if expected.is_sure and not expected.ended:
                assert number in found
            if expected.ended_for_sure:
                assert number not in found
            if number in found:
                self.check_cursor(expected, found[number])
        self.check_transfers(found)

    def check_transfers(self, found: dict[int, list[Waiting]]) -> None:
        """A message that went from one cursor to another is with one of them."""
        held = {number: {message for message, *_ in rows} for number, rows in found.items()}
        for message, source, target in self.transfers:
            expected = self.expected.get(target)
            if expected is None or expected.ended or source not in held or target not in held:
                continue
            if message in expected.settled:
                # Or it went on to a third cursor.
                continue
            both = [number for number in (source, target) if message in held[number]]
            assert len(both) < 2, "a row that was transferred is with both cursors"
            assert both or not self.is_promised or self.expected[source].position[message] > self.log.safe

    def check_cursor(self, expected: Expected, found: list[Waiting]) -> None:
        messages = [message for message, *_ in found]
        there = set(messages)
        assert len(there) == len(messages), "a row came back twice"
        sure = {each for each, position in expected.position.items() if position <= self.log.safe}
        if self.is_promised:
            assert sure - expected.settled <= there, "a confirmed row is gone"
        assert not expected.settled_for_sure & there, "a settled row came back"
        assert there <= set(expected.matched), "a row came that never matched"
        # In the order in which they were stored; with that, in the order of each publisher.
        places = [self.order[message] for message in messages]
        assert places == sorted(places)
        for message, tried, tries, note in found:
            assert tries <= expected.tries.get(message, tries if message in expected.settled else 0)
            assert tries >= expected.tries_for_sure.get(message, 0) or not self.is_promised, "a count is lost"
            assert note == expected.notes.get(message, b"")
            assert tried or message not in expected.handed or not self.is_promised, (
                "a row that was handed out is not marked"
            )


def _pull_all(log: Log, cursor: Cursor, disk: SimulatedDisk) -> list[Taken]:
    found = log.pull(cursor, 1_000)
    reads = log.take_reads()
    for read in reads:
        log.loaded(read, disk.read(read.segment, read.start, read.length))
    return found or (log.pull(cursor, 1_000) if reads else [])


def messages_of(taken: Taken) -> list[tuple[int, int]]:
    """The messages of rows, by their bodies, which must fit their ids."""
    found = []
    for row in taken.rows.tolist():
        message = taken.batch.message(row)
        publisher, number = (int(part) for part in message.body.split(b" ")[0].split(b"/"))
        assert message.id == MessageId(publisher, BROKER, 1, number)
        assert message.body == body(publisher, number, len(message.body))
        assert message.attributes["n"] == number
        found.append((publisher, number))
    return found


def commit_all(log: Log, disk: SimulatedDisk, now: int = 0) -> list[DiskCommit]:
    """DiskCommit until nothing is left to do."""
    done = []
    while (commit := log.take_commit(now)) is not None:
        carry_out(commit, disk)
        log.committed(commit)
        done.append(commit)
    return done
