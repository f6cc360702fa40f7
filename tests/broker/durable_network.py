"""Brokers of one network with durable subscribers, on simulated disks; and an oracle.

The wires lose, repeat and reorder packets, brokers crash in the middle of writes, subscribers come and go. What was
confirmed to a publisher at any broker reaches every durable subscriber that wants it: once after a confirmed
acknowledgement, marked if it may have come before, and in the order of its broker.

Who wants a message is decided when it is accepted: by what the subscriber wants then at its own broker, and elsewhere
by what it wanted in the state of which the entry broker knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroad.broker import AckMode, Outbox
from postroad.messages import Batch, Draft
from tests.broker.queue_network import NetworkMob, QueueNetwork

if TYPE_CHECKING:
    from postroad.broker import Session, Subscription

TOPIC = "a"
KINDS = 3


class DurableReader:
    """A durable subscriber: what it wants, what it got, and what it has acknowledged.

    Attributes:
        versions: what it wanted, each with the first state of its broker's standing interest that says so.
        safe: so many of them survive a crash of its broker.
        wanted: what was accepted and is for it.
    """

    def __init__(self, name: str, broker: int, kind: int | None) -> None:
        self.name = name
        self.broker = broker
        self.kind = kind
        self.session: Session | None = None
        self.held: dict[int, tuple[int, int]] = {}
        self.first: list[int] = []
        self.acknowledged: set[int] = set()
        self.settled: set[int] = set()
        self.versions: list[tuple[int, int | None]] = []
        self.safe = 0
        self.wanted: set[int] = set()

    @property
    def selector(self) -> str:
        return selector_of(self.kind)

    def accepted(self, body: int, state: int) -> None:
        """A message was accepted by a broker that knows of a state."""
        known = [kind for since, kind in self.versions if since <= state]
        if known and known[-1] in (None, body % KINDS):
            self.wanted.add(body)


def selector_of(kind: int | None) -> str:
    return "" if kind is None else f"kind = {kind}"


class DurableNetwork(QueueNetwork):
    """Some brokers, and durable subscribers at some of them."""

    def __init__(self, seed: int = 0, count: int = 3, **others: Any) -> None:
        self.listed = frozenset(range(1, count + 1))
        self.readers: dict[str, DurableReader] = {}
        self.of_number: dict[tuple[int, int], DurableReader] = {}
        self.entered: dict[int, int] = {}
        super().__init__(seed, count, **others)

    def send(self, number: int, count: int = 1, size: int = 0) -> Outbox:
        broker = self.brokers[number]
        bodies = [next(self.bodies) for _ in range(count)]
        drafts = [Draft(TOPIC, {"kind": body % KINDS}, (), b"%d" % body + b" " * size) for body in bodies]
        batch = Batch.build(drafts)
        outbox = broker.core.receive(batch, broker.writer, self.now)
        self.ids |= {body: (head, tail) for body, (head, tail) in zip(bodies, batch.ids.tolist(), strict=True)}
        self.entered |= dict.fromkeys(bodies, number)
        for reader in self.readers.values():
            state = self.known_state(number, reader.broker)
            for body in bodies:
                reader.accepted(body, state)
        self.carry_out(number, outbox)
        if not outbox.unstorable:
            broker.sent.append((broker.log.position, bodies))
        return outbox

    def known_state(self, number: int, home: int) -> int:
        """The state of a broker's interest under which another broker accepts messages; -1 if it knows of none."""
        if number == home:
            return 2**62
        found = [each for each in self.brokers[number].peers.outgoing.for_durables() if each.home == home]
        return found[0].states.newest if found else -1

    def start(self, number: int) -> None:
        super().start(number)
        durables = self.brokers[number].core.durables
        assert durables is not None
        for reader in self.readers.values():
            if reader.broker == number:
                found = durables.find("c", reader.name)
                restored = None if found is None or found.durable is None else found.durable.selector
                # What was not safe may be lost, the latest first.
                while reader.versions and selector_of(reader.versions[-1][1]) != restored:
                    reader.versions.pop()
                if len(reader.versions) < reader.safe:
                    self.faults.append(f"a crash has lost what {reader.name} wants")

    def join_reader(self, name: str, number: int = 0, kind: int | None = None) -> DurableReader:
        """A subscriber comes, for the first time or again."""
        reader = self.readers.get(name)
        if reader is None:
            reader = self.readers[name] = DurableReader(name, number, kind)
        core = self.brokers[reader.broker].core
        reader.session = core.attached("reader")
        reader.held = {}
        outbox = Outbox()
        assert core.durables is not None
        standing = self.brokers[reader.broker].peers.standing
        state = 0 if standing is None else standing.number + 1
        is_new = core.durables.find("c", name) is None
        subscription = core.durables.subscribe(
            reader.session, "s", ("c", name), TOPIC, reader.selector, AckMode.INDIVIDUAL, self.now, outbox
        )
        if is_new or not reader.versions or reader.versions[-1][1] != reader.kind:
            reader.versions = [*([] if is_new else reader.versions), (state, reader.kind)]
            broker = self.brokers[reader.broker]
            broker.changing.append((broker.log.position, reader, len(reader.versions)))
        self.of_number[reader.broker, subscription.number] = reader
        self.carry_out(reader.broker, outbox)
        self.carry_out(reader.broker, core.drained(reader.session, self.now))
        return reader

    def change(self, name: str, kind: int | None) -> None:
        """A subscriber returns and wants something else."""
        reader = self.readers[name]
        if reader.session is not None:
            self.part(reader)
        reader.kind = kind
        self.join_reader(name)

    def part(self, reader: DurableReader) -> None:
        """A subscriber goes, and keeps its subscription."""
        assert reader.session is not None
        session, reader.session, reader.held = reader.session, None, {}
        self.carry_out(reader.broker, self.brokers[reader.broker].core.detached(session, self.now))

    def acknowledge(self, reader: DurableReader, body: int, positive: bool = True) -> None:
        assert reader.session is not None
        head, tail = reader.held.pop(body)
        broker = self.brokers[reader.broker]
        self.carry_out(reader.broker, broker.core.acknowledge(reader.session, "s", head, tail, positive, self.now))
        if positive:
            reader.acknowledged.add(body)
            broker.acknowledging.append((broker.log.position, reader, body))

    def crash(self, number: int, power: bool = True) -> None:
        super().crash(number, power)
        for reader in self.readers.values():
            if reader.broker == number:
                reader.session, reader.held = None, {}

    def read(self, number: int) -> None:
        super().read(number)
        broker = self.brokers[number]
        safe = 2**62 if broker.log.position <= broker.log.safe else broker.log.safe
        while broker.acknowledging and broker.acknowledging[0][0] <= safe:
            _, reader, body = broker.acknowledging.pop(0)
            reader.settled.add(body)
        while broker.changing and broker.changing[0][0] <= safe:
            _, reader, reader.safe = broker.changing.pop(0)
        self.finish(number)

    def finish(self, number: int) -> None:
        """Let a broker do what was too much work for one turn."""
        broker = self.brokers[number]
        for _ in range(100):
            if not broker.core.unfinished:
                return
            self.carry_out(number, broker.core.proceed(self.now))
        raise AssertionError("the broker never comes to an end")

    def _note(self, subscription: Subscription, message: Any) -> None:
        number = next(each for each, one in self.brokers.items() if self._has(one.core, subscription))
        reader = self.of_number[number, subscription.number]
        body, again = int(message.body), message.headers.get("redelivered") is not None
        if body in reader.settled:
            self.faults.append(f"{body} came to {reader.name} again, though its acknowledgement was confirmed")
        if body in reader.first and not again:
            self.faults.append(f"{body} came to {reader.name} again, and is not marked")
        if body not in reader.wanted:
            self.faults.append(f"{body} came to {reader.name}, who did not want it when it was accepted")
        if body not in reader.first:
            reader.first.append(body)
            self.handed.add(body)
        reader.held[body] = (message.id.head, message.id.tail)

    @staticmethod
    def _has(core: Any, subscription: Subscription) -> bool:
        return core.session(subscription.session.number) is subscription.session

    def missing(self) -> dict[str, list[int]]:
        """What was confirmed, is wanted and did not come, by the name of the subscriber."""
        found = {
            name: sorted((self.confirmed & reader.wanted) - set(reader.first)) for name, reader in self.readers.items()
        }
        return {name: bodies for name, bodies in found.items() if bodies}

    def disorder(self) -> list[str]:
        """Subscribers that got messages of one broker out of order."""
        return [
            f"{name} from broker {number}"
            for name, reader in self.readers.items()
            for number in self.disks
            if (got := [body for body in reader.first if self.entered[body] == number]) != sorted(got)
        ]

    def uninformed(self) -> dict[int, list[int]]:
        found = {
            number: each.peers.standing.uninformed
            for number, each in self.brokers.items()
            if each.peers.standing is not None
        }
        return {number: others for number, others in found.items() if others}

    def left(self) -> dict[int, dict[int, int]]:
        """The rows that cursors have at the end, by broker."""
        found = {
            number: {each.number: each.rows for each in broker.log.cursors.values() if each.rows}
            for number, broker in self.brokers.items()
        }
        return {number: rows for number, rows in found.items() if rows}


