"""Harm done to a trail: drawn by chance, written down as plain data, done and undone.

A mutation is a kind, the paths it is about (from the root of the trail) and a few numbers, so that it can be repeated,
put into a script, or left out while a finding is reduced.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from postroad.trail.locations import Location

__all__ = ["KINDS", "Mutation", "Patient", "draw"]

# As much as file systems lose or zero at once.
_BLOCK = 512
_MANIFESTS = "manifests"


class Mutation(NamedTuple):
    """One thing done to a trail.

    Attributes:
        kind: one of `KINDS`.
        path: the file or folder it is done to.
        other: a second one, where there are two.
        numbers: offsets, lengths, bits.
    """

    kind: str
    path: str
    other: str = ""
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        more = f" {self.other}" if self.other else ""
        return f"{self.kind} {self.path}{more}" + (f" {self.numbers}" if self.numbers else "")


class Patient:
    """A trail that is harmed and healed, with all its files in memory.

    Args:
        root: where the trail is; whatever is there goes.
        files: its files by path.
        donor: the files of another trail, of brokers with the same numbers.

    Attributes:
        beside: a place on disk for what jobs make of it.
    """

    def __init__(self, root: Path, files: Mapping[str, bytes], donor: Mapping[str, bytes]) -> None:
        self.root: Location = root
        self.beside = root.with_suffix(".out")
        self.files = dict(files)
        self.donor = dict(donor)
        self._touched: set[str] = set()
        self._clear()
        self._put(self.files)

    def folders(self) -> list[str]:
        """All folders of the trail."""
        found = {str(parent) for path in self.files for parent in PurePosixPath(path).parents}
        return sorted(found - {"."})

    def harm(self, mutation: Mutation) -> None:
        """Do it; where an earlier one took away what this one needs, nothing happens."""
        try:
            KINDS[mutation.kind](self, mutation)
        except FileNotFoundError:
            return

    def heal(self) -> None:
        """The trail as it was."""
        for path in self._touched:
            if path not in self.files:
                self._take(path)
        self._put({path: self.files[path] for path in self._touched if path in self.files})
        self._touched.clear()

    def read(self, path: str) -> bytes:
        """The file as it is now."""
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Put other bytes into a file, or make one."""
        self._touched.add(path)
        self._set(path, data)

    def remove(self, path: str) -> None:
        """Take a file away."""
        self._touched.add(path)
        self._take(path)

    def below(self, folder: str, files: Iterable[str] | None = None) -> list[str]:
        """The files below a folder: those that are there, or of some others."""
        if files is not None:
            return [path for path in files if path.startswith(f"{folder}/")]
        root = self._directory
        return [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*")) if path.is_file()]

    def remove_folder(self, folder: str) -> None:
        """Take a folder away with all that is in it."""
        self._touched.update(self.below(folder))
        shutil.rmtree(self._directory / folder, ignore_errors=True)

    def _put(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._set(path, data)

    # --- where it is: a directory here, a store for another class ---------------------------------------------------

    @property
    def _directory(self) -> Path:
        assert isinstance(self.root, Path)
        return self.root

    def _set(self, path: str, data: bytes) -> None:
        place = self._directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def _take(self, path: str) -> None:
        (self._directory / path).unlink(missing_ok=True)

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


# --- kinds ------------------------------------------------------------------------------------------------------------


def _flip(patient: Patient, mutation: Mutation) -> None:
    offset, bit = mutation.numbers
    data = bytearray(patient.read(mutation.path))
    if data:
        data[offset % len(data)] ^= 1 << bit
        patient.write(mutation.path, bytes(data))


def _overwrite(patient: Patient, mutation: Mutation) -> None:
    """A block of one byte value, zero mostly, as after a crash of a file system."""
    offset, length, value = mutation.numbers
    data = bytearray(patient.read(mutation.path))
    if data:
        start = offset % len(data)
        end = min(len(data), start + length)
        data[start:end] = bytes([value]) * (end - start)
        patient.write(mutation.path, bytes(data))


def _cut(patient: Patient, mutation: Mutation) -> None:
    data = patient.read(mutation.path)
    patient.write(mutation.path, data[: mutation.numbers[0] % (len(data) + 1)])


def _append(patient: Patient, mutation: Mutation) -> None:
    patient.write(mutation.path, patient.read(mutation.path) + bytes(mutation.numbers))


def _remove(patient: Patient, mutation: Mutation) -> None:
    patient.remove(mutation.path)


def _remove_folder(patient: Patient, mutation: Mutation) -> None:
    patient.remove_folder(mutation.path)


def _remove_broker(patient: Patient, mutation: Mutation) -> None:
    for path in patient.below("."):
        if mutation.path in PurePosixPath(path).parts:
            patient.remove(path)
    # An empty folder would still say that there was such a broker.
    for folder in patient.folders():
        if PurePosixPath(folder).name == mutation.path:
            patient.remove_folder(folder)


def _swap(patient: Patient, mutation: Mutation) -> None:
    one, other = patient.read(mutation.path), patient.read(mutation.other)
    patient.write(mutation.path, other)
    patient.write(mutation.other, one)


def _repeat(patient: Patient, mutation: Mutation) -> None:
    """A copy under another name, in the place of whatever has it."""
    patient.write(mutation.other, patient.read(mutation.path))


def _rename(patient: Patient, mutation: Mutation) -> None:
    patient.write(mutation.other, patient.read(mutation.path))
    patient.remove(mutation.path)


def _rename_folder(patient: Patient, mutation: Mutation) -> None:
    found = patient.below(mutation.path)
    for path in found:
        patient.write(mutation.other + path.removeprefix(mutation.path), patient.read(path))
    patient.remove_folder(mutation.path)


def _foreign(patient: Patient, mutation: Mutation) -> None:
    """The file of that name, or another, of another trail."""
    patient.write(mutation.path, patient.donor[mutation.other])


def _foreign_folder(patient: Patient, mutation: Mutation) -> None:
    """A folder from another trail in the place of this one's."""
    patient.remove_folder(mutation.path)
    for path in patient.below(mutation.path, patient.donor):
        patient.write(path, patient.donor[path])


def _roll_back(patient: Patient, mutation: Mutation) -> None:
    """A manifest as an older backup had it: the latest changes are gone, and checkpoints with them."""
    keep = mutation.numbers[0]
    for path in patient.below(mutation.path):
        name = PurePosixPath(path).name
        number = name.partition(".")[0].rpartition("-")[2]
        if number.isdecimal() and int(number) > keep:
            patient.remove(path)


KINDS: dict[str, Callable[[Patient, Mutation], None]] = {
    "flip": _flip,
    "overwrite": _overwrite,
    "cut": _cut,
    "append": _append,
    "remove": _remove,
    "remove-folder": _remove_folder,
    "remove-broker": _remove_broker,
    "swap": _swap,
    "repeat": _repeat,
    "rename": _rename,
    "rename-folder": _rename_folder,
    "foreign": _foreign,
    "foreign-folder": _foreign_folder,
    "roll-back": _roll_back,
}

# Bits are what a trail is most likely to lose, and there are most of them.
_WEIGHTS = {"flip": 8, "overwrite": 3, "cut": 3, "remove": 3, "swap": 2, "repeat": 2}


def draw(chance: random.Random, patient: Patient) -> Mutation:
    """One mutation of the trail as it was made."""
    kind = chance.choices(list(KINDS), [_WEIGHTS.get(kind, 1) for kind in KINDS])[0]
    path = _some_file(chance, list(patient.files))
    size = len(patient.files[path])
    brokers = sorted({part for file in patient.files for part in PurePosixPath(file).parts if "broker=" in part})
    if kind == "flip":
        return Mutation(kind, path, "", (chance.randrange(max(1, size)), chance.randrange(8)))
    if kind == "overwrite":
        value = chance.choice((0, 0, 255, chance.randrange(256)))
        return Mutation(kind, path, "", (chance.randrange(max(1, size)), chance.randrange(1, _BLOCK), value))
    if kind == "cut":
        return Mutation(kind, path, "", (chance.choice((0, chance.randrange(size + 1))),))
    if kind == "append":
        return Mutation(kind, path, "", tuple(chance.randbytes(chance.randrange(1, 16))))
    if kind == "remove":
        return Mutation(kind, path)
    if kind == "remove-broker":
        return Mutation(kind, chance.choice(brokers))
    if kind == "roll-back":
        return Mutation(kind, f"{_MANIFESTS}/{chance.choice(brokers)}", "", (chance.randrange(8),))
    if kind in ("swap", "repeat", "rename", "foreign"):
        pool = list(patient.donor if kind == "foreign" else patient.files)
        return Mutation(kind, path, _like(chance, path, pool))
    return _of_folders(chance, kind, patient, brokers)


def _of_folders(chance: random.Random, kind: str, patient: Patient, brokers: Sequence[str]) -> Mutation:
    folder = chance.choice(patient.folders())
    if kind != "rename-folder":
        return Mutation(kind, folder)
    # To another broker's place, or out of the way, as somebody does who archives or mixes up directories.
    aside = chance.choice((f"{folder}.old", *(folder.replace(brokers[0], broker) for broker in brokers[1:])))
    return Mutation(kind, folder, aside if aside != folder else f"{folder}.old")


def _some_file(chance: random.Random, paths: Sequence[str]) -> str:
    """A file of some table: each table as likely as the others, however many files it has."""
    tables = sorted({path.split("/", 1)[0] for path in paths})
    table = chance.choice([*tables, _MANIFESTS, _MANIFESTS])
    return chance.choice([path for path in paths if path.startswith(f"{table}/")] or list(paths))


def _like(chance: random.Random, path: str, pool: Sequence[str]) -> str:
    """Another file, mostly of the same table: one that nobody would notice at a glance."""
    table = path.split("/", 1)[0]
    same = [
        one for one in pool if one.startswith(f"{table}/") and os.path.splitext(one)[1] == os.path.splitext(path)[1]
    ]
    exact = [one for one in pool if one == path]
    return chance.choice(chance.choice([exact or same, same, list(pool)]) or list(pool))
