"""The capacity model against real brokers: throughput of loads it was not fitted to, and waits under open-loop load.

Throughput: half of a grid of subscriptions, copies and sizes (the white fields of a chessboard) is measured below
saturation and fitted; the model then predicts what saturated brokers carry on the black fields.

Waits: what reads and messages cost is fitted to loads of 0.2, 0.4, 0.6 and 0.8. Then messages leave at random times
(Poisson): from one publisher, one by one and in bursts; from many publishers; through a line of three brokers. For one
publisher 0.5, 0.7 and 0.9 are shares of what batches of any size could carry, for many of what reads of one message
could. The wait is what they take beyond their own service and the time that passes besides (sockets, waking up), with
the longer service of larger batches; the model predicts the same. What passes besides is fitted to the same loads as
the costs, as one number. Brokers run on one processor, the generator on another: three brokers that share a
processor are modelled as one server with the sum of their costs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.open_loop import OpenLoop, Passed, arrival_times
from postroad.broker import Broker, Limits, Outbox, PublisherNumbers
from postroad.capacity import (
    BATCHED,
    FORMS,
    LINEAR,
    BatchServer,
    CapacityError,
    Moments,
    SingleServer,
    fit_every_form,
    fit_reads,
)
from postroad.lab.calibration import (
    WINDOW,
    MeasuredCell,
    Programme,
    cell_samples,
    measure,
    message_bytes,
    processor_seconds,
)
from postroad.messages import Batch
from postroad.recording import Sampler
from postroad.server.capacity_watch import PROBES_PER_SECOND
from postroad.server.tcp import READ_BYTES
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from postroad.capacity import BatchCosts, ReadCosts

    Floats = NDArray[np.float64]

UTILISATIONS = (0.5, 0.7, 0.9)
# Where less of a run than this was undisturbed, all of it counts, and the result says so.
LEAST_QUIET = 0.2
# Loads that costs are taken from; none of those that are predicted.
CALIBRATED = (0.2, 0.4, 0.6, 0.8)
# Sizes of reads whose cost is measured.
READS = (1, 4, 16, 64, 256)
_READY = re.compile(r'"stomp": "stomp://[^:"]+:(\d+)"')
# Calls of the sampler that are timed at once, and how often; the best counts.
_CALLS = 20_000
_ROUNDS = 5


class Settings(NamedTuple):
    """How long things take.

    Attributes:
        programme: of the grid.
        read_seconds: for each size of reads.
        wait_seconds: for each load.
    """

    programme: Programme
    read_seconds: float
    wait_seconds: float


FULL = Settings(Programme((0, 100, 1_000, 10_000), (0, 1, 4, 16), (100, 1_000), (1, 16, 256), 0.6), 0.5, 8.0)
SMOKE = Settings(Programme((0, 50), (0, 1, 2), (100, 500), (1, 16), 0.05), 0.05, 0.1)


# --- throughput ------------------------------------------------------------------------------------------------------


def is_white(one: MeasuredCell, programme: Programme) -> bool:
    """The half of the grid that is fitted."""
    places = (
        programme.subscriptions.index(one.cell.subscriptions),
        programme.copies.index(one.cell.copies),
        programme.sizes.index(one.cell.size),
    )
    return sum(places) % 2 == 0


def saturated_rate(costs: BatchCosts, one: MeasuredCell) -> float:
    """What the costs predict: as many messages in a batch as a read takes, or as there are."""
    cell, size = one.cell, message_bytes(one.cell)
    batch = min(READ_BYTES / size, float(WINDOW * cell.burst))
    each = costs.marginal(cell.subscriptions + cell.copies, cell.copies, size)
    return batch / (costs.fixed(cell.copies) + batch * each)


def throughput_errors(measured: Sequence[MeasuredCell], programme: Programme) -> dict[str, Any]:
    """Fit the white half, predict the black one."""
    fitted = cell_samples([one for one in measured if is_white(one, programme)])
    groups = np.arange(len(fitted.seconds))
    costs = {fit.form.name: fit.costs() for fit in fit_every_form(fitted, groups)}
    black = [one for one in measured if one.cell.saturated and one.bursts and not is_white(one, programme)]
    conclusive = [one for one in black if one.conclusive]
    errors: dict[str, list[float]] = {form.name: [] for form in FORMS}
    print(f"{'subscriptions':>13} {'copies':>6} {'bytes':>6} {'measured/s':>11} {'ours':>6} {'linear':>7}  processors")
    for one in conclusive or black:
        # By the processor time that the broker had: others may have held the processor for some of the time.
        carried = one.rate / one.busy
        off = {name: saturated_rate(found, one) / carried - 1 for name, found in costs.items()}
        for name, error in off.items():
            errors[name].append(abs(error))
        print(
            f"{one.cell.subscriptions:13,} {one.cell.copies:6} {one.cell.size:6,} {carried:11,.0f} "
            f"{100 * off[BATCHED.name]:+5.0f}% {100 * off[LINEAR.name]:+6.0f}%  {one.busy:.2f}"
        )
    return {
        "throughput_error": median(errors[BATCHED.name]),
        "throughput_error_max": max(errors[BATCHED.name]),
        "linear_throughput_error": median(errors[LINEAR.name]),
        "saturated_loads": len(conclusive),
        "loads_without_saturation": len(black) - len(conclusive),
        "smallest_batch_seconds": float(min(fitted.seconds)),
    }


# --- waits -----------------------------------------------------------------------------------------------------------


class Server(NamedTuple):
    """A broker under measurement."""

    pid: int
    port: int


class Kind(NamedTuple):
    """A kind of load.

    Attributes:
        name: in results.
        brokers: that messages pass.
        publishers: that they come from.
        burst: messages that leave at once.
        copies: of a message: so many that waits are long enough to be measured.
    """

    name: str
    brokers: int
    publishers: int
    burst: int
    copies: int


KINDS = (
    Kind("poisson", 1, 1, 1, 10),
    Kind("bursts", 1, 1, 64, 10),
    Kind("many publishers", 1, 100, 1, 1),
    Kind("three brokers", 3, 1, 1, 10),
)


class Load(NamedTuple):
    """One open-loop run and what was predicted for it, in seconds beyond what a message takes that meets no other.

    Attributes:
        kind: of load.
        utilisation: by our model.
        mean: the measured mean excess.
        p99: the measured 99 % quantile of it.
        ours: predicted mean and quantile.
        linear: the same by the paper's form; None where it says that the queue grows without end.
        late: the generator's own mean lateness, which is not part of the figures.
        quiet: the share of messages that counts; of the others the machine was kept from doing its work. 0: all were
            disturbed, and count nevertheless.
    """

    kind: str
    utilisation: float
    mean: float
    p99: float
    ours: tuple[float, float]
    linear: tuple[float, float] | None
    late: float
    quiet: float


class Calibrated(NamedTuple):
    """What the loads between those that are predicted gave.

    Attributes:
        costs: of reads and messages.
        each: what a message costs by the paper's form.
        besides: seconds that a message takes beyond wait and service.
    """

    costs: ReadCosts
    each: float
    besides: float


def predicted_by_batches(costs: ReadCosts, rate: float, kind: Kind) -> tuple[float, float]:
    """Mean and 99 % quantile of the excess; a burst of fixed size is one customer with the work of all."""
    server = BatchServer(rate / kind.burst, costs.fixed, kind.burst * costs.marginal, kind.publishers)
    alone = costs.fixed + kind.burst * costs.marginal
    return server.mean_response() - alone, server.response_quantile(0.99) - alone


def predicted_by_messages(each: float, rate: float, burst: int) -> tuple[float, float] | None:
    """The same of the paper's queue, in which a message costs the same whatever else there is."""
    work = burst * each
    server = SingleServer(rate / burst, Moments(work, work**2, work**3))
    try:
        return server.mean_wait(), server.quantile(0.99)
    except CapacityError:
        return None


