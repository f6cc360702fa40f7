"""The six types of attribute values, and their Python types."""

from __future__ import annotations

from typing import TypeAlias

from postroad.messages.errors import MessageError

__all__ = ["Tag", "Untyped", "Value", "check_value"]


class Untyped(str):
    """Text from a protocol whose headers are all text; compared with a number, it is converted if it reads as one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Untyped({str.__repr__(self)})"


Value: TypeAlias = str | int | float | bool | bytes
"""`str` is text, `Untyped` untyped text, `int` a 64-bit integer, `float` any float but NaN, `bool`, `bytes`."""

SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1


class Tag:
    """The tag byte of each type in an attribute block. Tags from `RESERVED` up belong to later versions."""

    TEXT = 1
    UNTYPED = 2
    INTEGER = 3
    FLOAT = 4
    BOOLEAN = 5
    BYTES = 6
    RESERVED = 0x80


def check_value(name: str, value: object) -> int:
    """Return the tag of a value; raise `MessageError` with the attribute and the types that are accepted."""
    kind = value.__class__
    if kind is str:
        return Tag.TEXT
    if kind is Untyped:
        return Tag.UNTYPED
    # bool is a subclass of int in Python, but not here, so it has to be checked first.
    if isinstance(value, bool):
        return Tag.BOOLEAN
    if isinstance(value, int):
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise MessageError(f"attribute {name!r}: {value} does not fit in 64 bits; send it as a float or as text")
        return Tag.INTEGER
    if isinstance(value, float):
        if value != value:
            raise MessageError(f"attribute {name!r}: NaN is not a value; leave the attribute out")
        return Tag.FLOAT
    return _tag_of_rest(name, value)


def _tag_of_rest(name: str, value: object) -> int:
    if isinstance(value, Untyped):
        return Tag.UNTYPED
    if isinstance(value, str):
        return Tag.TEXT
    if isinstance(value, bytes):
        return Tag.BYTES
    raise MessageError(
        f"attribute {name!r}: {type(value).__name__} is not an attribute type; "
        "use str, Untyped, int, float, bool or bytes"
    )
