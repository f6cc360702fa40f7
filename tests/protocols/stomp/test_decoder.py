"""A client's frames become rows and events."""

from __future__ import annotations

from postroad.messages import check_batch
from postroad.messages.columns import FLAGS, QUEUED
from postroad.protocols.stomp import (
    Connect,
    FrameReader,
    ProtocolError,
    State,
    StompDecoder,
    Subscribe,
    TransactionSend,
    Version,
    decode_frames,
    render_messages,
)
from tests.protocols.stomp.outcomes import connected, outcome


def test_decoder_puts_sends_in_one_batch_and_says_where_events_stand() -> None:
    decoder = StompDecoder()
    received = decoder.receive(
        b"CONNECT\naccept-version:1.0,1.2\nhost:h\nlogin:ann\npasscode:secret\nheart-beat:10,20\n\n\0\n"
        b"SEND\ndestination:/topic/a.b\nprice:7\nreceipt:r1\nname:x\\cy\n\nhello\0\n"
        b"SUBSCRIBE\nid:s\ndestination:/topic/a.*\nselector:price > 5\n\n\0\n"
        b"SEND\ncontent-length:3\ndestination:/topic/c\npriority:9\nexpires:1700000000000\n\na\0b\0\n"
    )
    assert received.batch is not None
    check_batch(received.batch)
    first, second = received.batch
    assert (first.topic, first.attributes, first.body) == ("a.b", {"price": "7", "name": "x:y"}, b"hello")
    assert (second.topic, second.priority, second.expiry, second.body) == ("c", 9, 1700000000000, b"a\0b")
    start, end = received.receipts[0]
    assert received.batch.buffer[start:end].tobytes() == b"r1"
    assert received.receipts[1].tolist() == [-1, -1]
    connect, subscribe = received.events
    assert isinstance(connect, Connect)
    assert (connect.version, connect.login, connect.passcode) == (Version.V1_2, "ann", "secret")
    assert (connect.host, connect.heart_beat, connect.row) == ("h", (10, 20), 0)
    assert "secret" not in repr(connect)
    assert isinstance(subscribe, Subscribe)
    assert (subscribe.id, subscribe.topic, subscribe.selector, subscribe.row) == ("s", "a.*", "price > 5", 1)
    assert received.line_ends == 4


def test_decoder_says_whether_any_row_bears_a_message_id() -> None:
    named, plain = b"SEND\ndestination:/topic/a\nmessage-id:m1\n\nx\0", b"SEND\ndestination:/topic/a\n\nx\0"
    in_transaction = b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/topic/a\nmessage-id:m1\ntransaction:t\n\nx\0"
    decoder = connected("1.2")
    for frames, expected in ((plain, False), (named, True), (plain + named, True), (in_transaction + plain, False)):
        received = decoder.receive(frames)
        assert received.has_message_ids is expected
        assert bool((received.message_ids[:, 0] >= 0).any()) is expected


def test_decoder_keeps_a_send_of_a_transaction_until_it_is_committed() -> None:
    decoder = connected()
    received = decoder.receive(b"SEND\ndestination:/topic/a\ntransaction:t\nk:v\n\nbody\0")
    (event,) = received.events
    assert received.batch is None
    assert isinstance(event, TransactionSend)
    received = decoder.receive(event.frame + b"SEND\ndestination:/topic/b\n\n\0")
    assert received.batch is not None
    assert received.batch.buffer.tobytes() == b"b"
    assert event.transaction == "t"
    committed = decode_frames([event.frame, event.frame], Version.V1_2).batch
    assert committed is not None
    assert [(message.attributes, message.body) for message in committed] == [({"k": "v"}, b"body")] * 2


def test_decoder_is_closed_by_a_fault_and_keeps_the_rows_before_it() -> None:
    decoder = connected()
    received = decoder.receive(b"SEND\ndestination:/topic/a\n\n\0SEND\nreceipt:9\ndestination:/exchange/a\n\n\0")
    assert received.batch is not None
    assert len(received.batch) == 1
    (event,) = received.events
    assert isinstance(event, ProtocolError)
    assert "/topic/" in event.text
    assert (event.receipt, event.row, decoder.state) == (b"9", 1, State.CLOSED)
    assert decoder.receive(b"SEND\ndestination:/topic/a\n\n\0").batch is None


def test_decoder_waits_for_the_rest_of_a_line_end() -> None:
    for head in (b"", b"SEND", b"SEND\r\ndestination:/topic/a", b"SEND\r\ndestination:/topic/a\r\n"):
        decoder = connected()
        whole = b"SEND\r\ndestination:/topic/a\r\n\r\nbody\0" if head else b"\r\n"
        assert outcome(decoder, [head + b"\r"]) == []
        assert outcome(decoder, [whole.removeprefix(head + b"\r")]) == outcome(connected(), [whole])