def measure_reads(line: OpenLoop, servers: Sequence[Server], kind: Kind, settings: Settings) -> Calibrated:
    """What reads and messages cost all brokers together.

    Reads one at a time give a first guess. They come to a broker that sleeps and whose caches are cold, so that they
    cost more than under load: the costs that count come from loads between those that are predicted. So does the time
    that passes beside the service: a broker that has nothing to do takes longer to wake up than one under load.
    """
    first = []
    line.bursts(max(READS), settings.read_seconds / 4)
    for size in READS:
        before = _processor_seconds(servers)
        done = line.bursts(size, settings.read_seconds)
        first.append((done, done * size, _processor_seconds(servers) - before))
    costs = fit_reads(*np.array(first, np.float64).T)
    rows, means = [], []
    rates = [utilisation * _most(costs, kind) for utilisation in CALIBRATED]
    for number, rate in enumerate(rates):
        before = _processor_seconds(servers)
        times = arrival_times(rate, settings.wait_seconds / 2, 1, 100 + number)
        passed = line.run(times)
        rows.append((passed.batches, len(times), _processor_seconds(servers) - before))
        means.append(float(_undisturbed(passed)[0].mean()))
    reads, messages, seconds = np.array(rows, np.float64).T
    # Least squares of relative errors, as for all fits here.
    shares = messages / seconds
    costs = fit_reads(reads, messages, seconds)
    one_by_one = kind._replace(burst=1)
    alone = costs.fixed + costs.marginal
    besides = [
        mean - alone - predicted_by_batches(costs, rate, one_by_one)[0]
        for mean, rate in zip(means, rates, strict=True)
        # Another load than was meant, now that the costs are known better; the model has no answer beyond 1.
        if rate < _most(costs, kind)
    ]
    return Calibrated(costs, float(shares.sum() / (shares**2).sum()), median(besides) if besides else 0.0)


