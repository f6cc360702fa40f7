"""Generated trails: the truth against a walk message by message, and the trail against the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from postroad.errors import PostroadError
from postroad.lab.trails import Faults, Scale, TrailTraffic, read_truth, sample_ids, truth_of, write_trail
from postroad.lab.trails import traffic as traffic_module
from postroad.topology import routes
from postroad.trail import pin, unpack
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Scale(brokers=7, messages=600, seed=3, subscriptions=4, interests=50, seconds=40, seal_seconds=20)


def walked(traffic: TrailTraffic, origin: int, interest: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Hops and recipients of a message, one hop at a time as brokers route it."""
    land = traffic.terrain
    around = {number: land.graph.neighbours(number) for number in land.graph.brokers}
    recipients = {
        (broker, int(number))
        for broker in land.graph.brokers
        for number in land.recipients[land.starts[interest, broker] : land.starts[interest, broker + 1]]
    }
    hops = set()
    for broker, _ in recipients:
        at = origin
        while at != broker:
            hop = routes(at, around).first_hop(broker)
            hops.add((at, hop))
            at = hop
    return hops, recipients


def pairs(packed: list[int]) -> set[tuple[int, int]]:
    return {divmod(pair, 1 << 32) for pair in packed}


def test_truth_is_what_routing_hop_by_hop_gives() -> None:
    traffic = TrailTraffic(SMALL)
    messages = traffic.slice(0)
    rows = truth_of(traffic, messages).to_pylist()
    assert len(rows) > 100
    for row, interest in zip(rows, messages.interest.tolist(), strict=True):
        assert (pairs(row["path"]), pairs(row["deliveries"])) == walked(traffic, row["origin"], interest)


def test_lost_messages_stop_before_one_broker_and_shed_ones_miss_one_recipient() -> None:
    traffic = TrailTraffic(
        Scale(brokers=7, messages=600, seed=3, interests=50, seconds=60, faults=Faults(lost=0.4, shed=0.4))
    )
    messages = traffic.slice(0)
    lost = shed = 0
    for row, interest in zip(truth_of(traffic, messages).to_pylist(), messages.interest.tolist(), strict=True):
        hops, recipients = walked(traffic, row["origin"], interest)
        got = pairs(row["deliveries"])
        if row["lost"]:
            lost += 1
            assert row["lost"] in {to for _, to in hops}
            assert all(to != row["lost"] for _, to in pairs(row["path"]))
            assert pairs(row["path"]) < hops
        elif row["shed_at"]:
            shed += 1
            assert recipients - got == {(row["shed_at"], row["shed_from"])}
        else:
            assert (pairs(row["path"]), got) == (hops, recipients)
    assert lost
    assert shed


def test_trail_holds_the_truth(tmp_path: Path) -> None:
    scale = Scale(
        brokers=6,
        messages=500,
        seed=5,
        subscriptions=5,
        interests=60,
        seconds=40,
        seal_seconds=10,
        faults=Faults(lost=0.1, shed=0.1, acknowledging=0.4, gaps=1),
    )
    written = write_trail(tmp_path / "trail", scale)
    truth = {
        tuple(row[name] for name in ("origin", "time", "publisher", "counter")): row for row in truth_rows(tmp_path)
    }
    assert len(truth) == 500
    holes = passages = shed = 0
    for broker in range(1, 7):
        pinned = pin(tmp_path / "trail", broker)
        holes += len(pinned.holes)
        entries, _ = pinned.all_entries()
        for entry in entries:
            for row in pq.read_table(tmp_path / "trail" / entry.path, partitioning=None).to_pylist():
                if entry.table == "passages":
                    passages += 1
                    check_passage(broker, row, truth[row["origin"], row["time"], row["publisher"], row["counter"]])
                elif entry.table == "shed":
                    shed += 1
    assert holes == 1
    assert 0 < written.passages - passages < written.passages / 5
    assert 0 < shed <= sum(int(str(row["shed_at"])) > 0 for row in truth.values())


def check_passage(broker: int, row: dict[str, Any], truth: dict[str, Any]) -> None:
    path, deliveries = pairs(truth["path"]), pairs(truth["deliveries"])
    came = row["arrived_from"]
    assert (came == 0) == (broker == row["origin"])
    assert came == 0 or (came, broker) in path
    onward = {(broker, hop) for hop in unpack(row["relayed_to"])}
    kept = {(broker, hop) for hop in {truth["lost"]} if (broker, hop) in onward}
    assert onward - kept == {hop for hop in path if hop[0] == broker}
    taken = {(broker, one) for one in unpack(row["delivered"])}
    assert taken == {one for one in deliveries if one[0] == broker}
    assert {(broker, one) for one in unpack(row["acknowledged"])} == {one for one in taken if one[1] <= 2}


def truth_rows(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = read_truth(folder / "trail").to_pylist()
    return rows


def test_asked_ids_are_half_known_and_half_strange(tmp_path: Path) -> None:
    write_trail(tmp_path / "trail", SMALL)
    known = {tuple(row.values())[:4] for row in truth_rows(tmp_path)}
    asked = [tuple(row.values()) for row in sample_ids(tmp_path / "trail", 200).to_pylist()]
    assert len(set(asked)) == len(asked) == 200
    assert sum(row in known for row in asked) == 100


def test_same_seed_writes_the_same_trail() -> None:
    one, other = TrailTraffic(SMALL).slice(1), TrailTraffic(SMALL).slice(1)
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(*map(list, (one, other)), strict=True))


def test_trail_is_the_same_whoever_writes_it(tmp_path: Path) -> None:
    scale = replace(SMALL, faults=Faults(lost=0.1, shed=0.1, acknowledging=0.4, gaps=1))
    told: list[tuple[int, int]] = []
    written = [
        write_trail(tmp_path / "one", scale),
        write_trail(tmp_path / "many", scale, lambda *done: told.append(done), processes=2),
    ]
    assert written[0] == written[1]
    assert told[-1] == (scale.slices, scale.slices)
    files = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.parquet")}
        for root in (tmp_path / "one", tmp_path / "many")
    ]
    assert files[0] == files[1]
    with pytest.raises(PostroadError, match="is not empty"):
        write_trail(tmp_path / "many", scale, processes=2)


def test_ctrl_c_ends_all_processes_that_write_a_trail_quietly(tmp_path: Path) -> None:
    out = tmp_path / "trail"
    command = [sys.executable, "-c", "from postroad.cli import main; main()", "lab", "trail", "--out", str(out)]
    # A terminal sends it to the whole group.
    with subprocess.Popen(
        [*command, "--messages", "5000000"], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            while not (out / "manifests").exists():
                assert process.poll() is None
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            shown, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, shown, said) == (130, b"", b"")


def test_messages_go_the_same_ways_whether_routes_are_known_or_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(SMALL, interests=20, messages=2_000)
    known = TrailTraffic(few).slice(0)
    monkeypatch.setattr(traffic_module, "MAX_ROUTE_CELLS", 0)
    again = TrailTraffic(few).slice(0)
    assert np.array_equal(known.meant, again.meant)
    assert np.array_equal(known.visited, again.visited)


def test_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PostroadError, match="is not empty"):
        write_trail(tmp_path, SMALL)


def test_lab_trail_tells_what_it_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "trail"
    outcome = here(
        monkeypatch, "lab", "trail", "--out", str(out), "--messages", "300", "--brokers", "4",
        "--seconds", "30", "--seal-seconds", "15", "--json",
    )  # fmt: skip
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["messages"] == 300
    assert told["files"] == len(list(out.rglob("date=*/*.parquet")))
    assert (out / "truth").is_dir()