def test_decoder_scans_a_large_frame_only_when_it_can_be_complete() -> None:
    decoder = connected()
    body = bytes(100_000)
    stream = b"SEND\ndestination:/topic/a\ncontent-length:100000\n\n" + body + b"\0"
    pieces = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    kept = []
    for piece in pieces[:-1]:
        assert decoder.receive(piece).batch is None
        kept.append(decoder.pending)
    assert kept == list(range(1000, len(stream), 1000))
    batch = decoder.receive(pieces[-1]).batch
    assert batch is not None
    assert (batch.message(0).body, decoder.pending) == (body, 0)


def test_decoder_takes_any_kind_of_buffer_and_keeps_none() -> None:
    frame = b"SEND\ndestination:/topic/a\n\nbody\0SEND"
    for kind in (bytes, bytearray, memoryview):
        decoder = connected()
        data = bytearray(frame)
        received = decoder.receive(kind(data))
        data[:] = bytes(len(data))
        assert received.batch is not None
        assert received.batch.message(0).body == b"body"
        assert decoder.pending == 4
        assert decoder.receive(b"").batch is None


def test_received_says_what_it_holds() -> None:
    text = repr(connected().receive(b"SEND\ndestination:/topic/a\n\n\0BEGIN\ntransaction:t\n\n\0"))
    assert "1 messages" in text
    assert "Begin" in text


def test_decoder_reads_on_in_a_large_read_behind_an_unfinished_frame() -> None:
    frames = [
        b"SEND\ndestination:/topic/%b\nreceipt:r%d\nn:%d\n\n%b\0\n" % (topic, number, number, b"x" * size)
        for number, (topic, size) in enumerate(
            [(b"a", 10), (b"a.b", 5_000), (b"a.b", 10), (b"a.b", 20), (b"c", 9_000), (b"a.b", 0)] * 3
        )
    ]
    stream = b"".join(frames) + b"BEGIN\ntransaction:t\n\n\0" + b"".join(frames)
    whole = outcome(connected(), [stream])
    assert len(whole) > 2 * len(frames)
    for cut in range(1, 6_000, 37):
        assert outcome(connected(), [stream[:cut], stream[cut:]]) == whole
        assert outcome(connected(), [stream[:cut], stream[cut:-cut], stream[-cut:]]) == whole


def test_decoder_reports_a_fault_right_behind_an_unfinished_frame() -> None:
    frame = b"SEND\ndestination:/topic/a\n\nbody\0"
    for bad in (b"JUNK\n\n\0", b"SEND\nno colon\n\n\0"):
        for filling in (0, 5_000):
            stream = frame + bad + b"x" * filling
            for cut in (1, len(frame) - 1, len(frame) + 2):
                assert outcome(connected(), [stream[:cut], stream[cut:]]) == outcome(connected(), [stream])


def test_decoder_connects_in_the_middle_of_a_large_read() -> None:
    connect = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
    stream = connect + b"SEND\ndestination:/topic/a\n\nbody\0" * 500
    for cut in (0, 3, len(connect) - 1):
        decoder = StompDecoder()
        first, second = decoder.receive(stream[:cut]), decoder.receive(stream[cut:])
        assert (first.batch, len(second.events)) == (None, 1)
        assert second.batch is not None
        assert [message.body for message in second.batch] == [b"body"] * 500


def test_rows_with_one_destination_share_its_topic_and_others_do_not() -> None:
    topics = ["a.b", "a.b", "a.c", "a.b", "a.b", "a:b", "a:b"]
    escaped = [topic.replace(":", "\\c").encode() for topic in topics]
    sends = [b"SEND\ndestination:/topic/%b\n\n\0" % topic for topic in escaped]
    in_transaction = b"SEND\ndestination:/topic/zzz\ntransaction:t\n\n\0"
    received = connected().receive(b"".join(sends[:4]) + in_transaction + b"".join(sends[4:]))
    assert received.batch is not None
    check_batch(received.batch)
    assert [message.topic for message in received.batch] == topics
    assert received.batch.spans[0, :2].tolist() == received.batch.spans[1, :2].tolist()


def test_rows_for_queues_are_marked_and_rendered_as_such() -> None:
    decoder = connected()
    plain = decoder.receive(b"SEND\ndestination:/topic/a\n\nx\0")
    assert not plain.has_queues
    frames = b"".join(b"SEND\ndestination:/%s/a\n\nx\0" % kind for kind in (b"queue", b"queue", b"topic", b"queue"))
    received = decoder.receive(frames)
    assert received.has_queues
    batch = received.batch
    assert batch is not None
    assert [message.topic for message in batch] == ["a"] * 4
    assert (batch.envelopes[:, FLAGS] & QUEUED).tolist() == [QUEUED, QUEUED, 0, QUEUED]
    for version in Version:
        rendered = FrameReader(version).receive(render_messages(batch, [0, 1, 2, 3], version, b"MESSAGE\n").tobytes())
        told = [frame.headers["destination"] for frame in rendered]
        assert told == ["/queue/a", "/queue/a", "/topic/a", "/queue/a"]
