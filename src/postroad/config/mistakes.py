"""Explains mistakes in settings: the section, what is wrong there, and what is allowed instead."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["explained", "plain_words"]

_AT = re.compile(r"(?s)(.*?) - at `(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_ENUM = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_KIND = re.compile(r"Expected `(.*?)`, got `(.*?)`")
_BOUND = re.compile(r"Expected `(?:int|float)` (<=|>=|<|>) (\S+)")
_LENGTH = re.compile(r"Expected `(str|array|object)` of length (<=|>=|<|>) (\d+)")
_BOUNDS = {"<=": "at most {}", ">=": "{} or more", "<": "less than {}", ">": "more than {}"}
_PARTS = {"str": "characters", "array": "entries", "object": "entries"}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
    "null": "left out",
}
_ROOT = "$"


def explained(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    """What is wrong with settings, for the person who wrote them.

    Args:
        error: what msgspec says.
        kind: the class of the settings as a whole.
    """
    text = str(error)
    found = _AT.fullmatch(text)
    message, path = found.groups() if found else (text, _ROOT)
    names = [name for name in re.split(r"[.\[\]]+", path) if name not in ("", _ROOT, "...") and not name.isdigit()]
    words = _in_words(message, names, kind)
    return words if path == _ROOT else f"{words} (at `{path}`)"


def _in_words(message: str, names: list[str], kind: type[msgspec.Struct]) -> str:
    unknown, enum = _UNKNOWN.fullmatch(message), _ENUM.fullmatch(message)
    if unknown:
        section = _type_at(kind, names)
        fields = [field.encode_name for field in section.fields] if isinstance(section, inspect.StructType) else []
        listed = f"; the settings there are {', '.join(fields)}" if fields else ""
        return f"{_section(names)}: there is no setting {unknown[1]}{_perhaps(unknown[1], fields)}{listed}"
    if missing := _MISSING.fullmatch(message):
        return f"{_section(names)}: {missing[1]} is missing"
    place = f"{_section(names[:-1])}: {names[-1]}" if names else "the settings"
    if enum:
        choices = _choices(_type_at(kind, names))
        wrong = enum[1].strip("'")
        return f"{place} is {enum[1]}, which is none of {', '.join(choices)}{_perhaps(wrong, choices)}"
    return f"{place}: {plain_words(message)}"


def plain_words(message: str) -> str:
    """What is wrong with one value, in words instead of the types of Python."""
    if unknown := _UNKNOWN.fullmatch(message):
        return f"there is no {unknown[1]} here"
    if missing := _MISSING.fullmatch(message):
        return f"{missing[1]} is missing"
    if kind := _KIND.fullmatch(message):
        wanted, given = (" or ".join(_KINDS.get(one, one) for one in names.split(" | ")) for names in kind.groups())
        return f"this is {given}, and has to be {wanted}"
    if bound := _BOUND.fullmatch(message):
        return f"this has to be {_BOUNDS[bound[1]].format(_grouped(bound[2]))}"
    if length := _LENGTH.fullmatch(message):
        if length[2] == ">=" and length[3] == "1":
            return "this may not be empty"
        return f"this has to have {_BOUNDS[length[2]].format(_grouped(length[3]))} {_PARTS[length[1]]}"
    return message


def _grouped(number: str) -> str:
    """A number of a limit as the documents write it."""
    whole = number.removesuffix(".0")
    return f"{int(whole):,}" if whole.lstrip("-").isdigit() else number


def _section(names: list[str]) -> str:
    return f"[{'.'.join(names)}]" if names else "at the top"


def _perhaps(wrong: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(wrong, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _type_at(kind: type[msgspec.Struct], names: list[str]) -> Any:
    """The type of a setting by the names of its sections; None if there is none."""
    found: Any = inspect.type_info(kind)
    for name in names:
        for section in _alternatives(found):
            if isinstance(section, inspect.ListType | inspect.VarTupleType):
                section = section.item_type
            if isinstance(section, inspect.StructType):
                found = next((field.type for field in section.fields if field.encode_name == name), None)
                break
        else:
            return None
    for section in _alternatives(found):
        if isinstance(section, inspect.ListType | inspect.VarTupleType):
            section = section.item_type
        if isinstance(section, inspect.StructType):
            return section
    return found


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)


def _choices(kind: Any) -> list[str]:
    found: list[str] = []
    for one in _alternatives(kind):
        if isinstance(one, inspect.LiteralType):
            found += [str(value) for value in one.values]
        elif isinstance(one, inspect.EnumType):
            found += [str(value.value) for value in one.cls]
    return found
