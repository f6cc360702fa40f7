"""Words of the command line as values, without pydantic where it is not needed.

typer converts with pydantic, from some release on. Importing that takes longer than most commands run: half of the
time of `postroad trace`. Text, numbers, paths and choices that are right are converted here; everything else, mistakes
among it, is left to typer.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from postroad.cli.help_format import load_help_format, name_values

__all__ = ["PlainCommand", "PlainGroup", "PlainValue"]

# Numbers that everybody writes alike; for all others typer decides.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
# What a parameter may require of a path besides that it can be read.
_PATH_DEMANDS = ("exists", "writable", "resolve_path", "allow_dash", "path_type")

_NOT_PLAIN = object()


class PlainCommand(TyperCommand):
    """A command whose plain values are converted here."""

    def get_params(self, ctx: Any) -> Any:
        """Its parameters, and the option for help."""
        return _converted_plainly(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write its help."""
        load_help_format()
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands whose plain values are converted here."""

    def get_params(self, ctx: Any) -> Any:
        """Its parameters, and the option for help."""
        return _converted_plainly(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write its help."""
        load_help_format()
        super().format_help(ctx, formatter)


def _converted_plainly(parameters: Any) -> Any:
    for parameter in parameters:
        # Releases of typer that have no such attribute convert without pydantic.
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = PlainValue()
    name_values(parameters)
    return parameters


class PlainValue:
    """What typer calls to convert the words that were given for a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        plain = _several(value, param.type_descriptor) if several else _plain(value, param.type_descriptor)
        if plain is not _NOT_PLAIN:
            return plain
        param._runtime_param = None
        try:
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            error.message = _about_the_word(error.message, value)
            raise


def _about_the_word(message: str, value: Any) -> str:
    """What pydantic says about "Input", said about the word that was given, and without how it was parsed."""
    message = message.removeprefix("Value error, ").split(", unable to parse")[0]
    if isinstance(value, str) and message.startswith("Input "):
        # `repr` writes control characters as escapes.
        message = f"{value!r}{message.removeprefix('Input')}"
    return message


def _several(value: Any, descriptor: Any) -> Any:
    if descriptor.annotation == list[str] and not isinstance(value, str) and all(isinstance(one, str) for one in value):
        return list(value)
    return _NOT_PLAIN


def _plain(value: Any, descriptor: Any) -> Any:
    """The value of a word or a default; `_NOT_PLAIN` if that takes more than is done here."""
    kind, demands = descriptor.annotation, descriptor.parameter_info
    if not isinstance(kind, type) or demands.parser is not None:
        return _NOT_PLAIN
    if kind is str and isinstance(value, str):
        return value
    if issubclass(kind, Enum):
        return value if isinstance(value, kind) else next((one for one in kind if one.value == value), _NOT_PLAIN)
    if kind is Path:
        return _path(value, demands)
    if kind in (int, float):
        return _number(value, kind, demands)
    return _NOT_PLAIN


def _path(value: Any, demands: Any) -> Any:
    if not isinstance(value, (str, Path)) or any(getattr(demands, demand) for demand in _PATH_DEMANDS):
        return _NOT_PLAIN
    if not (demands.file_okay and demands.dir_okay):
        return _NOT_PLAIN
    path = Path(value)
    return path if not demands.readable or os.access(path, os.R_OK) or not path.exists() else _NOT_PLAIN


def _number(value: Any, kind: type[int] | type[float], demands: Any) -> Any:
    if isinstance(value, str) and (_INTEGER if kind is int else _DECIMAL).fullmatch(value):
        value = kind(value)
    if type(value) is not kind:
        return _NOT_PLAIN
    too_small = demands.min is not None and value < demands.min
    too_large = demands.max is not None and value > demands.max
    return _NOT_PLAIN if too_small or too_large else value
