"""One data directory, one broker; one number on a trail, one broker. Who is dead keeps nobody out."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest

from postroad.recording import DirectoryLock, LockedError
from postroad.recording import lock as locks
from tests.server.processes import PlainClient, forked_brokers, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.processes import BrokerProcess, Brokers

HELD = "the cellar is taken by {owner}; take the attic"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def settings(folder: Path, name: str, number: int = 1, data: str = "data", trail: str = "trail") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f"number = {number}\nport = 0\nadmin_port = 0\ndata = '{folder / data}'\n"
        f"[tracking]\npersist_seconds = 0.1\ntrail = '{folder / trail}'\n"
    )
    return path


def is_over(broker: BrokerProcess) -> bool:
    return not broker.runs


def test_a_second_broker_on_one_data_directory_is_refused_until_the_first_is_dead(
    tmp_path: Path, brokers: Brokers
) -> None:
    first = brokers.start(settings(tmp_path, "first")).wait_until_ready()
    # Another number does not help: the numbers of publishers are in the data directory.
    for number in (1, 2):
        second = brokers.start(settings(tmp_path, "second", number))
        wait_until(partial(is_over, second))
        refusal = second.stderr
        assert f"{tmp_path / 'data'} is in use" in refusal
        assert f"broker 1, process {first.pid} on {socket.gethostname()}, since 20" in refusal
        assert "--data" in refusal
        assert "Traceback" not in refusal
    client = PlainClient(first.port())
    assert len(set(client.publish("/topic/x", 5))) == 5
    client.close()
    first.end(signal.SIGKILL)
    second = brokers.start(settings(tmp_path, "second")).wait_until_ready()
    second.end()
    brokers.start(settings(tmp_path, "third")).wait_until_ready().end()


def test_a_second_broker_of_a_number_on_one_trail_is_refused_and_one_of_another_number_is_not(
    tmp_path: Path, brokers: Brokers
) -> None:
    first = brokers.start(settings(tmp_path, "first")).wait_until_ready()
    second = brokers.start(settings(tmp_path, "second", data="elsewhere"))
    wait_until(lambda: not second.runs)
    assert f"{tmp_path / 'trail'} is written to by another broker of the same number" in second.stderr
    assert f"process {first.pid} on" in second.stderr
    assert "--number" in second.stderr
    other = brokers.start(settings(tmp_path, "other", number=2, data="elsewhere")).wait_until_ready()
    for one in (first, other):
        one.end(signal.SIGKILL)
    brokers.start(settings(tmp_path, "second", data="elsewhere")).wait_until_ready().end()


def test_a_broker_whose_trail_was_moved_does_not_write_beside_one_that_came_in_its_place(
    tmp_path: Path, brokers: Brokers
) -> None:
    first = brokers.start(settings(tmp_path, "first")).wait_until_ready()
    os.kill(first.pid, signal.SIGSTOP)
    (tmp_path / "trail").rename(tmp_path / "archive")
    second = brokers.start(settings(tmp_path, "second", data="elsewhere")).wait_until_ready()
    os.kill(first.pid, signal.SIGCONT)
    wait_until(lambda: "written to by another broker" in first.page("/health"))
    assert second.page("/health") == "ok\n"
    assert second.status()["tracking"]["trail_breaks"] == 0
    second.end()
    # Once it is gone the other goes on.
    wait_until(lambda: "was moved" in first.page("/health"))
    first.end()


def test_an_owner_of_another_machine_with_the_same_process_id_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(
        f'{{"pid":{os.getpid()},"host":"elsewhere","since":"2026-01-01","broker":1,"token":"00","beat":3}}\n'
    )
    mine = DirectoryLock(path, 1, HELD)
    mine.claim()
    with pytest.raises(LockedError, match=rf"taken by broker 1, process {os.getpid()} on .*; take the attic"):
        DirectoryLock(path, 2, HELD).claim()
    mine.release()
    DirectoryLock(path, 2, HELD).claim()


def test_a_lock_whose_file_was_deleted_is_taken_again(tmp_path: Path) -> None:
    mine = DirectoryLock(tmp_path / "folder" / "lock", 1, HELD)
    mine.claim()
    mine.path.unlink()
    mine.claim()
    with pytest.raises(LockedError):
        DirectoryLock(mine.path, 2, HELD).claim()
    mine.path.unlink()
    other = DirectoryLock(mine.path, 2, HELD)
    other.claim()
    with pytest.raises(LockedError, match="taken by broker 2"):
        mine.claim()
    other.release()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, where time passes quickly. (There is none to be had on a test machine.)"""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(locks, "WATCH_SECONDS", 0.5)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_living_owner_keeps_others_out_and_a_dead_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    mine, other = DirectoryLock(path, 1, HELD), DirectoryLock(path, 2, HELD)
    mine.claim()
    mine.claim()
    with pytest.raises(LockedError, match="taken by broker 1"):
        other.claim()
    left = path.read_text()
    mine.release()
    other.claim()
    other.release()
    path.write_text(left)  # as a killed process leaves it
    other.claim()
    with pytest.raises(LockedError, match="taken by broker 2"):
        mine.claim()
    other.release()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_one_of_two_that_come_at_once_gets_it(tmp_path: Path) -> None:
    import threading

    path = tmp_path / "lock"
    rivals = [DirectoryLock(path, number, HELD) for number in (1, 2, 3)]
    won: list[DirectoryLock] = []

    def claim(rival: DirectoryLock) -> None:
        try:
            rival.claim()
        except LockedError:
            return
        won.append(rival)

    threads = [threading.Thread(target=claim, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) <= 1
    for rival in won:
        rival.release()
