"""Modules that comments and docstrings of the package name exist: a name that was changed is changed there too."""

from __future__ import annotations

import re

from tests.structure.repository import PACKAGE, ROOT, files, name, rooms

# A section of the settings has the name of a room.
SETTINGS = {"network.admins"}

# `index.py`, `matching/index.py`, `tests/structure/repository.py`
_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
# `filters.hashes`, `protocols.stomp.id_headers`, and what they hold: `postroad.errors.PostroadError`
_DOTTED = re.compile(r"`(?:postroad\.)?([a-z_]+(?:\.\w+)+)(?:\(\))?`")


def named_files() -> dict[str, set[str]]:
    """File as it is named -> the modules that name it."""
    found: dict[str, set[str]] = {}
    for path in files(".py", PACKAGE):
        for one in _FILE.findall(path.read_text("utf-8")):
            found.setdefault(one, set()).add(name(path))
    return found


def named_in_rooms() -> dict[str, set[str]]:
    """What is named with its room in front -> the modules that name it."""
    found: dict[str, set[str]] = {}
    known = set(rooms())
    for path in files(".py", PACKAGE):
        for one in _DOTTED.findall(path.read_text("utf-8")):
            if one.split(".")[0] in known and not one.endswith(".py") and one not in SETTINGS:
                found.setdefault(one, set()).add(name(path))
    return found


def is_there(dotted: str) -> bool:
    """Whether there is such a folder or module, or one that has the rest of the name in it."""
    place = PACKAGE
    for part in dotted.split("."):
        module = place / f"{part}.py"
        if (place / part).is_dir():
            place /= part
        elif module.exists():
            place = module
        else:
            source = place / "__init__.py" if place.is_dir() else place
            return re.search(rf"\b{part}\b", source.read_text("utf-8")) is not None
    return True


def test_files_that_comments_name_exist() -> None:
    paths = {f"/{name(path)}" for path in files(".py", ROOT)}
    missing = {one: by for one, by in named_files().items() if not any(path.endswith(f"/{one}") for path in paths)}
    assert missing == {}


def test_modules_that_comments_name_with_their_room_exist() -> None:
    assert {one: by for one, by in named_in_rooms().items() if not is_there(one)} == {}


def test_names_are_found_and_judged() -> None:
    assert "columns.py" in named_files()
    assert "protocols.stomp.id_headers" in named_in_rooms()
    assert is_there("filters.hashes")
    assert is_there("filters.hashes.mix64")
    assert not is_there("filters.hashing")
