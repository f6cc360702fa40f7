"""Where the three versions differ, case by case."""

from __future__ import annotations

import pytest

from postroad.protocols.stomp import Connect, ProtocolError, StompDecoder, Version
from postroad.protocols.stomp.versions import negotiate
from tests.protocols.stomp.outcomes import connected, outcome

EVERY = ("1.0", "1.1", "1.2")


@pytest.mark.parametrize(
    ("accepted", "version"),
    [
        (None, Version.V1_0),
        ("1.0", Version.V1_0),
        ("1.0,1.1", Version.V1_1),
        ("1.2,1.1,1.0", Version.V1_2),
        ("1.1, 2.0", Version.V1_1),
        ("2.0", None),
        ("", None),
        ("1", None),
    ],
)
def test_highest_common_version_is_chosen(accepted: str | None, version: Version | None) -> None:
    assert negotiate(accepted) is version


@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP"])
def test_both_first_commands_open_a_connection(command: bytes) -> None:
    decoder = StompDecoder()
    (event,) = outcome(decoder, [command + b"\r\naccept-version:1.1,1.2\r\n\r\n\0"])
    assert isinstance(event, Connect)
    assert decoder.version is Version.V1_2


def test_connect_has_no_escapes_and_keeps_blanks() -> None:
    (event,) = outcome(StompDecoder(), [b"CONNECT\naccept-version:1.2\npasscode: a\\nb:c\n\n\0"])
    assert isinstance(event, Connect)
    assert event.passcode == " a\\nb:c"


def test_connect_of_1_0_drops_blanks_before_values_and_has_no_heart_beat() -> None:
    (event,) = outcome(StompDecoder(), [b"CONNECT\nlogin: ann\npasscode:  x\nheart-beat:5,5\n\n\0"])
    assert isinstance(event, Connect)
    assert (event.login, event.passcode, event.heart_beat, event.host) == ("ann", "x", (0, 0), None)


def value_of(line: bytes, version: str) -> str | None:
    """The value of the header `x` in this line; None when it is refused."""
    (found,) = outcome(connected(version), [b"SEND\ndestination:/topic/a\n" + line + b"\n\n\0"])
    if isinstance(found, ProtocolError):
        return None
    ((name, value),) = found[1]
    assert name == "x"
    assert isinstance(value, str)
    return value


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"x:plain", ("plain", "plain", "plain")),
        (b"x:", ("", "", "")),
        (b"x:a:b", ("a:b", "a:b", "a:b")),
        (b"x:\\c", ("\\c", ":", ":")),
        (b"x:\\n", ("\\n", "\n", "\n")),
        (b"x:\\\\", ("\\\\", "\\", "\\")),
        (b"x:\\r", ("\\r", None, "\r")),
        (b"x:\\t", ("\\t", None, None)),
        (b"x:end\\", ("end\\", None, None)),
        (b"x:a\rb", ("a\rb", "a\rb", None)),
        (b"x:end\r", ("end", "end\r", "end")),
        (b"x: a ", ("a ", " a ", " a ")),
        (b"x:\xc3\xa9", ("é", "é", "é")),
        (b"x:\xc3", (None, None, None)),
        (b"x:a\0", (None, None, None)),
        (b"x", (None, None, None)),
        (b":a", (None, None, None)),
    ],
)
def test_header_lines_in_each_version(line: bytes, values: tuple[str | None, ...]) -> None:
    assert tuple(value_of(line, version) for version in EVERY) == values


def test_empty_line_may_end_in_cr_lf_except_in_1_1() -> None:
    frame = b"SEND\r\ndestination:/topic/a\r\n\r\nbody\0"
    for version in ("1.0", "1.2"):
        assert outcome(connected(version), [frame])[0][2] == b"body"
    # There, the CR belongs to the value.
    (error,) = outcome(connected("1.1"), [frame])
    assert isinstance(error, ProtocolError)


