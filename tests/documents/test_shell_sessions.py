"""The sessions of the documents print what the documents say; and a session that does not is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.documents.shell_sessions import Step, ids_of, masked, shell_session, steps_of
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def session_of(document: Path) -> list[Step]:
    """All steps of a document's console blocks, as one session."""
    return steps_of("\n".join(block.text for block in blocks(document) if block.language == "console"))


# Which broker a client gets, and whether all of them answer a question, depends on whether each answers within seconds:
# a machine that stalls for longer prints something else, and true. A document that is wrong is wrong every time.
ATTEMPTS = 3


def run_session(steps: list[Step], folder: Path) -> None:
    """Run the steps of a document one after the other, in a network of their own for each attempt."""
    for attempt in range(1, ATTEMPTS + 1):
        place = folder / str(attempt)
        place.mkdir()
        try:
            with shell_session(place) as shell:
                for step in steps:
                    shell.run(step)
        except AssertionError:
            if attempt == ATTEMPTS:
                raise
        else:
            return


@pytest.mark.timeout(900)
def test_readme_shows_what_its_commands_print(tmp_path: Path) -> None:
    steps = session_of(ROOT / "README.md")
    assert [step.command.split()[1] for step in steps if step.command.startswith("postroad")] == [
        "network",
        "network",
        "subscribe",
        "publish",
        "trace",
        "network",
    ]
    run_session(steps, tmp_path)


@pytest.mark.timeout(900)
def test_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    steps = session_of(ROOT / "docs" / "tutorial.md")
    assert len(steps) > 15
    run_session(steps, tmp_path)


def test_a_line_that_is_not_printed_is_noticed(tmp_path: Path) -> None:
    with shell_session(tmp_path) as shell:
        shell.run(Step("echo one; echo two", ["one", "two"]))
        for shown in (["one"], ["two", "one"], ["one", "two", "three"]):
            with pytest.raises(AssertionError):
                shell.run(Step("echo one; echo two", shown))
        with pytest.raises(AssertionError):
            shell.run(Step("echo one; (exit 2)", ["one"]))


def test_ids_of_a_run_stand_in_for_those_of_the_document(tmp_path: Path) -> None:
    shown, printed = "00000001-00000002-01a1e2fa9413-0000", "00000001-00000002-0123456789ab-0007"
    with shell_session(tmp_path) as shell:
        shell.run(Step(f"echo sent {printed}", [f"sent {shown}"]))
        shell.run(Step(f"echo {shown} | sed s/-/_/g", [printed.replace("-", "_")]))
        with pytest.raises(AssertionError):
            shell.run(Step(f"echo {printed}", [shown.replace("00000002", "00000003")]))


def test_what_differs_from_run_to_run_is_masked_and_nothing_else() -> None:
    assert masked("accepted 2026-11-16 06:10:35.155 UTC, published 2 messages in 0.013 s") == (
        "accepted TIME UTC, published 2 messages in SECONDS s"
    )
    assert masked("broker 2 at 127.0.0.1:20002") == "broker 2 at 127.0.0.1:20002"
    assert ids_of(["b 00000001-00000002-01a1e2fa9413-0000", "a 00000001-00000002-01a1e2fa9414-0000"]) == [
        "00000001-00000002-01a1e2fa9414-0000",
        "00000001-00000002-01a1e2fa9413-0000",
    ]


def test_blank_lines_between_steps_say_nothing() -> None:
    assert steps_of("$ one\n1\n\n$ two &\n2\n") == [Step("one", ["1"]), Step("two &", ["2"])]
