"""The repository as the structure tests see it: its files, its rooms, its documents."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "postroad"

# Made by tools, never tracked. Walking the tree rather than asking git lets the tests run from an unpacked archive too.
MADE_BY_TOOLS = {
    ".cache",
    ".git",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
}

# Foundations that are folders of modules; the others are single modules.
FOUNDATION_FOLDERS = {"kernels"}


def files(suffix: str = "", under: Path = ROOT) -> list[Path]:
    """All files of the repository whose name ends with `suffix`, in order."""
    found: list[Path] = []
    for path in sorted(under.iterdir()):
        if path.name in MADE_BY_TOOLS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            found += files(suffix, path)
        elif path.name.endswith(suffix):
            found.append(path)
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module, once for all tests."""
    return ast.parse(path.read_text("utf-8"))


def name(path: Path) -> str:
    """A file's path from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def line_count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def rooms() -> list[str]:
    """The rooms there are: the folders of the package that hold Python."""
    folders = {folder.name for folder in PACKAGE.iterdir() if folder.is_dir() and any(folder.glob("*.py"))}
    return sorted(folders - FOUNDATION_FOLDERS)


def foundations() -> list[str]:
    """The modules below all rooms."""
    return sorted({path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"} | FOUNDATION_FOLDERS)


def offering() -> list[str]:
    """The modules that offer a public API: foundations, rooms, and the packages inside rooms."""
    packages = [path.parent.relative_to(PACKAGE).parts for path in files("__init__.py", PACKAGE)]
    modules = [(one,) for one in foundations()]
    return sorted({".".join(["postroad", *parts]) for parts in [*packages, *modules] if parts})
