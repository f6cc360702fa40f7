"""One name for one class, and one word for one thing: docs/vocabulary.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest

from tests.structure.repository import PACKAGE, files, name, parsed

# Names that two rooms share on purpose.
SHARED = {
    # The client is a library for other programs, which never see the broker's class.
    "Subscription": {"broker", "client"},
}


def classes() -> dict[str, list[str]]:
    """Class name -> the modules that have a class of that name, for other modules or for themselves."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files(".py", PACKAGE):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_class_names_are_unique_across_rooms() -> None:
    twice = {
        class_name: modules
        for class_name, modules in classes().items()
        if len(modules) > 1 and {module.split("/")[0] for module in modules} != SHARED.get(class_name)
    }
    assert twice == {}


def test_names_that_are_shared_on_purpose_are_shared() -> None:
    found = classes()
    assert {one: {module.split("/")[0] for module in found[one]} for one in SHARED} == SHARED


def test_files_are_found() -> None:
    assert "src/postroad/broker/sessions.py" in map(name, files(".py", PACKAGE))


# Modules are nouns for what they hold. These end like a verb's -ing form, and are nouns anyway.
NOUNS_IN_ING = {"config/tracking.py": "the settings of the room of that name"}


def test_modules_are_named_by_nouns() -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in files("ing.py", PACKAGE)}
    assert named == set(NOUNS_IN_ING), "name a module for what it holds (docs/vocabulary.md)"


@pytest.mark.parametrize("ending", ["ed.py", "able.py", "ly.py"])
def test_modules_are_not_named_by_adjectives(ending: str) -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in files(ending, PACKAGE)}
    assert named == set(), "name the thing as well: rendered_rows, not rendered"


# Words that gave way to others, and the rooms that may still use them in names, each for its reason.
OLD_WORDS: dict[str, dict[str, str]] = {
    "attachment": {},
    "attachments": {},
    "forwarded": {},
    "forwarding": {},
    "hand": {},
    "handed": {},
    "keeper": {},
    "published": {},
    "sampling": {},
    "station": dict.fromkeys(
        ("broker", "config", "lab", "routing", "server", "topology"), "a broker's place in a hierarchy"
    ),
    "subscriber": dict.fromkeys(("capacity", "lab", "testing"), "a client, or the paper's word for one"),
    "subscribers": dict.fromkeys(("capacity", "cli", "lab", "testing"), "clients, or the paper's word for them"),
}


def rooms_by_word() -> dict[str, set[str]]:
    """Word -> the rooms with a name that has the word in it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in files(".py", PACKAGE):
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(parsed(path)):
            for identifier in names_in(node):
                for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", identifier):
                    found[word.lower()].add(room)
    return found


def names_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


def test_old_words_are_only_where_they_still_have_a_reason() -> None:
    used = rooms_by_word()
    assert {word: used.get(word, set()) for word in OLD_WORDS} == {word: set(OLD_WORDS[word]) for word in OLD_WORDS}


def spelled_reasons() -> list[str]:
    """Calls that report what went no further with a reason that is spelled out: `module: text`."""
    return [
        f"{path.relative_to(PACKAGE).as_posix()}: {argument.value}"
        for path in files(".py", PACKAGE)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("dropped", "shed")
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_reasons_of_the_record_are_named_and_not_spelled_out() -> None:
    assert spelled_reasons() == [], "add it to Loss or Detour in tracking/reasons.py"
