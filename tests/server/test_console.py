"""The console: what it is told, and what a real browser shows of it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec

from postroad.topology import line, ring
from tests.server.browser import PATIENCE_SECONDS, browser
from tests.server.http_client import get
from tests.server.live import LiveNetwork, live
from tests.server.scene import Client, run, service, until

# Where the README's pictures are made, by a run with this variable set.
PICTURES = os.environ.get("POSTROAD_SCREENSHOTS")
SCRIPT = "<script>document.title = 'taken over'</script>"


def test_console_is_told_of_sessions_topics_and_latencies_while_somebody_looks(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, number=7) as broker:
            timer = broker.dispatcher.timing
            client = await Client.connect(broker.port, login="ann")
            await client.subscribe("mine", "a.>", selector="price > 5")
            client.publish("a.b", price="9", receipt="1")
            await client.frame()
            assert broker.dispatcher.timing is timer
            code, _ = await get(broker.admin_port, "/console/data")
            assert code == 200
            assert broker.dispatcher.timing is not timer
            await client.frame()
            client.publish("a.b", price="9", receipt="2")
            await client.frame()
            told = json.loads((await get(broker.admin_port, "/console/data"))[1])
            assert [topic["topic"] for topic in told["topics"]] == ["a.b"]
            (seen,) = told["brokers"]
            assert (seen["number"], seen["condition"], seen["counts"]["accepted"]) == (7, "ready", 2)
            (session,) = seen["sessions"]
            assert session["principal"] == "unverified:ann"
            assert session["address"].startswith("127.0.0.1:")
            assert session["protocol"] == "STOMP 1.2"
            assert session["subscriptions"][0]["selector"] == "price > 5"
            await client.close()

    run(talk)


def test_console_is_told_of_durable_subscriptions_of_all_brokers(tmp_path: Path) -> None:
    async def talk() -> None:
        async with live(line(2), tmp_path, admin_port=0) as network:
            await network.converged()
            await told_of_each_other(network)
            for broker in network.services.values():
                client = await Client.connect(broker.port, login="ann", **{"client-id": "desk"})
                await client.subscribe("all", "a.>", durable="true", **{"auto-delete": "false"})
                await client.close()
            await until(lambda: all(each.statistics().durable_away_now for each in network.services.values()))
            writer = await Client.connect(network.services[1].port)
            for _ in range(3):
                writer.publish("a.b", receipt="r")
                assert (await writer.frame()).command == "RECEIPT"
            told = json.loads((await get(network.services[1].admin_port, "/console/data"))[1])
            first, second = told["brokers"]
            (durable,) = first["durables"]
            assert (durable["name"], durable["topic"], durable["session_now"]) == ("all", "a.>", None)
            assert durable["waiting_messages_now"] == 3
            assert [each["name"] for each in second["durables"]] == ["all"]
            await writer.close()

    run(talk)


def test_console_is_told_of_queues(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            writer = await Client.connect(broker.port)
            writer.send("SEND", destination="/queue/work", receipt="r")
            assert (await writer.frame()).command == "RECEIPT"
            (told,) = json.loads((await get(broker.admin_port, "/console/data"))[1])["brokers"]
            (queue,) = told["queues"]
            assert (queue["name"], queue["waiting_messages_now"], queue["consumers_now"]) == ("work", 1, 0)
            await writer.close()

    run(talk)


def test_data_of_the_console_need_the_token_and_its_files_do_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    right = "Host: 127.0.0.1\r\nAuthorization: Bearer 0123456789abcdef\r\n"

    async def talk() -> None:
        async with service(tmp_path / "data", admin_port=0, admin_token_file=str(token)) as broker:
            for path in ("/console", "/console/app.js", "/console/style.css"):
                assert (await get(broker.admin_port, path))[0] == 200
            for path in ("/console/data", "/sessions", "/sessions/1"):
                assert (await get(broker.admin_port, path))[0] == 401
            assert (await get(broker.admin_port, "/sessions/1", method="DELETE"))[0] == 401
            assert (await get(broker.admin_port, "/console/data", right))[0] == 200
            assert (await get(broker.admin_port, "/console/../status", right))[0] == 404

    run(talk)


def test_operator_lists_sessions_and_closes_one(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            client = await Client.connect(broker.port, login="ann")
            await client.subscribe("mine", "a.>", selector="price > 5")
            (session,) = json.loads((await get(broker.admin_port, "/sessions"))[1])
            assert session["subscriptions"][0]["selector"] == "price > 5"
            path = f"/sessions/{session['number']}"
            assert json.loads((await get(broker.admin_port, path))[1])["principal"] == "unverified:ann"
            for wrong in ("/sessions/999", "/sessions/x", f"/sessions/{'9' * 5000}"):
                assert (await get(broker.admin_port, wrong, method="DELETE"))[0] == 404
            code, told = await get(broker.admin_port, f"{path}?by=bea", method="DELETE")
            assert (code, json.loads(told)) == (200, {"closed": session["number"]})
            assert "an operator of this broker has closed the session" in str(await client.frame())
            await until(lambda: not broker.dispatcher.core.sessions())
            await client.close()

    run(talk)


async def told_of_each_other(network: LiveNetwork) -> None:
    """Give every broker the admin endpoints of all, as `postroad network up` does."""
    admins = {str(number): f"127.0.0.1:{each.admin_port}" for number, each in network.services.items()}
    for each in network.services.values():
        assert each.config.network is not None
        each.config = msgspec.structs.replace(
            each.config, network=msgspec.structs.replace(each.config.network, admins=admins)
        )


async def steady(feed: Client) -> None:
    """Something to see in a picture."""
    while True:
        for topic in ("stocks.acme", "stocks.acme", "stocks.globex", "news.sport"):
            feed.publish(topic, price="95")
        await asyncio.sleep(0.02)


def test_browser_shows_the_network_and_the_way_of_a_message(tmp_path: Path) -> None:
    async def talk() -> None:
        async with live(ring(5), tmp_path / "brokers", admin_port=0) as network, browser(tmp_path) as page:
            await network.converged()
            await told_of_each_other(network)
            trader = await Client.connect(network.services[3].port, login="trader")
            await trader.subscribe("mine", "stocks.>", selector="price > 90")
            desk = await Client.connect(network.services[1].port, login="desk")
            await desk.subscribe("near", "stocks.acme")
            feed = await Client.connect(network.services[1].port, login="feed")
            await page.resize(1280, 1100)
            await page.open(f"http://127.0.0.1:{network.services[1].admin_port}/console")
            await page.until("document.querySelectorAll('#map .node.ready').length === 5")
            assert await page.run("document.querySelectorAll('#map .link.up').length") == 5

            message = ""
            while not message:
                feed.publish("stocks.acme", price="95", receipt="r")
                receipt = await feed.frame()
                await asyncio.sleep(0.05)
                if network.services[3].statistics().delivered:
                    message = str(receipt.headers["message-id"])
            for _ in range(50):
                feed.publish("stocks.acme", price="95")
            traffic = asyncio.create_task(steady(feed)) if PICTURES else None
            await page.until("state.data.topics.length && document.querySelector('#latency .p99')")

            # By keyboard alone: T, the id, Enter.
            await page.press("t")
            await page.type(message)
            await page.press("Enter")
            await page.until("document.querySelectorAll('#map .way').length === 2")
            assert "delivered, certain" in await page.text("journey")
            assert "subscription 1 (unverified:trader, stocks.> where price > 90)" in await page.text("journey")
            assert await page.run("document.querySelectorAll('#map .node.passed').length") == 3
            if traffic is not None:
                await asyncio.sleep(20)
                await page.screenshot(Path(str(PICTURES)) / "console.png")
                traffic.cancel()

            # An id that nobody ever had: no publisher is named for it.
            await page.press("Escape")
            await page.press("t")
            await page.type("00000001-00000001-018bcfe56800-0009")
            await page.press("Enter")
            await page.until(
                "document.getElementById('journey').textContent.includes('the id itself names publisher 1')"
            )
            shown = await page.text("journey")
            assert "published by" not in shown
            assert "feed" not in shown
            await page.press("Escape")

            other = await Client.connect(network.services[4].port, login=SCRIPT)
            await other.subscribe("all", "news.>")
            # What clients chose is text, whatever it looks like; and the search finds it.
            assert await page.run("document.title") == "Postroad postroad"
            await page.run("document.getElementById('search').focus()")
            await page.type("<script>")
            await page.until("document.querySelectorAll('#sessions tbody tr').length === 1")
            assert SCRIPT in await page.text("sessions")
            await page.press("Escape")
            await page.run("document.getElementById('search').value = ''")

            await network.services[5].stop()
            del network.services[5]
            await page.until("document.querySelector('[data-broker=\"5\"]').classList.contains('silent')")

            await page.resize(390, 844, dark=True)
            assert await page.run("document.documentElement.scrollWidth <= 390")
            if PICTURES:
                await page.run("scrollTo(0, 0)")
                await page.screenshot(Path(PICTURES) / "console-phone.png", whole=False)
            assert page.problems == []
            for client in (trader, other, desk, feed):
                await client.close()

    run(talk, PATIENCE_SECONDS)


def test_browser_asks_for_the_token_and_then_shows_the_broker(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")

    async def talk() -> None:
        data = tmp_path / "data"
        async with service(data, admin_port=0, admin_token_file=str(token)) as broker, browser(tmp_path) as page:
            await page.open(f"http://127.0.0.1:{broker.admin_port}/console")
            await page.until("!document.getElementById('login').hidden")
            assert await page.run("document.getElementById('main').hidden")
            for text in ("wrong-wrong-wrong-wrong", "0123456789abcdef"):
                await page.run("document.getElementById('token').focus()")
                await page.type(text)
                await page.press("Enter")
                shown = "document.getElementById('login-error').textContent.includes('not the right one')"
                await page.until(shown if text.startswith("wrong") else "document.querySelector('#map .node.ready')")

    run(talk, PATIENCE_SECONDS)
