"""Writes TOML: values, tables and lists of tables, as plans and settings have them. The standard library only reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["toml_text"]


def toml_text(fields: Mapping[str, Any]) -> str:
    """Fields as TOML, such as `msgspec.to_builtins` makes of a struct. What is None is left out."""
    return "\n".join(_lines(fields, "")).strip() + "\n"


def _lines(fields: Mapping[str, Any], path: str) -> Iterator[str]:
    """Plain values first: in TOML whatever follows the head of a table belongs to the table."""
    present = {name: value for name, value in fields.items() if value is not None}
    tables = {name: value for name, value in present.items() if isinstance(value, dict)}
    lists = {name: value for name, value in present.items() if _is_list_of_tables(value)}
    for name, value in present.items():
        if name not in tables and name not in lists:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in tables.items():
        yield f"\n[{path}{_key(name)}]"
        yield from _lines(value, f"{path}{_key(name)}.")
    for name, value in lists.items():
        for each in value:
            yield f"\n[[{path}{_key(name)}]]"
            yield from _lines(each, f"{path}{_key(name)}.")


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], dict)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's too; only DEL is forbidden there and plain here.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    return repr(value)
