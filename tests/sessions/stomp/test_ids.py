"""Clients that give their own ids, over STOMP and in virtual time; and that nobody else notices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId
from postroad.protocols.stomp import encode_frame
from tests.server.scene import Scene, bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.protocols.stomp import Frame
    from tests.server.scene import Talker

TOLERANCE = 500
MINUTE = 60_000


class Publisher:
    """A client that gives its own ids, by hand."""

    number: int
    token: str

    def __init__(self, scene: Scene, was: Publisher | None = None, version: str = "1.2") -> None:
        claim = {} if was is None else {"postroad-publisher": str(was.number), "postroad-token": was.token}
        self.scene = scene
        self.talker = scene.talker()
        headers = {"accept-version": version, "host": "here", "postroad-ids": "client", **claim}
        self.connected = self.talker.ask("CONNECT", headers).headers
        self.number = int(self.connected["postroad-publisher"])
        self.token = self.connected["postroad-token"]

    def id(self, counter: int = 0, off: int = 0) -> MessageId:
        return MessageId(self.number, 1, self.scene.clock.now + off, counter)

    def send(self, given: MessageId | str, body: bytes = b"", **headers: str) -> None:
        self.talker.send("news", body, **{"message-id": str(given), **headers})

    def heard(self) -> list[Frame]:
        return self.talker.heard()


def subscriber(scene: Scene) -> Talker:
    talker = scene.client()
    talker.subscribe("1", "news")
    return talker


def test_a_client_that_asks_is_told_its_numbers_the_time_and_the_tolerance() -> None:
    publisher = Publisher(Scene())
    told = {name: text for name, text in publisher.connected.items() if name.startswith(("postroad-", "server-"))}
    assert re.fullmatch("[0-9a-f]{32}", told.pop("postroad-token"))
    assert told == {
        "postroad-publisher": "1",
        "postroad-broker": "1",
        "server-time": "1000000",
        "postroad-tolerance": "500",
    }


@pytest.mark.parametrize(
    "headers", [{}, {"postroad-ids": "broker"}, {"postroad-publisher": "1", "postroad-token": "x"}]
)
def test_a_client_that_does_not_ask_sees_no_change(headers: dict[str, str]) -> None:
    scene = Scene()
    Publisher(scene)
    talker = scene.talker()
    talker.say("CONNECT", {"accept-version": "1.2", "host": "here", **headers})
    assert bytes(talker.line.written) == (
        b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\nserver:postroad\nsession:2\n\n\0\n"
    )
    talker.heard()
    # A message-id of its own means nothing, as it always did; nor does a clock that is off.
    foreign = str(MessageId(9, 9, 0, 0))
    assert talker.ask("SEND", {"destination": "/topic/news", "message-id": foreign, "receipt": "r"}).headers == {
        "receipt-id": "r",
        "message-id": str(MessageId(2, 1, scene.clock.now, 0)),
    }


def test_a_wish_that_is_not_known_is_refused() -> None:
    talker = Scene().talker()
    talker.say("CONNECT", {"accept-version": "1.2", "host": "here", "postroad-ids": "mine"})
    assert talker.error() == "the header postroad-ids is 'mine'; it can be client or broker"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_subscribers_and_receipts_name_the_id_that_the_client_gave(version: str) -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene, version=version)
    given = publisher.id(counter=9, off=-3)
    publisher.send(given, b"hello", receipt="r")
    (receipt,) = publisher.heard()
    (message,) = reader.heard()
    assert receipt.headers == {"receipt-id": "r", "message-id": str(given)}
    assert (message.headers["message-id"], message.body) == (str(given), b"hello")


@pytest.mark.parametrize("cut", [False, True])
def test_what_comes_before_a_refused_id_is_published_and_nothing_behind_it(cut: bool) -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene)
    good, foreign = publisher.id(1), MessageId(publisher.number + 1, 1, scene.clock.now, 2)
    frames = [
        encode_frame(
            "SEND", {"destination": "/topic/news", "message-id": str(given), "receipt": str(place)}, b"%d" % place
        )
        for place, given in enumerate([good, foreign, publisher.id(3)])
    ]
    for data in frames if cut else [b"".join(frames)]:
        publisher.talker.conversation.received(data)
    receipt, error = publisher.heard()
    assert receipt.headers == {"receipt-id": "0", "message-id": str(good)}
    assert (error.command, error.headers["message"]) == (
        "ERROR",
        f"SEND: message-id {foreign} is not this publisher's own; its ids have publisher 1 and broker 1, and begin "
        "with 00000001-00000001",
    )
    assert bodies(reader) == [b"0"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "this connection gives its own ids (postroad-ids:client), so each message needs a message-id"),
        ({"message-id": "7"}, "message-id '7' is not a message id; write publisher-broker-time-counter"),
    ],
)
def test_a_message_without_an_id_is_refused(headers: dict[str, str], text: str) -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene)
    publisher.send(publisher.id(), b"before")
    publisher.talker.send("news", b"without", **headers)
    assert publisher.talker.error().startswith(f"SEND: {text}")
    assert bodies(reader) == [b"before"]


def test_an_id_out_of_tolerance_is_accepted_counted_and_corrected_once_a_second() -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene)
    publisher.send(publisher.id(off=-TOLERANCE), b"in time")
    assert publisher.heard() == []
    late = publisher.id(off=TOLERANCE + 1)
    publisher.send(late, b"ahead")
    (correction,) = publisher.heard()
    assert correction.command == "RECEIPT"
    assert correction.headers == {
        "receipt-id": "postroad-clock",
        "server-time": str(scene.clock.now),
        "message-id": str(late),
    }
    publisher.send(publisher.id(off=TOLERANCE + 2), b"again")
    assert publisher.heard() == []
    scene.wait(1_000)
    publisher.send(publisher.id(off=TOLERANCE + 1), b"a second later")
    assert [frame.headers["receipt-id"] for frame in publisher.heard()] == ["postroad-clock"]
    assert bodies(reader) == [b"in time", b"ahead", b"again", b"a second later"]
    assert scene.core.statistics().ids_skewed == 3


def test_a_publisher_comes_back_and_what_it_sends_again_is_confirmed_and_not_published_twice() -> None:
    scene = Scene()
    reader, first = subscriber(scene), Publisher(scene)
    ids = [first.id(counter) for counter in range(4)]
    first.send(ids[0], b"0")
    first.send(ids[1], b"1")
    first.talker.conversation.lost("cut")
    second = Publisher(scene, was=first)
    assert (second.number, second.token) == (first.number, first.token)
    assert second.connected["postroad-last"] == str(ids[1])
    for place, given in enumerate(ids):
        second.send(given, b"%d" % place, receipt=str(place))
    assert [frame.headers["message-id"] for frame in second.heard()] == [str(given) for given in ids]
    assert bodies(reader) == [b"0", b"1", b"2", b"3"]
    assert scene.core.statistics().resent == 2


def test_a_publisher_that_took_its_leave_gets_a_new_number() -> None:
    scene = Scene()
    first = Publisher(scene)
    first.talker.say("DISCONNECT")
    assert Publisher(scene, was=first).number == 2


def test_an_earlier_connection_of_the_publisher_is_closed() -> None:
    scene = Scene()
    first = Publisher(scene)
    second = Publisher(scene, was=first)
    assert first.talker.error() == "this publisher has connected again"
    assert second.number == first.number
    second.send(second.id(), receipt="r")
    assert [frame.command for frame in second.heard()] == ["RECEIPT"]


def test_ids_of_a_transaction_count_at_its_commit() -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene)
    ids = [publisher.id(counter) for counter in range(3)]
    publisher.send(ids[0], b"at once")
    publisher.talker.say("BEGIN", {"transaction": "t"})
    publisher.send(ids[1], b"1", transaction="t")
    publisher.send(ids[2], b"2", transaction="t")
    receipt = publisher.talker.ask("COMMIT", {"transaction": "t", "receipt": "c"})
    assert receipt.headers == {"receipt-id": "c", "message-id": str(ids[1]), "message-count": "2"}
    assert bodies(reader) == [b"at once", b"1", b"2"]


@pytest.mark.parametrize("second", ["regresses", "is missing"])
def test_a_transaction_with_an_id_that_is_refused_publishes_nothing(second: str) -> None:
    scene = Scene()
    reader, publisher = subscriber(scene), Publisher(scene)
    publisher.talker.say("BEGIN", {"transaction": "t"})
    publisher.send(publisher.id(5), b"1", transaction="t")
    if second == "regresses":
        publisher.send(publisher.id(4), b"2", transaction="t")
    else:
        publisher.talker.send("news", b"2", transaction="t")
    publisher.talker.say("COMMIT", {"transaction": "t"})
    assert publisher.talker.error().startswith("COMMIT: ")
    assert bodies(reader) == []


class SlowRecord:
    """A record that is written when the test says so: without a journal, or with one that all receipts wait for."""

    trouble = ""

    def __init__(self, waits: bool = False) -> None:
        self.waits = waits
        self.waiting: list[Callable[[bool], None]] = []
        self.in_trail: list[bool] = []

    def when_safe(self, action: Callable[[bool], None], *, in_trail: bool = False) -> None:
        self.waiting.append(action)
        self.in_trail.append(in_trail)


def test_receipt_of_an_id_far_from_its_time_waits_for_the_record_and_later_ones_wait_with_it() -> None:
    scene = Scene()
    record = scene.dispatcher.record = SlowRecord()
    publisher = Publisher(scene)
    publisher.send(publisher.id(off=-MINUTE), receipt="late")
    publisher.send(publisher.id(), receipt="in time")
    assert [frame.headers["receipt-id"] for frame in publisher.heard()] == ["postroad-clock"]
    assert len(record.waiting) == 2
    for action in record.waiting:
        action(True)
    assert [frame.headers["receipt-id"] for frame in publisher.heard()] == ["late", "in time"]
    # From here on nothing has to wait.
    publisher.send(publisher.id(1), receipt="next")
    assert [frame.headers["receipt-id"] for frame in publisher.heard()] == ["next"]


def test_receipt_of_an_id_far_from_its_time_waits_for_the_trail_though_there_is_a_journal() -> None:
    scene = Scene()
    record = scene.dispatcher.record = SlowRecord(waits=True)
    publisher = Publisher(scene)
    publisher.send(publisher.id(off=-MINUTE), receipt="late")
    publisher.send(publisher.id(), receipt="in time")
    # Receipts stay in order: what comes after it waits for the trail, too.
    assert record.in_trail == [True, True]
    for action in record.waiting:
        action(True)
    publisher.send(publisher.id(1), receipt="next")
    assert record.in_trail == [True, True, False]


def test_receipt_of_a_transaction_with_an_id_far_from_its_time_waits_for_the_record() -> None:
    scene = Scene()
    record = scene.dispatcher.record = SlowRecord()
    publisher = Publisher(scene)
    publisher.talker.say("BEGIN", {"transaction": "t"})
    publisher.send(publisher.id(off=-MINUTE), transaction="t")
    publisher.talker.say("COMMIT", {"transaction": "t", "receipt": "all"})
    assert "all" not in [frame.headers["receipt-id"] for frame in publisher.heard()]
    (action,) = record.waiting
    action(False)
    (receipt,) = publisher.heard()
    assert (receipt.headers["receipt-id"], receipt.headers["tracked"]) == ("all", "false")
