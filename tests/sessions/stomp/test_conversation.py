"""A client's conversation with the broker, frame by frame, in virtual time and without sockets."""

from __future__ import annotations

import logging

import pytest

from postroad.protocols.stomp import Version, encode_frame
from tests.server.people import PlainGate
from tests.server.scene import Scene, bodies

# --- CONNECT ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offered", "agreed"), [("1.0", "1.0"), ("1.0,1.1", "1.1"), ("1.2,1.1", "1.2")])
def test_broker_agrees_on_the_highest_common_version(offered: str, agreed: str) -> None:
    talker = Scene().talker()
    connected = talker.ask("CONNECT", {"accept-version": offered, "host": "here"})
    assert connected.headers["version"] == agreed
    assert connected.headers["server"] == "postroad"
    assert connected.headers["session"] == "1"


def test_broker_names_its_versions_when_there_is_no_common_one() -> None:
    talker = Scene().talker()
    error = talker.ask("CONNECT", {"accept-version": "2.0", "host": "here"})
    assert (error.command, error.headers["version"]) == ("ERROR", "1.0,1.1,1.2")
    assert talker.line.is_closed


@pytest.mark.parametrize("given", [{}, {"login": "ann"}, {"login": "ann", "passcode": "x"}, {"login": "bob"}])
def test_broker_refuses_a_wrong_login(given: dict[str, str]) -> None:
    scene = Scene(gate=PlainGate(ann="secret"))
    talker = scene.talker()
    talker.say("CONNECT", {"accept-version": "1.2", "host": "here", **given})
    assert talker.error() == "login or passcode is wrong"
    assert scene.core.sessions() == []


def test_broker_lets_a_known_login_in_under_its_name() -> None:
    scene = Scene(gate=PlainGate(ann="secret"))
    scene.client(login="ann", passcode="secret")
    assert [session.principal for session in scene.core.sessions()] == ["ann"]


def test_a_login_that_nobody_has_to_prove_is_marked_as_such() -> None:
    scene = Scene()
    for headers in ({"login": "ann"}, {}):
        scene.client(**headers)
    assert [session.principal for session in scene.core.sessions()] == ["unverified:ann", ""]


def test_what_follows_connect_waits_until_the_login_is_checked() -> None:
    gate = PlainGate(later=True, ann="secret")
    scene = Scene(gate=gate)
    talker = scene.talker()
    hello = {"accept-version": "1.2", "host": "here", "login": "ann", "passcode": "secret"}
    frames = [("SUBSCRIBE", {"id": "1", "destination": "/topic/a"}, b""), ("SEND", {"destination": "/topic/a"}, b"one")]
    stream = encode_frame("CONNECT", hello) + b"".join(encode_frame(*frame) for frame in frames)
    talker.conversation.received(stream)
    # What a transport had read already when it was told to pause.
    talker.send("a", b"two")
    assert (talker.heard(), talker.line.is_reading, scene.core.sessions()) == ([], False, [])
    (answer,) = gate.waiting
    answer()
    heard = talker.heard()
    assert [(frame.command, frame.body) for frame in heard] == [
        ("CONNECTED", b""),
        ("MESSAGE", b"one"),
        ("MESSAGE", b"two"),
    ]
    assert talker.line.is_reading
    assert talker.conversation.login == "ann"


def test_nothing_that_follows_a_wrong_login_is_carried_out() -> None:
    gate = PlainGate(later=True, ann="secret")
    scene = Scene(gate=gate)
    talker = scene.talker()
    hello = encode_frame("CONNECT", {"accept-version": "1.2", "host": "here", "login": "ann", "passcode": "guess"})
    talker.conversation.received(hello + encode_frame("SEND", {"destination": "/topic/a"}, b"one"))
    gate.waiting[0]()
    assert talker.error() == "login or passcode is wrong"
    assert scene.core.statistics().accepted == 0


def test_a_login_that_is_checked_too_late_or_after_the_end_changes_nothing() -> None:
    gate = PlainGate(later=True, ann="secret")
    scene = Scene(gate=gate)
    late, gone = scene.talker(), scene.talker()
    for talker in (late, gone):
        talker.say("CONNECT", {"accept-version": "1.2", "host": "here", "login": "ann", "passcode": "secret"})
    gone.conversation.lost("the client closed the connection")
    scene.wait(10_000)
    assert "the login could not be checked within 10,000 ms" in late.error()
    for answer in gate.waiting:
        answer()
    assert scene.core.sessions() == []


