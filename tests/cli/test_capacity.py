"""`postroad capacity`: fits of a trail, plans, and a measurement of a real broker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.capacity import fit_every_form
from postroad.lab.calibration import (
    READ_BYTES,
    Cell,
    Programme,
    batch_messages,
    cell_samples,
    measure,
    message_bytes,
)
from postroad.lab.trails import Scale, write_trail
from postroad.lab.trails.costs import COPY_NS, MESSAGE_BYTES
from postroad.server import tcp
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

SCALE = Scale(brokers=3, messages=600, publishers=5, subscriptions=3, interests=20, seconds=120, seal_seconds=20)
DEMAND = ("--rate", "5000", "--subscriptions", "20000", "--replication", "4", "--p99", "50ms")


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capacity") / "trail"
    write_trail(folder, SCALE)
    return folder


def test_fit_finds_the_costs_of_a_trail_and_plan_uses_them(
    monkeypatch: pytest.MonkeyPatch, trail: Path, tmp_path: Path
) -> None:
    costs, report = tmp_path / "costs.json", tmp_path / "fit.html"
    done = here(
        monkeypatch,
        *("capacity", "fit", "--trail", str(trail), "--out", str(costs), "--report", str(report), "--json"),
    )
    assert done.code == 0, done.err
    fits = {fit["form"]: fit for fit in map(json.loads, done.out.splitlines())}
    assert fits["linear"]["supported"]
    assert fits["linear"]["costs"]["send"] == pytest.approx(COPY_NS / 1e9, rel=0.1)
    assert fits["linear"]["low"]["send"] < COPY_NS / 1e9 < fits["linear"]["high"]["send"]
    assert "<svg" in report.read_text()

    page = tmp_path / "plan.html"
    done = here(monkeypatch, "capacity", "plan", *DEMAND, "--costs", str(costs), "--report", str(page), "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    (best,) = [option for option in plan["options"] if option["recommended"]]
    assert best["problem"] is None
    assert best["p99"] <= 0.05
    assert "<svg" in page.read_text()


def test_plan_shows_tables_to_people(monkeypatch: pytest.MonkeyPatch, trail: Path) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    done = here(monkeypatch, "capacity", "plan", "--from-trail", str(trail), "--growth", "2")
    assert done.code == 0, done.err
    assert "Ways to carry it" in done.out
    assert f"Costs: {trail}, its form 'linear'" in done.out.replace("\n", "")


def test_plan_from_a_trail_takes_its_traffic(monkeypatch: pytest.MonkeyPatch, trail: Path) -> None:
    done = here(monkeypatch, "capacity", "plan", "--from-trail", str(trail), "--rate", "10", "--json")
    demand = json.loads(done.out)["demand"]
    assert demand["rate"] == 10  # what is given holds before what was seen
    assert demand["size"] == pytest.approx(MESSAGE_BYTES)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (DEMAND, "a plan needs to know what messages cost here"),
        ((*DEMAND[:-1], "soon", "--costs", "{costs}"), "--p99 'soon' is not a time"),
        (("--rate", "5", "--costs", "{costs}"), "a plan needs --subscriptions, --replication"),
        ((*DEMAND, "--costs", "{broken}"), "does not hold costs"),
        (("--from-trail", "{nothing}"), "is not a directory"),
        (("--from-trail", "{nothing}", "--growth", "0"), "--growth 0: the traffic cannot become"),
        ((*DEMAND, "--costs", "{costs}", "--growth", "2"), "are about the traffic of a trail"),
        (("--from-trail", "{nothing}", "--growth", "2", "--rate", "5"), "both say how much traffic"),
        ((*DEMAND, "--costs", "{negative}"), "send is -1e-07, and costs are numbers from 0 on"),
        ((*DEMAND, "--costs", "{costs}", "--report", "{nothing}/plan.html"), "make it first"),
        ((*DEMAND, "--costs", "{costs}", "--utilisation", "1.5"), "is not between 0 and 1"),
        ((*DEMAND[:-1], "-5ms", "--costs", "{costs}"), "no message can be delivered within -0.005 s"),
        ((*DEMAND[:-1], "infs", "--costs", "{costs}"), "a plan needs a number that ends"),
    ],
)
def test_plan_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "costs").write_text('{"costs": {"batch": 4e-5, "receive": 2e-7, "send": 1e-7}}')
    (tmp_path / "broken").write_text('{"costs": 7}')
    (tmp_path / "negative").write_text('{"costs": {"batch": 4e-5, "receive": 2e-7, "send": -1e-7}}')
    names = {name: str(tmp_path / name) for name in ("costs", "broken", "negative", "nothing")}
    done = here(monkeypatch, "capacity", "plan", *(word.format(**names) for word in arguments))
    assert done.code == 2
    assert reason in done.err


@pytest.mark.parametrize("command", [("fit", "--trail", "{trail}"), ("calibrate",)])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, trail: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    words = [word.format(trail=trail) for word in command]
    for option in ("--out", "--report"):
        done = here(monkeypatch, "capacity", *words, option, str(tmp_path / "missing" / "file"))
        assert (done.code, done.out) == (2, "")
        assert f"there is no directory {tmp_path / 'missing'}" in done.err
        done = here(monkeypatch, "capacity", *words, option, str(tmp_path))
        assert done.code == 2
        assert "is a directory" in done.err


def test_a_burst_that_is_longer_than_a_read_is_several_batches() -> None:
    size = message_bytes(Cell(0, 1, 1_000, 256, False))
    # As the publisher writes it: SEND, destination, content-length, an empty line, the body and NUL.
    assert size == len("SEND\ndestination:/topic/load\ncontent-length:1000\n\n") + 1_000 + 1
    assert 256 * size > READ_BYTES
    assert batch_messages(Cell(0, 1, 1_000, 256, False)) == 128
    assert batch_messages(Cell(0, 1, 1_000, 16, False)) == 16
    assert batch_messages(Cell(0, 1, 1_000, 1_024, True)) == pytest.approx(READ_BYTES / size)


def test_calibration_knows_how_much_a_broker_reads_at_once() -> None:
    assert READ_BYTES == tcp.READ_BYTES


def test_calibration_drives_a_real_broker_and_fits_its_processor_time(tmp_path: Path) -> None:
    programme = Programme(subscriptions=(0, 50), copies=(0, 2), sizes=(50, 500), bursts=(1, 32), seconds=0.1)
    lines: list[str] = []
    measured = asyncio.run(measure(programme, tmp_path, lines.append))
    assert len(measured) == len(programme) == 2 * (8 + 4)
    assert all(one.bursts > 0 and one.processor_seconds > 0 for one in measured)
    assert len(lines) == len(measured) + 2
    samples = cell_samples(measured)
    saturated = [one for one in measured if one.conclusive]
    assert len(samples.seconds) == 16 + len(saturated)  # without cells in which the generator was the bottleneck
    fits = {fit.form.name: fit for fit in fit_every_form(samples, np.arange(len(samples.seconds)))}
    assert fits["batched"].estimates["batch"] + fits["batched"].estimates["write"] > 0
