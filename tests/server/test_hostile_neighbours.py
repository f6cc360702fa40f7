"""Neighbours that know the secret and lie: they harm themselves, and nobody else."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from postroad.broker.questions import Questions
from postroad.filters import hash_bytes
from postroad.matching.encoding import encode_exact
from postroad.messages import Batch, Draft, MessageId
from postroad.protocols.link import encode_control, encode_data
from postroad.routing import Drp, Interest, InterestDelta, LinkRecord
from postroad.routing.control_frames import Attach, Topics, signed_bytes
from postroad.server.metrics import metrics_text
from postroad.server.status import status
from postroad.tracking import Answer, Findings, encode_answer
from tests.server.hostile import QUESTION, Hostile, Ring, brokers_in_line
from tests.server.http_client import get
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.routing import LinkState
    from postroad.security import BrokerKeys
    from postroad.server import Service
    from postroad.server.counts import LinkStatistics
    from postroad.topology import StrategyName


def now() -> int:
    return int(time.time() * 1_000)


def state(service: Service) -> LinkState:
    relay = service.dispatcher.core.relay
    assert relay is not None
    assert isinstance(relay.strategy, Drp)
    return relay.strategy.link_state


def conduct(service: Service, neighbour: int = 1) -> LinkStatistics:
    assert service.links is not None
    return next(one for one in service.links.neighbours() if one.neighbour == neighbour)


async def all_know_each_other(two: Service, three: Service) -> None:
    await until(lambda: state(two).routes.reached >= 1 and state(three).routes.reached >= 1)


async def messages_pass(two: Service, three: Service) -> None:
    """A subscriber at one broker gets what is published at the other."""
    client = await Client.connect(three.port)
    await client.subscribe("s", "quotes")
    sender = await Client.connect(two.port)
    async with asyncio.timeout(20):
        while True:
            sender.publish("quotes", b"x")
            try:
                async with asyncio.timeout(0.3):
                    assert (await client.frame()).body == b"x"
                    break
            except TimeoutError:
                continue
    await client.close()
    await sender.close()


def sealed(
    frame: LinkRecord | Interest | InterestDelta, keys: BrokerKeys | None
) -> LinkRecord | Interest | InterestDelta:
    return frame if keys is None else msgspec.structs.replace(frame, signature=keys.sign(signed_bytes(frame)))


@pytest.mark.parametrize("with_keys", [False, True], ids=["secret", "keys"])
def test_forged_record_with_a_counter_far_ahead_cuts_nobody_off(tmp_path: Path, with_keys: bool) -> None:
    ring = Ring(tmp_path, 1, 2, 3) if with_keys else None
    keys = None if ring is None else ring.keys(1)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring) as (two, three):
            await all_know_each_other(two, three)
            hostile = await Hostile.connect(two.link_port, 1, keys=keys)
            assert hostile.open
            for broker in (3, 2):
                # Signed, if at all, by the one that sends it and not by the one it speaks of.
                hostile.say(sealed(LinkRecord(broker, 2**62, 1, 0, ()), keys))
            await until(lambda: conduct(two).refusals >= 2)
            assert state(three).epoch < 2**60
            assert state(two).epoch < 2**60
            await messages_pass(two, three)
            assert state(two).routes.reached == 1

    run(talk)


def test_record_that_its_broker_did_not_sign_is_not_believed_and_its_sender_is_kept_out(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1, 2, 3)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring) as (two, three):
            await all_know_each_other(two, three)
            hostile = await Hostile.connect(two.link_port, 1, keys=ring.keys(1))
            assert hostile.open
            before = state(two).known()
            hostile.say(sealed(LinkRecord(3, now() + 1_000, 1, 0, ()), ring.keys(1)))
            assert "that broker did not sign" in await hostile.goodbye()
            assert state(two).known() == before
            assert (conduct(two).quarantines, conduct(two).quarantined_now) == (1, True)
            again = await Hostile.connect(two.link_port, 1, keys=ring.keys(1))
            assert "broker 1 is in quarantine" in again.said_goodbye
            assert any("broker 1 is in quarantine" in trouble for trouble in two.troubles())
            told = status(two)
            assert told.network is not None
            assert [one.neighbour for one in told.network.quarantined] == [1]
            assert 'postroad_link_refusals_total{broker="2",neighbour="1"} 1.0' in metrics_text(told).decode()
            assert 'postroad_link_quarantined{broker="2",neighbour="1"} 1.0' in metrics_text(told).decode()
            await messages_pass(two, three)
            # The time of a first offence is short.
            await until(lambda: not conduct(two).quarantined_now)
            assert (await Hostile.connect(two.link_port, 1, keys=ring.keys(1))).open
            assert two.troubles() == []

    run(talk)


def test_number_is_bound_to_the_key_of_its_broker(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "keys", 1, 2, 3)
    others = Ring(tmp_path / "others", 1, 2, 3)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring) as (two, three):
            await all_know_each_other(two, three)
            # Broker 1 knows the secret and has a key, and says that it is broker 3.
            for claimed, keys in ((3, ring.keys(1)), (1, others.keys(1)), (1, None)):
                hostile = await Hostile.connect(two.link_port, claimed, keys=keys)
                assert not hostile.open
            assert conduct(two).quarantines == 0
            assert state(two).routes.reached == 1
            assert (await Hostile.connect(two.link_port, 1, keys=ring.keys(1))).open

    run(talk)


def test_bad_advertisement_stays_with_its_sender_and_the_next_honest_one_is_taken(tmp_path: Path) -> None:
    body = bytes.fromhex("01 00000001013e 0000 c0843d 00")
    claims_a_million_rows = body + hash_bytes(body).to_bytes(8, "little")

    async def talk() -> None:
        async with brokers_in_line(tmp_path) as (two, three):
            await all_know_each_other(two, three)
            epoch = now()
            for bad in (claims_a_million_rows, b"noise", encode_exact([("a", ())])[:-1] + b"?"):
                await until(lambda: not conduct(two).quarantined_now)
                hostile = await Hostile.connect(two.link_port, 1)
                assert hostile.open
                epoch += 1
                hostile.say(LinkRecord(1, epoch, 1, 0, ((2, 10),)))
                await until(lambda: state(three).interest_of(1) is None)
                hostile.say(Interest(1, epoch, 1, bad))
                assert await hostile.goodbye()
                assert state(two).interest_of(1) is None
                assert state(three).interest_of(1) is None
            assert conduct(two).quarantines == 3
            assert conduct(three, 2).refusals == 0
            await until(lambda: not conduct(two).quarantined_now)
            honest = await Hostile.connect(two.link_port, 1)
            honest.say(LinkRecord(1, epoch + 1, 1, 0, ((2, 10),)))
            honest.say(Interest(1, epoch + 1, 1, encode_exact([("wanted", ())])))
            await until(lambda: state(three).interest_of(1) is not None)
            await messages_pass(two, three)

    run(talk)


def test_advertisement_of_many_rows_holds_up_nobody(tmp_path: Path) -> None:
    """While it is worked off, messages go on; at its end it is known everywhere."""

    async def talk() -> None:
        async with brokers_in_line(tmp_path) as (two, three):
            await all_know_each_other(two, three)
            hostile = await Hostile.connect(two.link_port, 1)
            epoch = now()
            hostile.say(LinkRecord(1, epoch, 1, 0, ((2, 10),)))
            hostile.say(Interest(1, epoch, 1, encode_exact([(f"t.{number}", ()) for number in range(5_000)])))
            relay = two.dispatcher.core.relay
            assert relay is not None
            await until(lambda: relay.working)
            sender = await Client.connect(two.port)
            await sender.subscribe("s", "local")
            sender.publish("local", b"x")
            assert (await sender.frame()).body == b"x"
            assert relay.working
            await until(lambda: state(three).interest_of(1) is not None)
            await sender.close()

    run(talk)


def test_member_that_no_list_names_is_refused_without_blame(tmp_path: Path) -> None:
    """A neighbour with a newer plan passes on records of a broker that this one has not heard of."""
    ring = Ring(tmp_path, 1, 2, 3)
    larger = Ring(tmp_path / "larger", 9)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring) as (two, three):
            await all_know_each_other(two, three)
            hostile = await Hostile.connect(two.link_port, 1, keys=ring.keys(1))
            hostile.say(sealed(LinkRecord(9, now(), 1, 0, ((1, 10),)), larger.keys(9)))
            await until(lambda: conduct(two).refusals == 1)
            assert conduct(two).up_now
            assert state(two).known() == [2, 3]

    run(talk)


def test_answer_in_the_name_of_another_broker_is_not_believed(tmp_path: Path) -> None:
    """Broker 2 is asked for a message of broker 4, which is down; its neighbour 1 answers in the place of 4."""
    ring = Ring(tmp_path, 1, 2, 3, 4)
    message = MessageId(7, 4, now(), 0)
    nothing = Findings(4, None, None, (), (), (), (), (), (), (), (), 0, (), 0)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring) as (two, three):
            await all_know_each_other(two, three)
            hostile = await Hostile.connect(two.link_port, 1, keys=ring.keys(1))
            trace = asyncio.create_task(get(two.admin_port, f"/trace/{message}"))
            question = await hostile.control(QUESTION)
            mine = Questions(4, 1, ring.keys(4))
            asked = mine.receive(question, 2, [2], now()).asked
            assert asked is not None
            (_, true), *_ = mine.answer(asked[0], encode_answer(Answer(nothing, None, ())), [2], now()).sends
            tag, *fields = msgspec.msgpack.decode(true)
            forged = msgspec.msgpack.encode([tag, *fields[:-1], ring.keys(1).sign(b"anything")])
            hostile.writer.write(encode_control(QUESTION, forged))
            assert "an answer of broker 4 that broker did not sign" in await hostile.goodbye()
            code, told = await trace
            assert (code, json.loads(told)["silent"]) == (200, [4])
            assert conduct(two).quarantines == 1
            await messages_pass(two, three)

    run(talk)


def test_topics_that_are_none_leave_nothing_behind(tmp_path: Path) -> None:
    async def talk() -> None:
        async with brokers_in_line(tmp_path, strategy="tree") as (two, three):
            hostile = await Hostile.connect(two.link_port, 1)
            hostile.say(Attach(now(), False, 1, ("good", "a.*")))
            relay = two.dispatcher.core.relay
            assert relay is not None
            await until(lambda: relay.strategy.statistics()["patterns"] == 2)
            hostile.say(Topics(("fine", "b.*", "not..one", "c.*")))
            assert await hostile.goodbye()
            assert relay.strategy.statistics()["patterns"] == 2
            assert conduct(two).quarantines == 1
            await messages_pass(three, three)

    run(talk)


def data(number: int, *origins: tuple[int, int]) -> bytes:
    """A DATA frame for broker 2, with a message of each of these: the broker in the id, and in the envelope."""
    batch = Batch.build([Draft("quotes", body=b"%d %d" % pair, source=pair[1]) for pair in origins])
    batch.ids[:, 0] = [1 << 32 | broker for broker, _ in origins]
    batch.ids[:, 1] = range(number * 10, number * 10 + len(origins))
    rows = np.arange(len(origins))
    return bytes(encode_data(batch, rows, np.array([[1 << 2]], np.uint64), np.zeros(len(rows), np.int64), 0, number))


@pytest.mark.parametrize("strategy", ["drp", "flood"])
def test_messages_whose_origin_does_not_fit_are_refused(tmp_path: Path, strategy: StrategyName) -> None:
    ring = Ring(tmp_path, 1, 2, 3)

    async def talk() -> None:
        async with brokers_in_line(tmp_path, ring, strategy=strategy) as (two, _):
            client = await Client.connect(two.port)
            await client.subscribe("s", "quotes")
            hostile = await Hostile.connect(two.link_port, 1, keys=ring.keys(1))
            # Broker 9 may stand in a newer list: its messages are left out, and the link stays.
            hostile.writer.write(data(1, (1, 1), (9, 9), (3, 3)) + data(2, (9, 9)) + data(3, (70_000, 70_000), (1, 1)))
            assert [(await client.frame()).body for _ in range(3)] == [b"1 1", b"3 3", b"1 1"]
            assert (conduct(two).refusals, conduct(two).quarantines) == (3, 0)
            hostile.writer.write(data(4, (1, 1), (1, 3)))
            await until(lambda: conduct(two).quarantines == 1)
            assert any("entered at broker 3 with an id of broker 1" in trouble for trouble in two.troubles())
            await client.close()

    run(talk)
