"""Write the import contracts of pyproject.toml anew from the table of rooms in docs/design.md.

    python -m tests.structure.contracts

To be run when a room appears or may import another one; `test_rooms` says when that is due.
"""

from __future__ import annotations

from tests.structure.repository import ROOT, foundations, rooms
from tests.structure.rooms_table import may_import, table

HEAD = """[tool.importlinter]
root_package = "postroad"
include_external_packages = true
"""

TAIL = """
[[tool.importlinter.contracts]]
name = "the package knows neither its tests nor its benchmarks"
type = "forbidden"
source_modules = ["postroad"]
forbidden_modules = ["bench", "tests"]
"""


def contract(name: str, sources: set[str], forbidden: set[str], more: str = "") -> str:
    """One contract as TOML."""
    return (
        f'\n[[tool.importlinter.contracts]]\nname = "{name}"\ntype = "forbidden"\n'
        f"source_modules = {listed(sources)}\nforbidden_modules = {listed(forbidden)}\n{more}"
    )


def listed(names: set[str]) -> str:
    """Names as a TOML array, one a line when there are many."""
    quoted = [f'"{name}"' for name in sorted(names)]
    short = ", ".join(quoted)
    return f"[{short}]" if len(short) < 90 else "[\n" + "".join(f"  {name},\n" for name in quoted) + "]"


def ours(names: set[str]) -> set[str]:
    return {f"postroad.{name}" for name in names}


def contracts() -> str:
    """The whole section."""
    text = HEAD
    for room in [room for room in table() if room in rooms()]:
        forbidden = set(rooms()) - may_import(room) - {room}
        if forbidden:
            allowed = table()[room].replace("nothing of ours", "no other room")
            text += contract(f"{room} imports {allowed}", ours({room}), ours(forbidden))
    for module in foundations():
        others = {*rooms(), *foundations()} - {module}
        text += contract(f"{module}, a foundation, imports nothing of ours", ours({module}), ours(others))
    everything = ours({*rooms(), *foundations()} - {"kernels"})
    indirect = "allow_indirect_imports = true\n"
    return text + contract("numba comes in through kernels alone", everything, {"llvmlite", "numba"}, indirect) + TAIL


if __name__ == "__main__":
    path = ROOT / "pyproject.toml"
    text = path.read_text("utf-8")
    path.write_text(text[: text.index("[tool.importlinter]")] + contracts(), "utf-8")