def _most(costs: ReadCosts, kind: Kind) -> float:
    """Messages a second that are a utilisation of 1."""
    return 1 / costs.marginal if kind.publishers == 1 else 1 / (costs.fixed + costs.marginal)


def _processor_seconds(servers: Sequence[Server]) -> float:
    return sum(processor_seconds(one.pid) for one in servers)


def measure_waits(kind: Kind, servers: Sequence[Server], settings: Settings) -> list[Load]:
    """Costs of reads, then loads."""

    def waited() -> float:
        return sum(_waited_seconds(one.pid) for one in servers)

    with OpenLoop(servers[0].port, servers[-1].port, kind.copies, kind.publishers, waited) as line:
        line.settle()
        costs, each, besides = measure_reads(line, servers, kind, settings)
        print(
            f"{kind.name}: a read takes {1e6 * costs.fixed:.0f} us and {1e6 * costs.marginal:.2f} us for each message; "
            f"by the paper's form {1e6 * each:.1f} us for each message; {1e6 * besides:.0f} us pass besides"
        )
        most = _most(costs, kind)
        rest = besides + costs.fixed + kind.burst * costs.marginal
        found = []
        for number, utilisation in enumerate(UTILISATIONS):
            rate = utilisation * most
            passed = line.run(arrival_times(rate, settings.wait_seconds, kind.burst, 10 + number))
            seconds, quiet = _undisturbed(passed)
            mean = float(seconds.mean()) - rest
            p99 = float(np.quantile(seconds, 0.99)) - rest
            ours = predicted_by_batches(costs, rate, kind)
            linear = predicted_by_messages(each, rate, kind.burst)
            found.append(Load(kind.name, utilisation, mean, p99, ours, linear, float(passed.late.mean()), quiet))
    return found


def _undisturbed(passed: Passed) -> tuple[Floats, float]:
    share = float(passed.quiet.mean())
    if share < LEAST_QUIET:
        return passed.seconds, 0.0
    return passed.seconds[passed.quiet], share


def _waited_seconds(pid: int) -> float:
    """For how long a process was ready and had no processor."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def wait_errors(loads: Sequence[Load]) -> dict[str, Any]:
    """Relative errors: medians over all loads, and by kind."""
    heads = ("mean us", "ours", "linear", "p99 us", "ours", "linear", "late us", "quiet %")
    print(f"{'load':15} {'used':>4}" + "".join(f"{head:>9}" for head in heads))
    for one in loads:
        linear = (math.inf, math.inf) if one.linear is None else one.linear
        figures = (one.mean, one.ours[0], linear[0], one.p99, one.ours[1], linear[1], one.late)
        told = "".join(f"{1e6 * figure:9.0f}" for figure in figures)
        print(f"{one.kind:15} {one.utilisation:4}{told}{100 * one.quiet:9.0f}")

    def off(part: int, chosen: Sequence[Load], linear: bool = False) -> float | None:
        errors = []
        for one in chosen:
            told, seen = one.linear if linear else one.ours, (one.mean, one.p99)[part]
            errors.append(math.inf if told is None or seen <= 0 else abs(told[part] / seen - 1))
        found = median(errors) if errors else math.inf
        return found if math.isfinite(found) else None

    by_kind = {
        f"{name}_wait_error_{kind.name.replace(' ', '_')}": off(part, [one for one in loads if one.kind == kind.name])
        for kind in KINDS
        for part, name in enumerate(("mean", "p99"))
    }
    return {
        "mean_wait_error": off(0, loads),
        "p99_wait_error": off(1, loads),
        "linear_mean_wait_error": off(0, loads, linear=True),
        "linear_p99_wait_error": off(1, loads, linear=True),
        "linear_endless": sum(one.linear is None for one in loads),
        "loads": len(loads),
        "quiet_share": min(one.quiet for one in loads),
        **by_kind,
    }


# --- what measuring costs --------------------------------------------------------------------------------------------


def recording_overhead(smallest_batch: float) -> float:
    """The share of a broker's time that timing and probing take, at worst: reads of one message, without copies."""
    core = Broker(1, PublisherNumbers(lambda: 1), Limits())
    sampler = Sampler(core, lambda: 0, ExactRecorder(1, 0), lambda *seen: None)
    batch, outbox = Batch.build([("t",)]), Outbox()

    def calls() -> None:
        for _ in range(_CALLS):
            sampler.begin()
            sampler.count(batch, outbox)
            sampler.end(7)

    best = math.inf
    for _ in range(_ROUNDS):
        began = time.thread_time()
        calls()
        best = min(best, (time.thread_time() - began) / _CALLS)
    return best / smallest_batch + PROBES_PER_SECOND * asyncio.run(_probe_seconds())