@pytest.mark.parametrize("version", EVERY)
def test_first_of_repeated_headers_counts(version: str) -> None:
    frame = b"SEND\ndestination:/topic/a\ndestination:/topic/b\ncontent-length:1\ncontent-length:9\n"
    frame += b"priority:3\npriority:5\n"
    ((topic, headers, body, _, priority, _),) = outcome(connected(version), [frame + b"\nx\0"])
    assert (topic, body, priority) == ("a", b"x", 3)
    assert headers == [("priority", "3"), ("priority", "5")]


@pytest.mark.parametrize(
    ("lines", "priority", "expiry"),
    [
        (b"", 4, 0),
        (b"priority:0\n", 0, 0),
        (b"priority:9\nexpires:5\n", 9, 5),
        (b"priority:10\n", 4, 0),
        (b"priority:-1\n", 4, 0),
        (b"priority:\n", 4, 0),
        (b"priority:high\nexpires:never\n", 4, 0),
        (b"expires:999999999999999999\n", 4, 10**18 - 1),
        (b"expires:1000000000000000000\n", 4, 0),
    ],
)
def test_priority_and_expiry_are_taken_when_valid(lines: bytes, priority: int, expiry: int) -> None:
    (found,) = outcome(connected(), [b"SEND\ndestination:/topic/a\n" + lines + b"\n\0"])
    assert found[4:] == (priority, expiry)


def test_headers_of_a_message_frame_do_not_travel() -> None:
    decoder = connected()
    received = decoder.receive(b"SEND\nack:1\nsubscription:2\nmessage-id:m7\ndestination:/topic/a\nacks:y\n\n\0")
    assert received.batch is not None
    assert received.batch.message(0).attributes == {"acks": "y"}
    start, end = received.message_ids[0]
    assert received.batch.buffer[start:end].tobytes() == b"m7"


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        (b"HELLO\n\n\0", "not a command"),
        (b"send\n\n\0", "not a command"),
        (b"SEND \n\n\0", "not a command"),
        (b"MESSAGE\n\n\0", "not a command"),
        (b"\0", "not a command"),
        (b"SEND\n\n\0", "needs a destination"),
        (b"SEND\ndestination:/exchange/a\n\n\0", "start with /topic/"),
        (b"SEND\ndestination:/top\n\n\0", "start with /topic/"),
        (b"SEND\ndestination:/topic/\n\n\0", "empty level"),
        (b"SEND\ndestination:/topic/a..b\n\n\0", "empty level"),
        (b"SEND\ndestination:/topic/a.*\n\n\0", "wildcard"),
        (b"SEND\ndestination:/topic/a b\n\n\0", "blank"),
        (b"SEND\ndestination:/topic/\xff\n\n\0", "UTF-8"),
        (b"SEND\ndestination:/topic/a\ncontent-length:x\n\n\0", "content-length"),
        (b"SEND\ndestination:/topic/a\ncontent-length:\n\n\0", "content-length"),
        (b"SEND\ndestination:/topic/a\ncontent-length:1\n\nab\0", "no NUL follows"),
        (b"SEND\ndestination:/topic/a\n\0", "NUL stands among"),
        (b"SEND\ndestination:/topic/a\nx:a\rb\n\n\0", "carriage return"),
        (b"SEND\ndestination:/topic/a\nx:\\z\n\n\0", "no escape"),
        (b"BEGIN\ntransaction:t\n\nbody\0", "only SEND has a body"),
    ],
)
def test_faults_say_what_is_wrong(frame: bytes, part: str) -> None:
    (error,) = outcome(connected(), [frame])
    assert isinstance(error, ProtocolError)
    assert part in error.text


def test_fault_carries_the_receipt_that_was_asked_for() -> None:
    (error,) = outcome(connected(), [b"SEND\nreceipt:r\\c1\nx:\\z\n\n\0"])
    assert isinstance(error, ProtocolError)
    assert error.receipt == b"r\\c1"
    (error,) = outcome(connected(), [b"SEND\nx:\\z\nreceipt:r\n\n\0"])
    assert isinstance(error, ProtocolError)
    assert error.receipt is None
