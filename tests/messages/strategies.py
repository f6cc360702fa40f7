"""Random values, drafts and bytes for the tests of messages."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from postroad.messages import Draft, MessageId, Untyped

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(
    ["type", "correlation-id", "JMSType", "JMSPriority", "a:b", "back\\slash", "new\nline", "é"]
)
header_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
header_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
values = st.one_of(
    texts,
    texts.map(Untyped),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(max_size=12),
)
levels = st.text(st.sampled_from("abcé漢🙂-_/0"), min_size=1, max_size=4)
topics = st.lists(levels, min_size=1, max_size=5).map(".".join)
ids = st.builds(
    MessageId,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**16 - 1),
)
drafts = st.builds(
    Draft,
    topic=topics,
    attributes=st.dictionaries(names, values, max_size=5),
    headers=st.lists(st.tuples(header_names, header_texts), max_size=4),
    body=st.binary(max_size=20),
    id=ids,
    source=st.integers(0, 2**32 - 1),
    hop_limit=st.integers(0, 255),
    flags=st.integers(0, 7),
    priority=st.integers(0, 255),
    expiry=st.integers(0, 2**63 - 1),
    metadata=st.dictionaries(names, values, max_size=2),
)

# Header lines and attribute blocks that are often valid and often not quite.
loose_lines = st.lists(
    st.sampled_from([b"a", b":", b"\n", b"\\", b"\\c", b"\\n", b"\\t", b"\r", b"\0", b"\xc3\xa9", b"\xc3", b"a:b\n"]),
    max_size=10,
).map(b"".join)


def entry(tag: int, name: bytes, value: bytes) -> bytes:
    """One entry of an attribute block, right or wrong."""
    return struct.pack("<BBH", tag, len(name), len(value)) + name + value


loose_entries = st.lists(
    st.builds(
        entry,
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 0x80, 0xFF]) | st.integers(1, 6),
        st.sampled_from([b"", b"a", b"ab", b"\xff", b"\xc3\xa9"]),
        st.sampled_from(
            [b"", b"\0", b"\1", b"\2", b"\xc3", b"\0" * 8, b"\0" * 6 + b"\xf8\x7f", b"\0" * 6 + b"\xf0\xff"]
        )
        | st.binary(max_size=9),
    ),
    max_size=4,
).map(b"".join)


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with one changed, one left out, one put in, or the end cut off."""
    if not data:
        return st.just(data)
    places = st.integers(0, len(data) - 1)
    octets = st.integers(0, 255).map(lambda number: bytes([number]))
    return st.one_of(
        st.builds(lambda at, new: data[:at] + new + data[at + 1 :], places, octets),
        st.builds(lambda at: data[:at] + data[at + 1 :], places),
        st.builds(lambda at, new: data[:at] + new + data[at:], places, octets),
        st.builds(lambda at: data[:at], places),
    )
