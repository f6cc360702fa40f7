"""One name for one class, and one word for one thing: docs/vocabulary.md."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.structure.repository import PACKAGE, files, name

# Names that two rooms share on purpose.
SHARED = {
    # The client is a library for other programs, which never see the broker's class.
    "Subscription": {"broker", "client"},
}


def public_classes() -> dict[str, list[str]]:
    """Class name -> the modules that have a class of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files(".py", PACKAGE):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_class_names_are_unique_across_rooms() -> None:
    twice = {
        class_name: modules
        for class_name, modules in public_classes().items()
        if len(modules) > 1 and {module.split("/")[0] for module in modules} != SHARED.get(class_name)
    }
    assert twice == {}


def test_names_that_are_shared_on_purpose_are_shared() -> None:
    classes = public_classes()
    assert {one: {module.split("/")[0] for module in classes[one]} for one in SHARED} == SHARED


def test_files_are_found() -> None:
    assert "src/postroad/broker/sessions.py" in map(name, files(".py", PACKAGE))


# Modules are nouns for what they hold. These end like a verb's -ing form, and are nouns all the same.
NOUNS_IN_ING = {"config/tracking.py": "the settings of the room of that name"}


def test_modules_are_named_by_nouns() -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in files("ing.py", PACKAGE)}
    assert named == set(NOUNS_IN_ING), "name a module for what it holds (docs/vocabulary.md)"