def test_a_client_that_floods_while_its_login_is_checked_is_closed() -> None:
    scene = Scene(gate=PlainGate(later=True, ann="secret"))
    talker = scene.talker()
    talker.say("CONNECT", {"accept-version": "1.2", "host": "here", "login": "ann", "passcode": "secret"})
    for _ in range(5):
        talker.conversation.received(b"x" * 16_384)
    assert "wait for CONNECTED" in talker.error()
    assert talker.conversation.kept_bytes == 0


def test_one_session_too_many_is_refused_with_the_name_of_the_limit() -> None:
    scene = Scene(limits={"sessions": 1})
    first, second = scene.client(), scene.talker()
    second.say("CONNECT", {"accept-version": "1.2", "host": "here"})
    assert "1 sessions, its limit (limits.sessions)" in second.error()
    first.subscribe("s", "a")


def test_a_connection_that_never_says_connect_is_closed() -> None:
    scene = Scene(connect_ms=3_000)
    silent, trickling = scene.talker(), scene.talker()
    for _ in range(29):
        scene.wait(100)
        trickling.conversation.received(b"\n")
    assert not silent.line.is_closed
    scene.wait(200)
    for talker in (silent, trickling):
        assert talker.error() == "no CONNECT frame within 3,000 ms (setting connect_seconds)"


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 50, b"SEND\n\n\0"]
)
def test_garbage_is_answered_with_an_error_and_closes(garbage: bytes) -> None:
    scene = Scene()
    talker = scene.talker()
    talker.conversation.received(garbage)
    assert talker.error()
    talker.conversation.received(b"more")
    assert talker.heard() == []


# --- messages ---------------------------------------------------------------------------------------------------------


def test_messages_between_control_frames_keep_their_place() -> None:
    scene = Scene()
    talker = scene.client()
    read = b"".join(
        [
            encode_frame("SEND", {"destination": "/topic/a"}, b"before"),
            encode_frame("SUBSCRIBE", {"id": "s", "destination": "/topic/a"}),
            encode_frame("SEND", {"destination": "/topic/a"}, b"between"),
            encode_frame("UNSUBSCRIBE", {"id": "s"}),
            encode_frame("SEND", {"destination": "/topic/a"}, b"after"),
        ]
    )
    talker.conversation.received(read)
    assert bodies(talker) == [b"between"]
    assert scene.core.statistics().accepted == 3


def test_a_receipt_for_a_send_carries_the_id_and_comes_after_the_message_itself() -> None:
    talker = Scene().client()
    talker.subscribe("s", "a")
    talker.send("a", b"x", receipt="r1")
    message, receipt = talker.heard()
    assert (message.command, receipt.command) == ("MESSAGE", "RECEIPT")
    assert receipt.headers == {"receipt-id": "r1", "message-id": message.headers["message-id"]}


def test_only_the_sends_that_ask_get_receipts() -> None:
    talker = Scene().client()
    frames = [
        encode_frame("SEND", {"destination": "/topic/a", **({"receipt": f"r{n}"} if n % 2 else {})}) for n in range(5)
    ]
    talker.conversation.received(b"".join(frames))
    assert [frame.headers["receipt-id"] for frame in talker.heard()] == ["r1", "r3"]


def test_every_control_frame_gets_the_receipt_it_asks_for() -> None:
    talker = Scene().client()
    said = [
        ("SUBSCRIBE", {"id": "s", "destination": "/topic/a"}),
        ("UNSUBSCRIBE", {"id": "s"}),
        ("BEGIN", {"transaction": "t"}),
        ("ABORT", {"transaction": "t"}),
        ("DISCONNECT", {}),
    ]
    for number, (command, headers) in enumerate(said):
        answer = talker.ask(command, {**headers, "receipt": f"r{number}"})
        assert (answer.command, answer.headers["receipt-id"]) == ("RECEIPT", f"r{number}")
    assert talker.line.is_closed


def test_an_expired_message_is_not_delivered() -> None:
    scene = Scene()
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a")
    writer.send("a", b"late", expires=str(scene.clock.now - 1))
    writer.send("a", b"fresh", expires=str(scene.clock.now + 1))
    assert bodies(reader) == [b"fresh"]
    assert scene.core.statistics().shed_expired == 1


