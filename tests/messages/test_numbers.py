from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroad.kernels import kernel
from postroad.messages import number_of, parse_number
from postroad.messages.columns import BUFFER
from postroad.messages.numbers import FLOAT, HARD, INTEGER, NOT_A_NUMBER
from tests.messages.reference import number


@kernel(f"Tuple((int64, int64, float64))({BUFFER}, int64, int64)")
def parse(buffer: Any, start: int, end: int) -> tuple[int, int, float]:
    return parse_number(buffer, start, end)


def same(one: object, other: object) -> bool:
    """Equal, of one type, and the same zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return one == other


def assert_kernel_agrees(text: str) -> None:
    # Digits on both sides of the span: reading beyond it would change the number.
    data = text.encode()
    kind, integer, value = parse(np.frombuffer(b"12" + data + b"34", dtype=np.uint8), 2, 2 + len(data))
    expected = number(text)
    if kind == HARD:
        assert expected is None or isinstance(expected, float)
    elif kind == NOT_A_NUMBER:
        assert expected is None
    else:
        assert kind in (INTEGER, FLOAT)
        assert same(integer if kind == INTEGER else value, expected)


digits = st.text("0123456789", max_size=25)
literals = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "+", "-", "--", " "]),
        digits,
        st.sampled_from(["", ".", "."]),
        digits,
        st.sampled_from(["", "", "e", "E", "e-", "E+"]),
        st.text("0123456789", max_size=3) | st.just("99999999999999999999"),
    ),
)
soup = st.text("0123456789.eE+- x_\n٣", max_size=12)
written = st.integers(-(2**64), 2**64).map(str) | st.floats().map(repr) | st.decimals(allow_nan=False).map(str)


@given(literals | soup | written | st.text(max_size=6).filter(str.isprintable))
@settings(max_examples=600)
@example("9223372036854775807")
@example("9223372036854775808")
@example("-9223372036854775808")
@example("-9223372036854775809")
@example("18446744073709551616")
@example("-0")
@example("-0.0e9")
@example("0." + "0" * 400 + "1e401")
@example("1" * 5000)
@example("1" * 400 + ".0")
@example("1e22")
@example("1e23")
@example("9007199254740992.0")
@example("9007199254740993.0")
@example("1\n")
def test_both_parsers_follow_the_rule(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    assert same(number_of(text), number(text))
    assert_kernel_agrees(text)


@given(st.integers(-(2**53), 2**53), st.integers(-22, 22))
def test_kernel_rounds_short_floats_itself(mantissa: int, power: int) -> None:
    text = f"{mantissa}e{power}"
    kind, _, value = parse(np.frombuffer(text.encode(), dtype=np.uint8), 0, len(text))
    assert kind == FLOAT
    assert same(value, float(text))


@pytest.mark.parametrize("text", ["1e23", "9007199254740993.0", "1e-30", "1e400", "12345678901234567890.5"])
def test_kernel_leaves_hard_floats_to_python(text: str) -> None:
    kind, _, _ = parse(np.frombuffer(text.encode(), dtype=np.uint8), 0, len(text))
    assert kind == HARD
