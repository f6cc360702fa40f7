"""Thrift's compact protocol, as far as the headers and footers of Parquet need it: writing structs.

Source: the Apache Thrift specification, "Thrift Compact protocol encoding". A struct is given as fields in order of
their numbers, each (number, value); fields that are None are left out.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Long", "Struct", "encode"]

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_SHORT_LIST = 15


class Long(int):
    """An integer that is 64 bits wide; plain ones are 32."""


class Struct(tuple[tuple[int, Any], ...]):
    """Fields by their numbers."""

    __slots__ = ()


_KINDS: dict[type[Any], int] = {int: _I32, Long: _I64, bytes: _BINARY, list: _LIST, Struct: _STRUCT}


def encode(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _struct(out, struct)
    return bytes(out)


def _struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, value in struct:
        if value is None:
            continue
        # No struct of Parquet leaves out more than fourteen fields in a row.
        out.append((number - before) << 4 | _KINDS[type(value)])
        before = number
        _value(out, value)
    out.append(0)


def _value(out: bytearray, value: Any) -> None:
    kind = _KINDS[type(value)]
    if kind <= _I64:
        _varint(out, value << 1 ^ value >> 63)
    elif kind == _BINARY:
        _varint(out, len(value))
        out += value
    elif kind == _STRUCT:
        _struct(out, value)
    else:
        inner = _KINDS[type(value[0])]
        if len(value) < _SHORT_LIST:
            out.append(len(value) << 4 | inner)
        else:
            out.append(_SHORT_LIST << 4 | inner)
            _varint(out, len(value))
        for one in value:
            _value(out, one)


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
