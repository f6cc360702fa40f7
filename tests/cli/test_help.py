"""`-h` works everywhere, and what it shows is the help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.programs import here
from tests.documents.commands_reference import commands, commands_reference

if TYPE_CHECKING:
    import pytest


def test_every_command_and_group_has_help_by_both_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = commands()
    assert len(found) > 40
    for words, command in found:
        short = here(monkeypatch, *words, "-h")
        assert (short.code, short.err) == (0, ""), words
        # Commands inherit both from their group.
        if hasattr(command, "commands"):
            assert short == here(monkeypatch, *words, "--help")
        assert f"Usage: {' '.join(('postroad', *words))} " in short.out


def test_help_fits_into_a_terminal_of_80_columns_with_no_name_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in commands():
        shown = here(monkeypatch, *words, "-h").out
        assert "…" not in shown.replace("://…", ""), words
        for parameter in command.params:
            assert [option for option in parameter.opts if option.startswith("--") and option not in shown] == []
            assert not parameter.envvar or parameter.envvar in shown


def test_help_shows_no_types_of_python() -> None:
    assert [
        line for line in commands_reference().splitlines() if "<str" in line or "<int" in line or "<bool" in line
    ] == []


def test_every_command_says_what_it_does() -> None:
    assert [
        words for words, command in commands() if not (command.help or "").strip().endswith((".", "bash", "fish"))
    ] == []


# A script for a shell, and a program that answers nothing.
WITHOUT_JSON = {("completion",), ("pipeline", "serve")}


def test_every_command_can_print_json() -> None:
    leaves = {words: command for words, command in commands() if not hasattr(command, "commands")}
    without = {
        words
        for words, command in leaves.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_JSON


def test_placeholders_of_arguments_are_in_capitals() -> None:
    usages = [line.split("```")[0] for line in commands_reference().split("```text\n")[1:]]
    assert [usage for usage in usages if usage.split("[OPTIONS]")[1] != usage.split("[OPTIONS]")[1].upper()] == []
