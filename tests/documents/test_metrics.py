"""The metrics that docs/howto/metrics.md explains are metrics of a broker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from postroad.config import Neighbouring, NetworkConfig
from tests.server import scene
from tests.server.http_client import get
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "howto" / "metrics.md"


def test_every_metric_of_the_page_is_one_that_a_broker_gives(tmp_path: Path) -> None:
    given: set[str] = set()

    async def scrape() -> None:
        # A neighbour that never answers still has its counts.
        network = NetworkConfig(neighbours=[Neighbouring(number=2, port=1)])
        async with scene.service(tmp_path, admin_port=0, network=network) as broker:
            code, text = await get(broker.admin_port, "/metrics")
            assert code == 200
            given.update(re.findall(r"^(postroad_\w+)", text, re.MULTILINE))

    scene.run(scrape)
    # Known a while after the start only.
    given |= {"postroad_capacity_load_ratio", "postroad_capacity_measured_p99_wait_seconds"}
    named = set(re.findall(r"postroad_[a-z_0-9]+[a-z0-9]", PAGE.read_text("utf-8")))
    assert len(named) > 20
    assert named - given == set()
