"""Thrift's compact protocol, as far as the headers and footers of Parquet need it: writing and reading structs.

Source: the Apache Thrift specification, "Thrift Compact protocol encoding". A struct is given as fields in order of
their numbers, each (number, value); fields that are None are left out.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Long", "Struct", "decode", "encode"]

_TRUE, _FALSE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 4, 5, 6, 8, 9, 12
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
        kind = _KINDS[type(value)]
        # No struct of Parquet leaves out more than fourteen fields in a row.
        out.append((number - before) << 4 | kind)
        before = number
        _value(out, kind, value)
    out.append(0)


def _value(out: bytearray, kind: int, value: Any) -> None:
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
            _value(out, inner, one)


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def decode(data: bytes | memoryview, at: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, and where its bytes end.

    Raises:
        ValueError: a field is of a kind that headers of Parquet do not have.
        IndexError: the bytes end before the struct does.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_number(data, at)
        fields[number], at = _read(data, at, head & 0xF)
    return fields, at + 1


def _read(data: bytes | memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if _I16 <= kind <= _I64:
        return _read_number(data, at)
    if kind == _BINARY:
        size, at = _read_varint(data, at)
        return bytes(data[at : at + size]), at + size
    if kind == _STRUCT:
        return decode(data, at)
    raise ValueError(f"a field of kind {kind}")


def _read_number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    folded, at = _read_varint(data, at)
    return folded >> 1 ^ -(folded & 1), at


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