async def _probe_seconds() -> float:
    """What planning and running a probe costs, with the wake-up of the loop: by processor time."""
    from postroad.server.capacity_watch import CapacityWatch

    watch = CapacityWatch(lambda: 0, lambda: 0)
    loop = asyncio.get_running_loop()
    began, count = time.thread_time(), 200
    for _ in range(count):
        watch.monitor.probed(0.001, loop.time())
        done = loop.create_future()
        loop.call_at(loop.time() + 0.001, done.set_result, None)
        await done
    return (time.thread_time() - began) / count


# --- brokers ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(count: int, processors: set[int]) -> Iterator[list[Server]]:
    """Brokers in a line, on these processors; stopped at the end."""
    ports = _free_ports(count)
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        processes: list[subprocess.Popen[str]] = []
        try:
            for number in range(1, count + 1):
                config = Path(directory) / f"broker-{number}.toml"
                config.write_text(_config(number, ports, Path(directory)))
                command = [
                    sys.executable,
                    "-c",
                    "from postroad.cli import main; main()",
                    "broker",
                    "--config",
                    str(config),
                    "--json",
                ]
                processes.append(
                    subprocess.Popen(
                        command,
                        stdout=subprocess.PIPE,
                        text=True,
                        preexec_fn=lambda: os.sched_setaffinity(0, processors),
                    )
                )
            yield [Server(one.pid, _stomp_port(one)) for one in processes]
        finally:
            for one in processes:
                one.terminate()
            for one in processes:
                one.wait(30)
                assert one.stdout is not None
                one.stdout.close()


def _config(number: int, ports: Sequence[int], folder: Path) -> str:
    text = (
        f'number = {number}\nport = 0\ndata = {json.dumps(str(folder / f"data-{number}"))}\nlog_level = "warning"\n'
        f"[tracking]\ntrail = {json.dumps(str(folder / 'trail'))}\npersist_seconds = 1\n"
        "[limits]\nsubscriptions_per_session = 100_000\n"
    )
    if len(ports) == 1:
        return text
    others = [other for other in (number - 1, number + 1) if 1 <= other <= len(ports)]
    neighbours = ", ".join(f"{{ number = {other}, port = {ports[other - 1]} }}" for other in others)
    return text + f"[network]\nport = {ports[number - 1]}\nneighbours = [{neighbours}]\n"


def _stomp_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = _READY.search(line)
    if ready is None:
        raise RuntimeError(f"a broker did not start: {line!r}")
    return int(ready[1])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]


def processors_apart() -> tuple[set[int], set[int]]:
    """One for the generator and one for the brokers; the same where there is only one."""
    here = sorted(os.sched_getaffinity(0))
    return {here[0]}, {here[-1]}


def waits_of(settings: Settings) -> list[Load]:
    """Loads of all kinds."""
    before = os.sched_getaffinity(0)
    own, theirs = processors_apart()
    found: list[Load] = []
    for kind in KINDS:
        with running(kind.brokers, theirs) as servers:
            os.sched_setaffinity(0, own)
            try:
                found += measure_waits(kind, servers, settings)
            finally:
                os.sched_setaffinity(0, before)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait-seconds", type=float, help="for each open-loop load; 8 by default")
    parser.add_argument("--smoke", action="store_true", help="everything once, too short to mean anything")
    parser.add_argument("--only", choices=("throughput", "waits"), help="leave out the other part")
    given = parser.parse_args()
    settings = SMOKE if given.smoke else FULL
    if given.wait_seconds is not None:
        settings = settings._replace(wait_seconds=given.wait_seconds)
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} processors, {platform.machine()}"
    )
    result: dict[str, Any] = {"benchmark": "capacity"}
    if given.only != "waits":
        with tempfile.TemporaryDirectory(prefix="postroad-bench-") as folder:
            measured = asyncio.run(measure(settings.programme, Path(folder), lambda text: print(text, file=sys.stderr)))
        result |= throughput_errors(measured, settings.programme)
        result["recording_overhead"] = recording_overhead(result.pop("smallest_batch_seconds"))
    if given.only != "throughput":
        result |= wait_errors(waits_of(settings))
    print(json.dumps({name: round(value, 5) if isinstance(value, float) else value for name, value in result.items()}))


if __name__ == "__main__":
    main()
