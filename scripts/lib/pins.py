"""The pins of constraints.txt: their hashes, a bill of materials, and what is known against them.

    python scripts/lib/pins.py lock [PYTHON ...]   write constraints.lock: each pin with the SHA-256 of its files
    python scripts/lib/pins.py bill                print a bill of materials, CycloneDX 1.6 as JSON
    python scripts/lib/pins.py advisories PATH...  hold the pins against advisories in the OSV format

Plain Python without dependencies: it judges the environment, so it must not need it. `lock` asks the package index that
pip is set up to use; the others need no network.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "constraints.lock"
# The Pythons that Postroad supports: a package may have a file for each.
PYTHONS = ("3.11", "3.12", "3.13")
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s\\;#]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def normal(name: str) -> str:
    """A name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Name -> version."""
    return dict(_PIN.findall(text))


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """Name -> version and hashes, of a lock file."""
    found = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        pin = _PIN.match(block)
        if pin:
            found[pin[1]] = (pin[2], _HASH.findall(block))
    return found


def lock(pythons: list[str]) -> None:
    """Download the files of every pin for each Python, and write their hashes."""
    given = pins(CONSTRAINTS.read_text("utf-8"))
    hashes: dict[str, set[str]] = {name: set() for name in given}
    for python in pythons:
        for name, found in _files(given, python).items():
            hashes[name] |= found
    missing = [name for name, found in hashes.items() if not found]
    if missing:
        sys.exit(f"no files found for: {', '.join(missing)}")
    head = (
        "# Made by `scripts/lock` from constraints.txt: the SHA-256 of the files that may be installed, for Linux on\n"
        f"# this kind of processor ({platform.machine()}) and Python {', '.join(pythons)}.\n"
    )
    LOCK.write_text(head + "".join(_entry(name, given[name], hashes[name]) for name in given), "utf-8")


def _files(given: dict[str, str], python: str) -> dict[str, set[str]]:
    """The hashes of the files that pip takes for a Python: wheels, and for packages that have none their source."""
    wheels, sources = dict(given), dict[str, str]()
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "-d"]
    with tempfile.TemporaryDirectory() as folder:
        while wheels:
            options = [folder, "--only-binary=:all:", f"--python-version={python}"]
            done = _run([*command, *options, *(f"{name}=={version}" for name, version in wheels.items())])
            lacking = re.search(r"No matching distribution found for ([A-Za-z0-9._-]+)==", done.stderr)
            if done.returncode == 0 or lacking is None:
                break
            name = next(name for name in wheels if normal(name) == normal(lacking[1]))
            sources[name] = wheels.pop(name)
        for name, version in sources.items():
            print(f"{name}=={version}: no wheel for Python {python}; taking its source", file=sys.stderr)
            _run([*command, folder, "--no-build-isolation", f"{name}=={version}"])
        found: dict[str, set[str]] = {name: set() for name in given}
        for file in Path(folder).iterdir():
            stem = normal(re.split(r"-\d", file.name)[0])
            name = next(name for name in given if normal(name) == stem)
            found[name].add(hashlib.sha256(file.read_bytes()).hexdigest())
    return found


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _entry(name: str, version: str, hashes: set[str]) -> str:
    lines = " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in sorted(hashes))])
    return lines + "\n"


def bill() -> dict[str, Any]:
    """A bill of materials: what Postroad is developed, tested and run with, and the hashes of its files."""
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/postroad/__init__.py").read_text("utf-8"))
    known = locked(LOCK.read_text("utf-8")) if LOCK.exists() else {}
    components = [
        {
            "type": "library",
            "bom-ref": _purl(name, pinned),
            "name": name,
            "version": pinned,
            "purl": _purl(name, pinned),
            # One for each file of the release: a component in CycloneDX has one hash for each algorithm, so they
            # are properties.
            "properties": [{"name": "postroad:sha256", "value": one} for one in known.get(name, ("", []))[1]],
        }
        for name, pinned in sorted(pins(CONSTRAINTS.read_text("utf-8")).items(), key=lambda pin: normal(pin[0]))
    ]
    assert version is not None
    whole = {"type": "application", "bom-ref": "postroad", "name": "postroad", "version": version[1]}
    references = [one["bom-ref"] for one in components]
    # The same pins make the same bill: its number is made from them.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([whole, references]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": whole | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": "postroad", "dependsOn": references}],
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{normal(name)}@{version}"


def advisories(paths: list[str]) -> list[str]:
    """What advisories (OSV, one JSON each: files, folders of them, or zip archives) say against the pins."""
    given = {normal(name): version for name, version in pins(CONSTRAINTS.read_text("utf-8")).items()}
    found = []
    count = 0
    for text in _texts(paths):
        advisory = json.loads(text)
        count += 1
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", []):
            package = affected.get("package", {})
            version = given.get(normal(package.get("name", "")))
            if package.get("ecosystem") == "PyPI" and version is not None and _is_affected(version, affected):
                what = f"{advisory['id']}: {package['name']} {version}: {advisory.get('summary') or 'no summary'}"
                if what not in found:
                    found.append(what)
    print(f"{count} advisories read, {len(given)} pins", file=sys.stderr)
    if not count:
        sys.exit("no advisories found there; give a file, folder or zip archive of the OSV database of PyPI")
    return found


def _texts(paths: list[str]) -> Any:
    for path in map(Path, paths):
        if path.is_dir():
            yield from (file.read_text("utf-8") for file in sorted(path.rglob("*.json")))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield from (archive.read(name).decode() for name in archive.namelist() if name.endswith(".json"))
        else:
            yield path.read_text("utf-8")


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    if version in affected.get("versions", []):
        return True
    here = version_order(version)
    for one in affected.get("ranges", []):
        if one.get("type") != "ECOSYSTEM":
            continue
        inside = False
        # Events are sorted by version in their meaning; a range is entered and left as they come.
        for event in sorted(one.get("events", []), key=lambda event: version_order(next(iter(event.values())))):
            kind, at = next(iter(event.items()))
            if kind == "introduced" and (at == "0" or version_order(at) <= here):
                inside = True
            elif (kind == "fixed" and version_order(at) <= here) or (
                kind == "last_affected" and version_order(at) < here
            ):
                inside = False
        if inside:
            return True
    return False


def version_order(version: str) -> tuple[tuple[int, ...], int, int]:
    """Release numbers, then pre-releases before the release, and post-releases after it. Enough for pins."""
    found = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)(.*)", version)
    if found is None:
        return (0,), 0, 0
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    rest = found[2].lower()
    digits = re.search(r"\d+", rest)
    stage = 1 if "post" in rest else -1 if re.search(r"a|b|c|rc|dev", rest) else 0
    return tuple(numbers), stage, int(digits[0]) if digits else 0


def main(arguments: list[str]) -> int:
    """Do what the first argument says; the exit code is 1 when an advisory is against a pin."""
    match arguments:
        case ["lock", *pythons]:
            lock(pythons or list(PYTHONS))
        case ["bill"]:
            print(json.dumps(bill(), indent=2))
        case ["advisories", first, *more]:
            found = advisories([first, *more])
            print("\n".join(found) or "none of them is against a pin")
            return 1 if found else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
