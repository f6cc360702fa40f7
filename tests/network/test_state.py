"""What a running network leaves for other terminals."""

from __future__ import annotations

import asyncio
import grp
import os
import stat
from typing import TYPE_CHECKING

import pytest

from postroad.network import BrokerEntry, NetworkError, NetworkState, Place, find, start_detached, stop_network
from postroad.network.processes import ProcessMark, mark_of

if TYPE_CHECKING:
    from pathlib import Path


def state(*marks: ProcessMark | None) -> NetworkState:
    entries = [
        BrokerEntry(number=number, address="stomp://h:1", link_port=1, admin_port=1, links=0, process=mark)
        for number, mark in enumerate(marks, 1)
    ]
    watcher = ProcessMark(os.getpid(), "another life")
    return NetworkState(name="n", strategy="drp", plan="plan.toml", watcher=watcher, brokers=tuple(entries))


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.read() is None
    written = state(mark_of(os.getpid()), ProcessMark(os.getpid(), "another life"), None)
    place.write(written)
    assert find(place) == written
    assert [entry.number for entry in written.running()] == [1]


@pytest.mark.parametrize("text", ["", "{}", '{"version": 7', "[1]"])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    Place(tmp_path).state_file.write_text(text)
    with pytest.raises(NetworkError, match="cannot be understood"):
        Place(tmp_path).read()


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    Place(tmp_path).state_file.mkdir()
    for place in (Place(tmp_path / "file"), Place(tmp_path)):
        with pytest.raises(NetworkError, match=r"network\.json: cannot be read \((Not|Is) a directory\)"):
            find(place)


def test_a_group_may_read_what_a_network_leaves(tmp_path: Path) -> None:
    place = Place(tmp_path / "new")
    with place.held(grp.getgrgid(os.getgid()).gr_name):
        place.write(state())
    assert {stat.S_IMODE(path.stat().st_mode) for path in [place.root, *place.root.iterdir()]} == {0o2750, 0o640}
    with pytest.raises(NetworkError, match="there is no group"), place.held("no such group"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_state_that_another_user_wrote_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(state(mark_of(os.getpid())))
    os.chown(place.state_file, 12_345, -1)
    with pytest.raises(NetworkError, match="belongs to the user 12345"):
        asyncio.run(stop_network(place))


def test_only_one_process_runs_a_network_in_a_directory(tmp_path: Path) -> None:
    place = Place(tmp_path / "new")
    with place.held(), pytest.raises(NetworkError, match=r"a network is up in .*; see it with"), place.held():
        pass
    with place.held():
        pass


def test_second_start_leaves_the_log_of_the_network_that_is_up(tmp_path: Path) -> None:
    place = Place(tmp_path / "new")
    with place.held():
        place.watcher_log.write_text("broker 1 died\n")
        with pytest.raises(NetworkError, match=r"^a network is up in .*; see it with"):
            asyncio.run(start_detached(place, [str(tmp_path / "no plan")]))
        assert place.watcher_log.read_text() == "broker 1 died\n"


def test_where_nothing_runs_there_is_nothing_to_stop(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="no network is up in"):
        asyncio.run(stop_network(Place(tmp_path)))


def test_processes_that_took_the_numbers_of_a_network_that_was_killed_are_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(state(ProcessMark(os.getpid(), "another life")))
    stopped = asyncio.run(stop_network(place))
    assert (stopped.brokers, stopped.killed) == (0, 0)
    assert place.read() is None