# --- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"id": "s", "destination": "/exchange/a"}, "destinations start with /topic/ or /queue/"),
        ({"id": "s", "destination": "/queue/a"}, "has no store, so it has no queues"),
        ({"destination": "/topic/a"}, "the header id is missing"),
        ({"id": "s", "destination": "/topic/a..b"}, "a..b"),
        ({"id": "s", "destination": "/topic/a", "selector": "price >"}, "price >"),
        ({"id": "s", "destination": "/topic/a", "ack": "maybe"}, "auto, client, client-individual"),
        ({"id": "s", "destination": "/topic/a", "overflow": "grow"}, "drop-oldest, push-back, disconnect"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused_with_the_reason(headers: dict[str, str], reason: str) -> None:
    scene = Scene()
    talker = scene.client()
    error = talker.ask("SUBSCRIBE", {**headers, "receipt": "r"})
    assert error.command == "ERROR"
    assert error.headers["receipt-id"] == "r"
    assert reason in error.headers["message"] + error.body.decode()
    assert talker.line.is_closed
    assert scene.core.sessions() == []


def test_a_refused_subscription_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    talker = Scene().client()
    with caplog.at_level(logging.INFO, "postroad.server"):
        talker.say("SUBSCRIBE", {"id": "s", "destination": "/topic/a", "selector": "price >"})
    refused, gone = caplog.records
    assert (refused.message, vars(refused)["topic"], vars(refused)["selector"]) == (
        "subscription refused",
        "a",
        "price >",
    )
    assert (gone.message, vars(gone)["session"]) == ("disconnected", 1)
    assert "price >" in vars(refused)["reason"]


@pytest.mark.parametrize(
    ("headers", "doubt"),
    [
        ({"destination": "/topic/quotes.#"}, "perhaps you mean quotes.>"),
        ({"destination": "/topic/quotes.+.close"}, "perhaps you mean quotes.*.close"),
        ({"destination": "/topic/a", "selector": "content-type = 'text'"}, 'write "content-type"'),
        ({"destination": "/topic/a", "selector": "price - 1 > 2"}, ""),
    ],
)
def test_a_subscription_that_its_author_may_not_mean_is_served_and_logged(
    headers: dict[str, str], doubt: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    talker = scene.client()
    with caplog.at_level(logging.INFO, "postroad.server"):
        assert talker.ask("SUBSCRIBE", {"id": "s", **headers, "receipt": "r"}).command == "RECEIPT"
    assert [doubt in vars(record)["doubt"] for record in caplog.records] == ([True] if doubt else [])
    assert {record.message for record in caplog.records} <= {"subscription doubtful"}
    assert scene.terms.audit.counts.total() == 0


def test_subscriptions_beyond_the_limit_are_refused_with_its_name() -> None:
    talker = Scene(limits={"subscriptions_per_session": 1}).client()
    talker.subscribe("one", "a")
    talker.say("SUBSCRIBE", {"id": "two", "destination": "/topic/a"})
    assert "the limit (limits.subscriptions_per_session)" in talker.error()


def test_a_client_of_1_0_subscribes_without_an_id() -> None:
    scene = Scene()
    talker = scene.client("1.0")
    talker.say("SUBSCRIBE", {"destination": "/topic/a"})
    talker.send("a", b"x")
    (message,) = talker.heard()
    assert message.body == b"x"
    assert "subscription" not in message.headers
    talker.say("UNSUBSCRIBE", {"destination": "/topic/a"})
    assert scene.core.statistics().subscriptions_now == 0


def test_nothing_is_delivered_after_unsubscribe_and_its_key_is_free_again() -> None:
    talker = Scene().client()
    talker.subscribe("s", "a")
    talker.say("UNSUBSCRIBE", {"id": "s"})
    talker.send("a", b"x")
    assert talker.heard() == []
    talker.subscribe("s", "a")
    talker.send("a", b"y")
    assert bodies(talker) == [b"y"]


def test_unsubscribing_what_is_not_there_is_an_error() -> None:
    talker = Scene().client()
    talker.say("UNSUBSCRIBE", {"id": "nothing"})
    assert talker.error() == "this session has no subscription 'nothing'"


# --- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledgement(version: str, message: dict[str, str]) -> dict[str, str]:
    if version == "1.2":
        return {"id": message["ack"]}
    return {"message-id": message["message-id"]} | ({} if version == "1.0" else {"subscription": "s"})


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("mode", "settled"), [("client", 2), ("client-individual", 1)])
def test_ack_settles_what_its_mode_says_in_every_version(version: str, mode: str, settled: int) -> None:
    scene = Scene()
    talker = scene.client(version)
    talker.subscribe("s", "a", ack=mode)
    for body in (b"1", b"2", b"3"):
        talker.send("a", body)
    messages = talker.heard()
    talker.say("ACK", acknowledgement(version, messages[1].headers))
    assert talker.heard() == []
    counts = scene.core.statistics()
    assert (counts.acknowledged, counts.unacknowledged_now) == (settled, 3 - settled)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_nack_settles_and_counts_as_refused(version: str) -> None:
    scene = Scene()
    talker = scene.client(version)
    talker.subscribe("s", "a", ack="client-individual")
    talker.send("a")
    (message,) = talker.heard()
    talker.say("NACK", acknowledgement(version, message.headers))
    counts = scene.core.statistics()
    assert (counts.refused, counts.acknowledged, counts.unacknowledged_now) == (1, 0, 0)


def test_a_message_acknowledged_twice_is_an_error() -> None:
    talker = Scene().client()
    talker.subscribe("s", "a", ack="client")
    talker.send("a")
    (message,) = talker.heard()
    talker.say("ACK", {"id": message.headers["ack"]})
    talker.say("ACK", {"id": message.headers["ack"]})
    assert "each counts once" in talker.error()


def test_acknowledging_for_a_subscription_that_ended_is_an_error() -> None:
    talker = Scene().client()
    talker.subscribe("s", "a", ack="client")
    talker.send("a")
    (message,) = talker.heard()
    talker.say("UNSUBSCRIBE", {"id": "s"})
    talker.say("ACK", {"id": message.headers["ack"]})
    assert "does not have (any more)" in talker.error()


def test_a_subscriber_that_never_acknowledges_gets_its_window_and_no_more() -> None:
    scene = Scene(limits={"unacknowledged": 3, "queue_messages": 4})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", ack="client", overflow="drop-oldest")
    for number in range(20):
        writer.send("a", b"%d" % number)
    assert bodies(reader) == [b"0", b"1", b"2"]
    counts = scene.core.statistics()
    assert (counts.waiting_messages_now, counts.shed_queue_full) == (4, 13)


def test_what_waits_for_a_session_that_closes_is_shed_and_counted() -> None:
    scene = Scene(limits={"unacknowledged": 1})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", ack="client")
    for _ in range(5):
        writer.send("a")
    reader.conversation.lost("gone")
    counts = scene.core.statistics()
    assert (counts.delivered, counts.shed_session_closed) == (1, 4)
    assert (counts.sessions_now, counts.subscriptions_now, counts.waiting_messages_now) == (1, 0, 0)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_after_disconnect_nothing_more_is_heard_or_done() -> None:
    scene = Scene()
    talker = scene.client()
    read = encode_frame("DISCONNECT", {"receipt": "bye"}) + encode_frame("SEND", {"destination": "/topic/a"})
    talker.conversation.received(read)
    (receipt,) = talker.heard()
    assert receipt.headers == {"receipt-id": "bye"}
    assert talker.line.is_closed
    talker.conversation.received(encode_frame("SEND", {"destination": "/topic/a"}))
    talker.conversation.writable(True)
    talker.conversation.lost("the client closed the connection")
    assert scene.core.statistics().accepted == 0
    assert scene.core.sessions() == []


def test_what_comes_behind_a_mistake_in_the_same_read_is_not_done() -> None:
    scene = Scene()
    talker = scene.client()
    read = encode_frame("UNSUBSCRIBE", {"id": "nothing"}) + encode_frame("SEND", {"destination": "/topic/a"})
    talker.conversation.received(read)
    assert talker.error()
    assert scene.core.statistics().accepted == 0


def test_a_defect_closes_its_own_conversation_and_logs_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    broken, other = scene.client(), scene.client()
    other.subscribe("s", "a")
    try:
        raise RuntimeError("a defect")
    except RuntimeError as error:
        broken.conversation.broke(error)
    assert broken.error().startswith("internal error")
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert "a defect" in str(record.exc_info[1])
    other.send("a", b"x")
    assert bodies(other) == [b"x"]


@pytest.mark.parametrize("for_good", [False, True])
def test_a_subscriber_whose_line_breaks_does_not_hurt_the_publisher(for_good: bool) -> None:
    scene = Scene()
    broken, good, writer = scene.client(), scene.client(), scene.client()
    for reader in (broken, good):
        reader.subscribe("s", "a")

    broken.line.defect, broken.line.is_broken = RuntimeError("a defect"), for_good
    writer.send("a", b"x", receipt="r")
    assert [frame.command for frame in writer.heard()] == ["RECEIPT"]
    assert bodies(good) == [b"x"]
    assert broken.line.is_closed
    assert scene.core.statistics().sessions_now == 2


def test_versions_of_stomp_meet_on_one_topic() -> None:
    scene = Scene()
    readers = [scene.client(version) for version in ("1.0", "1.1", "1.2")]
    for reader in readers:
        reader.subscribe("s", "a")
    scene.client().send("a", b"x", note="a\nb")
    assert [bodies(reader) for reader in readers] == [[b"x"]] * 3
    assert [reader.reader.version for reader in readers] == [Version.V1_0, Version.V1_1, Version.V1_2]
