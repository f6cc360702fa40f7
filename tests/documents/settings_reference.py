"""The reference of settings, made from the classes that read them: types, bounds, defaults, and their docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as types

from postroad.config import BrokerConfig
from postroad.topology import Plan

HEAD = """# Settings

For whoever writes the settings of a broker: all of them, with what may stand there and what holds
without them. This page is made from the code (`python -m tests.documents.references`), and a test
keeps it so; what happens at a limit is told in [server behaviour](../server-behaviour.md).

A file of settings is [TOML](https://toml.io). A mistake in it is refused with its section, what is
wrong, and what could stand there instead. `postroad broker --config FILE` reads it; options of the
command come before it.
"""

PLAN_HEAD = """# The plan of a network

For whoever edits the plan of a network: every setting in it, with what may stand there and what
holds without it. This page is made from the code (`python -m tests.documents.references`), and a
test keeps it so. `postroad network plan` writes a plan, `postroad network up` starts it;
[plans](../routing.md#plans) says how to read one.
"""


# Ports are written without separators.
LARGEST_PLAIN = 65_535


class Section(NamedTuple):
    """A table of TOML and the class that reads it; the name is empty for the top of the file."""

    name: str
    kind: type[msgspec.Struct]
    is_list: bool = False

    @property
    def title(self) -> str:
        brackets = f"[[{self.name}]]" if self.is_list else f"[{self.name}]"
        return f"`{brackets}`" if self.name else "At the top of the file"


def settings_reference() -> str:
    """The page about a broker."""
    return "\n".join([HEAD, *_sections(BrokerConfig)])


def plan_reference() -> str:
    """The page about a network."""
    return "\n".join([PLAN_HEAD, *_sections(Plan)])


def _sections(kind: type[msgspec.Struct]) -> list[str]:
    waiting, done = [Section("", kind)], []
    while waiting:
        section = waiting.pop(0)
        done.append(_section_text(section))
        waiting[:0] = [
            found
            for field in msgspec.structs.fields(section.kind)
            if (found := _subsection(section.name, field.encode_name, types.type_info(field.type))) is not None
        ]
    return done


def _subsection(parent: str, name: str, kind: types.Type) -> Section | None:
    """The section of a setting that is one."""
    full = f"{parent}.{name}" if parent else name
    for one in _alternatives(kind):
        if isinstance(one, types.StructType):
            return Section(full, one.cls)
        if isinstance(one, types.ListType | types.VarTupleType) and isinstance(one.item_type, types.StructType):
            return Section(full, one.item_type.cls, is_list=True)
    return None


def _section_text(section: Section) -> str:
    summary, meanings = _docstring(section.kind)
    rows = []
    for field in msgspec.structs.fields(section.kind):
        kind = types.type_info(field.type)
        assert field.encode_name in meanings, f"{section.kind.__name__} does not document {field.encode_name}"
        inner = _subsection(section.name, field.encode_name, kind)
        allowed = _allowed(kind) if inner is None else f"section {inner.title}"
        cells = [f"`{field.encode_name}`", allowed, _default(field, inner), meanings[field.encode_name]]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    table = ["| setting | may be | default | meaning |", "| --- | --- | --- | --- |", *rows]
    return "\n".join([f"## {section.title}", "", summary, "", *table, ""])


def _docstring(kind: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """The first sentence of a docstring, and what it says of each attribute."""
    text = inspect.getdoc(kind) or ""
    head, _, attributes = text.partition("\nAttributes:\n")
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", attributes, re.MULTILINE)
    summary = " ".join(head.split()).partition(". ")[0].rstrip(".")
    return f"{summary}.", {name: " ".join(said.split()).rstrip(".") for name, said in found}


def _alternatives(kind: types.Type) -> tuple[types.Type, ...]:
    return tuple(kind.types) if isinstance(kind, types.UnionType) else (kind,)


def _allowed(kind: types.Type) -> str:
    return " or ".join(_words(one) for one in _alternatives(kind) if not isinstance(one, types.NoneType))


def _words(kind: types.Type) -> str:
    """What may stand there."""
    if isinstance(kind, types.LiteralType):
        return ", ".join(f"`{msgspec.json.encode(value).decode()}`" for value in kind.values)
    if isinstance(kind, types.BoolType):
        return "`true`, `false`"
    if isinstance(kind, types.IntType):
        return f"whole number{_bounds(kind)}"
    if isinstance(kind, types.FloatType):
        return f"number{_bounds(kind)}"
    if isinstance(kind, types.StrType):
        return "text"
    if isinstance(kind, types.ListType | types.VarTupleType):
        return f"list: {_allowed(kind.item_type)}"
    if isinstance(kind, types.TupleType):
        return f"list of {len(kind.item_types)}: {', '.join(map(_allowed, kind.item_types))}"
    if isinstance(kind, types.DictType):
        return f"table: {_allowed(kind.key_type)} = {_allowed(kind.value_type)}"
    if isinstance(kind, types.EnumType):
        return ", ".join(f'`"{one.value}"`' for one in kind.cls)
    raise AssertionError(f"the reference has no words for {kind}")


def _bounds(kind: types.IntType | types.FloatType) -> str:
    low = _at_least(kind)
    high = "" if kind.le is None else f"{kind.le:,}"
    told = f", {low} to {high}" if low and high else f", {low} or more" if low else f", up to {high}" if high else ""
    above = "" if kind.gt is None else f", above {kind.gt:,}"
    times = "" if kind.multiple_of is None else f", a multiple of {kind.multiple_of:,}"
    return f"{above}{told}{times}"


def _at_least(kind: types.IntType | types.FloatType) -> str:
    return "" if kind.ge is None else f"{kind.ge:,}"


def _default(field: msgspec.structs.FieldInfo, inner: Section | None) -> str:
    if field.required:
        return "must be given"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        assert field.default_factory is not msgspec.NODEFAULT
        if inner is not None and not inner.is_list:
            return "see there"
        value = field.default_factory()
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value:_}`" if value > LARGEST_PLAIN else f"`{value}`"
    if isinstance(value, msgspec.Struct):
        return "see there"
    return f"`{msgspec.json.encode(value).decode()}`"
