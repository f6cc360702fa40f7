"""Writing TOML, as far as plans need it: values, a table, lists of tables. The standard library only reads it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["toml_text"]


def toml_text(struct: msgspec.Struct) -> str:
    """A struct as TOML: plain fields first, then inner structs as tables, then lists of structs as lists of tables."""
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    plain = {name: value for name, value in fields.items() if not _is_table(value) and not _is_list_of_tables(value)}
    parts = ["".join(f"{name} = {_value(value)}\n" for name, value in plain.items() if not _is_left_out(value))]
    parts += [f"[{name}]\n{_lines(value)}" for name, value in fields.items() if _is_table(value)]
    for name, value in fields.items():
        if _is_list_of_tables(value):
            parts += [f"[[{name}]]\n{_lines(one)}" for one in value]
    return "\n".join(parts)


def _lines(struct: msgspec.Struct) -> str:
    shown = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return "".join(f"{name} = {_value(value)}\n" for name, value in shown.items() if not _is_left_out(value))


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's too; only DEL is forbidden there and plain here.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    return repr(value)


def _is_table(value: object) -> bool:
    return isinstance(value, msgspec.Struct)


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and _is_table(value[0])


def _is_left_out(value: object) -> bool:
    return value is None or value is False or (isinstance(value, tuple) and not value)
