"""A broker compiles and loads the kernels that its settings call for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from postroad.config import BrokerConfig, NetworkConfig, TrackingConfig
from postroad.kernels import load_all
from postroad.kernels.functions import KERNELS
from postroad.server.needed_kernels import FILTERS, NETWORKS, RARE, spared_kernels

if TYPE_CHECKING:
    from pathlib import Path

# A broker without a network, and a client that has it match, deliver, keep for a queue, and write the record; then the
# modules whose kernels were loaded.
PROGRAM = """
import os, signal, socket, sys, threading, time
from pathlib import Path
from postroad.config import BrokerConfig, TrackingConfig
from postroad.kernels.functions import KERNELS
from postroad.server.process import run_broker

def use(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(b"CONNECT\\naccept-version:1.2\\nhost:/\\n\\n\\0")
            for frame in (
                "SUBSCRIBE\\nid:1\\ndestination:/topic/a.*\\nselector:price > 3 AND a LIKE 'x%'\\nreceipt:on\\n\\n\\0",
                "SEND\\ndestination:/queue/q\\nreceipt:kept\\n\\nhello\\0",
                "SUBSCRIBE\\nid:2\\ndestination:/queue/q\\nack:client\\n\\n\\0",
                *(f"SEND\\ndestination:/topic/a.b\\nprice:{n}\\na:x{n}\\n\\nhello\\0" for n in range(100)),
                "SEND\\ndestination:/topic/c\\nreceipt:done\\n\\nhello\\0",
            ):
                client.sendall(frame.encode())
            heard = b""
            while b"receipt-id:done" not in heard:
                part = client.recv(65536)
                assert part
                heard += part
            for _ in range(1000):
                if list(Path(sys.argv[1]).rglob("*.parquet")):
                    break
                time.sleep(0.01)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

def started(service):
    threading.Thread(target=use, args=(service.port,), daemon=True).start()

config = BrokerConfig(port=0, data=sys.argv[1], tracking=TrackingConfig(recorder=sys.argv[2], persist_seconds=0.1))
run_broker(config, started)
print(*{kernel.function.__module__ for kernel in KERNELS if kernel.is_loaded})
"""


def test_broker_alone_with_an_exact_record_loads_no_kernels_of_filters_and_networks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "exact"], capture_output=True, text=True, check=True, timeout=300
    )
    loaded = done.stdout.split()
    assert "postroad.matching.batch_match" in loaded
    assert [module for module in loaded if f"{module}.".startswith(tuple(f"{name}." for name in spared()))] == []


def spared() -> tuple[str, ...]:
    return spared_kernels(BrokerConfig())


def test_settings_decide_which_kernels_are_spared() -> None:
    assert spared() == (*RARE, *NETWORKS, *FILTERS)
    assert spared_kernels(BrokerConfig(tracking=TrackingConfig(recorder="sealed"))) == (*RARE, *NETWORKS)
    assert spared_kernels(BrokerConfig(network=NetworkConfig(port=0))) == RARE


@pytest.mark.parametrize("place", [*FILTERS, *NETWORKS, *RARE])
def test_every_place_that_is_spared_has_kernels(place: str) -> None:
    import postroad.server  # noqa: F401 - with it come the kernels of a broker

    assert any(f"{kernel.function.__module__}.".startswith(f"{place}.") for kernel in KERNELS)


def test_spared_kernels_are_not_loaded() -> None:
    everything = tuple({kernel.function.__module__.split(".")[0] for kernel in KERNELS})
    before = [kernel.is_loaded for kernel in KERNELS]
    load_all(everything)
    assert [kernel.is_loaded for kernel in KERNELS] == before
