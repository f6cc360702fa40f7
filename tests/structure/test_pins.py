"""The pins, their hashes, the bill of materials made of them, and advisories held against them."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8")


def load() -> Any:
    """The script, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("pins", ROOT / "scripts" / "lib" / "pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pins = load()


def test_every_line_of_the_constraints_is_a_pin() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if line and not line.startswith("#")]
    assert lines == [f"{name}=={version}" for name, version in pins.pins(CONSTRAINTS).items()]


def test_lock_has_the_pins_with_hashes() -> None:
    found = pins.locked((ROOT / "constraints.lock").read_text("utf-8"))
    assert {name: version for name, (version, _) in found.items()} == pins.pins(CONSTRAINTS), "run scripts/lock"
    assert all(hashes for _, hashes in found.values())


def test_bill_of_materials_names_every_pin_once_and_is_the_same_each_time() -> None:
    bill = pins.bill()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    named = {component["name"]: component["version"] for component in bill["components"]}
    assert named == pins.pins(CONSTRAINTS)
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(set(references)) == len(references)
    assert bill["dependencies"] == [{"ref": "postroad", "dependsOn": references}]
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", one) for one in references)
    assert pins.bill() == bill


def advisory(name: str, **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": name}
    return {"id": "OSV-1", "summary": "bad", "affected": [{"package": package, **affected}]}


def ranged(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


VERSION = pins.pins(CONSTRAINTS)["msgspec"]


@pytest.mark.parametrize(
    ("affected", "is_found"),
    [
        ({"versions": [VERSION]}, True),
        ({"versions": ["0.0.1"]}, False),
        (ranged({"introduced": "0"}), True),
        (ranged({"introduced": "0"}, {"fixed": "0.1"}), False),
        (ranged({"introduced": "0"}, {"fixed": "999"}), True),
        (ranged({"introduced": "0"}, {"fixed": VERSION}), False),
        (ranged({"introduced": "0"}, {"fixed": f"{VERSION}.1"}), True),
        (ranged({"introduced": "0"}, {"last_affected": VERSION}), True),
        (ranged({"introduced": "999"}), False),
        (ranged({"introduced": "0"}, {"fixed": "0.1"}, {"introduced": "0.2"}), True),
    ],
)
def test_advisory_against_a_pin_is_found(
    tmp_path: Path, affected: dict[str, Any], is_found: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.json").write_text(json.dumps(advisory("MsgSpec", **affected)))
    assert pins.main(["advisories", str(tmp_path)]) == int(is_found)
    assert ("OSV-1: MsgSpec" in capsys.readouterr().out) is is_found


def test_advisories_are_read_from_archives_and_withdrawn_ones_do_not_count(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.json", json.dumps(advisory("numpy", versions=[pins.pins(CONSTRAINTS)["numpy"]])))
        withdrawn = advisory("msgspec", versions=[VERSION]) | {"withdrawn": "2026-01-01T00:00:00Z"}
        archive.writestr("b.json", json.dumps(withdrawn))
    assert [found.split()[1] for found in pins.advisories([str(tmp_path / "all.zip")])] == ["numpy"]


def test_folder_without_advisories_is_no_all_clear(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no advisories found"):
        pins.advisories([str(tmp_path)])


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("1.9", "1.10"), ("1.0rc1", "1.0"), ("1.0", "1.0.post1"), ("1.0", "1.0.1"), ("2.0a1", "2.0a2")],
)
def test_versions_are_ordered(earlier: str, later: str) -> None:
    assert pins.version_order(earlier) < pins.version_order(later)
    assert pins.version_order("1.0") == pins.version_order("1.0.0")
