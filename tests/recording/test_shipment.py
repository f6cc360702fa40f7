"""A running broker that ships its record: a store that is away keeps nothing up, and gets all when it is back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from postroad.config import BrokerConfig, ConfigError, TrackingConfig
from postroad.messages import MessageId
from postroad.recording import make_record
from postroad.recording import shipment as shipment_module
from postroad.server.status import status
from postroad.tracking import Verdict
from postroad.trail import GapReason, Trail
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path


async def published(client: Client, body: bytes) -> MessageId:
    """Publish a message; its receipt must say that it is on record."""
    client.publish("quotes", body, receipt=body.decode())
    receipt = await client.frame()
    assert receipt.command == "RECEIPT", receipt
    assert "tracked" not in dict(receipt.headers)
    return MessageId.parse(dict(receipt.headers)["message-id"])


def test_broker_goes_on_while_its_store_is_away_says_so_and_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shipment_module, "SHIP_SECONDS", 0.02)
    monkeypatch.setattr(shipment_module, "MOST_SECONDS", 0.05)
    caplog.set_level(logging.INFO, "postroad.tracking")
    store = tmp_path / "store"
    store.write_bytes(b"a file, where a directory should be")
    ids: list[MessageId] = []

    async def talk() -> None:
        tracking = TrackingConfig(persist_seconds=0.1, ship=f"file:{store}")
        async with service(tmp_path / "data", number=4, tracking=tracking) as broker:
            client = await Client.connect(broker.port)
            ids.append(await published(client, b"1"))
            await until(lambda: "trail not shipped" in caplog.messages)
            told = status(broker).tracking
            assert told is not None
            assert str(store) in str(told["ship_trouble"])
            assert told["trouble"] == ""
            assert told["ship_degraded_now"] == 1
            await until(lambda: broker.tracking is not None and broker.tracking.statistics()["ship_failures"] > 1)
            # Nothing waits for the store: receipts say that the record is safe, as it is.
            ids.append(await published(client, b"2"))
            store.unlink()
            await until(lambda: "trail shipped again" in caplog.messages)
            await until(lambda: broker.tracking is not None and broker.tracking.statistics()["ship_files"] > 0)
            told = status(broker).tracking
            assert told is not None
            assert told["ship_trouble"] == ""
            await client.close()

    run(talk)
    # What was written last goes with the end of the broker. Nobody can tell there whether it has started again since.
    for one in ids:
        journey = Trail(store).trace(one).journey
        assert [stop.broker for stop in journey.stops] == [4]
        assert {gap.reason for _, gap in journey.gaps} == {GapReason.NOT_SHIPPED}
        journey = Trail(tmp_path / "data" / "trail").trace(one).journey
        assert (journey.verdict, journey.certainty) == (Verdict.MATCHED_NOBODY, 1.0)
    never = MessageId(ids[0].publisher, 4, ids[0].time, 999)
    assert Trail(store).trace(never).journey.verdict is Verdict.NOT_RECORDED


@pytest.mark.parametrize(
    ("ship", "why"), [("gs://bucket/trail", "no store gs://"), ("{data}/trail", "is the trail itself")]
)
def test_place_that_cannot_be_shipped_to_is_refused_at_the_start(tmp_path: Path, ship: str, why: str) -> None:
    tracking = TrackingConfig(ship=ship.format(data=tmp_path))
    with pytest.raises(ConfigError, match=f"tracking.ship: .*{why}"):
        make_record(BrokerConfig(number=4, data=str(tmp_path), tracking=tracking), lambda: 1_000)
