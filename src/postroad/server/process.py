"""A broker as a process: its event loop, its signals, its exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from postroad.kernels import compile_missing, load_all
from postroad.server.extras import check_extras, loop_factory
from postroad.server.logs import log_to_stderr
from postroad.server.memory import keep_freed_memory, set_apart_what_stays
from postroad.server.needed_kernels import spared_kernels
from postroad.server.service import Service
from postroad.server.time_slice import ask_for_short_slices
from postroad.trail import keep_pandas_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig

__all__ = ["run_broker", "tune_process"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What a shell shows for a process that a signal ended.
_ENDED_BY_SIGNAL = 128
# The longest that the thread that writes the record may keep the interpreter from the loop. Python's own 5 ms would be
# a pause of thousands of messages, at each of the loop's system calls.
SWITCH_SECONDS = 0.0005


def tune_process() -> None:
    """What suits a process that runs a broker, however it was started: for memory, and for its threads."""
    keep_freed_memory()
    keep_pandas_out()
    set_apart_what_stays()
    ask_for_short_slices()
    sys.setswitchinterval(SWITCH_SECONDS)


def run_broker(
    config: BrokerConfig,
    started: Callable[[Service], None] | None = None,
    read: Callable[[], BrokerConfig] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code.

    The first signal stops it cleanly, and the code is 0. A second one ends it at once, with 128 plus its number. SIGHUP
    has it read its settings again.

    Args:
        config: the settings.
        started: called when clients can connect.
        read: reads the settings again; None has only the files read again that they name.

    Raises:
        PostroadError: the broker cannot start; the text says why.
    """
    check_extras(config)
    log_to_stderr(config.log_level, form=config.log_format)
    # Before the loop runs: a client would wait for it, and the first message is to be as quick as the millionth.
    spared = spared_kernels(config)
    compile_missing(spared=spared)
    load_all(spared)
    tune_process()
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        return runner.run(_serve(config, started, read))


async def _serve(
    config: BrokerConfig,
    started: Callable[[Service], None] | None,
    read: Callable[[], BrokerConfig] | None,
) -> int:
    service = Service(config)
    received: list[int] = []
    first = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopping: asyncio.Task[None] | None = None

    def on_signal(number: int) -> None:
        received.append(number)
        first.set()
        service.hurry()
        if stopping is not None:
            stopping.cancel()

    reloads: set[asyncio.Task[None]] = set()

    def on_hangup() -> None:
        task = asyncio.create_task(service.reload.run(read))
        # The loop alone does not keep a task alive.
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        await service.start()
        if started is not None:
            started(service)
        await first.wait()
        stopping = asyncio.create_task(service.stop())
        await asyncio.wait([stopping])
    finally:
        for number in (*SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
    if stopping.cancelled():
        await service.abort()
        return _ENDED_BY_SIGNAL + received[-1]
    stopping.result()
    return 0