class DurableMob(NetworkMob, DurableNetwork):
    """Uses durable subscriptions at random."""

    pauses = (10, 100, 1_000, 20_000)

    def act(self) -> None:
        names = ["send"] * 4 + ["commit"] * 8 + ["pass_packet"] * 12 + ["tick"] * 3 + ["acknowledge"] * 4
        names += ["refuse", "come", "come", "go", "die", "rise", "rise", "cut", "mend", "mend"]
        getattr(self, f"_{self.random.choice(names)}")()

    def _reader(self) -> DurableReader | None:
        present = [each for each in self.readers.values() if each.session is not None]
        return self.random.choice(present) if present else None

    def _acknowledge(self, positive: bool = True) -> None:
        reader = self._reader()
        if reader is not None and reader.held:
            self.acknowledge(reader, self.random.choice(list(reader.held)), positive)

    def _refuse(self) -> None:
        self._acknowledge(positive=False)

    def _come(self) -> None:
        away = [one for one in self.readers.values() if one.session is None and one.broker in self.brokers]
        if away:
            self.join_reader(self.random.choice(away).name)

    def _go(self) -> None:
        reader = self._reader()
        if reader is not None:
            self.part(reader)

    def play(self, seed: int) -> None:
        """Act some hundred times with readers of all kinds; then nothing is missing, doubled or out of order."""
        for number in (1, 2):
            self.join_reader(f"all at {number}", number)
        self.join_reader("some at 2", 2, kind=1)
        self.settle(3)
        assert self.uninformed() == {}
        self.loss = [0.0, 0.1, 0.3][seed % 3]
        for _ in range(600):
            self.act()
        self.end()
        assert self.faults == []
        assert self.confirmed
        assert self.missing() == {}
        assert self.disorder() == []
        assert self.left() == {}

    def end(self) -> None:
        """Mend everything, and take all there is."""
        self.mend()
        for _ in range(200):
            for reader in self.readers.values():
                if reader.session is None:
                    self.join_reader(reader.name)
                for body in list(reader.held):
                    self.acknowledge(reader, body)
            self.settle(1)
            if not self.left():
                break
        self.settle(5)
