"""The admin endpoint: what it answers, and what it does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroad.config import BrokerConfig, ConfigError
from postroad.server import Service, admin, http
from tests.server.http_client import get
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def test_health_ready_and_status_tell_the_state_of_the_broker(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, number=7) as broker:
            assert await get(broker.admin_port, "/health") == (200, "ok\n")
            assert await get(broker.admin_port, "/ready") == (200, "ready\n")
            client = await Client.connect(broker.port, login="ann")
            await client.subscribe("mine", "a.>", ack="client", overflow="push-back")
            client.publish("a.b")
            client.publish("c", receipt="r")
            await client.frame()
            code, body = await get(broker.admin_port, "/status?pretty")
            told = json.loads(body)
            assert (code, told["broker"], told["ready"]) == (200, 7, True)
            assert told["statistics"]["accepted"] == 2
            assert told["statistics"]["matched_nobody"] == 1
            assert told["server"]["connections_now"] == 1
            assert told["limits"]["queue_messages"] == 10_000
            (session,) = told["sessions"]
            assert (session["principal"], session["accepted"]) == ("unverified:ann", 2)
            (subscription,) = session["subscriptions"]
            assert subscription["key"] == "mine"
            assert subscription["topic"] == "a.>"
            assert (subscription["ack"], subscription["overflow"]) == ("client", "push-back")
            assert (subscription["delivered"], subscription["unacknowledged_now"]) == (1, 1)
            assert told["left_out"] == {"sessions": 0, "subscriptions": 0}
            assert told["network"] is None
            await client.close()

    run(talk)


def test_status_lists_a_mebibyte_of_selectors_and_counts_the_rest(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            clients = [await Client.connect(broker.port) for _ in range(3)]
            for client in clients:
                for number in range(50):
                    client.send("SUBSCRIBE", id=str(number), destination="/topic/t", selector=f"b = '{'x' * 30_000}'")
                client.send("SEND", destination="/topic/nobody", receipt="r")
                assert (await client.frame()).command == "RECEIPT"
            code, body = await get(broker.admin_port, "/status")
            told = json.loads(body)
            assert code == 200
            assert len(body) < 1_200_000
            assert [len(session["subscriptions"]) for session in told["sessions"]] == [34, 0, 0]
            assert told["left_out"] == {"sessions": 0, "subscriptions": 116}
            for client in clients:
                await client.close()

    run(talk)


def test_with_a_token_only_who_shows_it_sees_who_is_connected(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    right = "Host: 127.0.0.1\r\nAuthorization: Bearer 0123456789abcdef\r\n"
    wrong = "Host: 127.0.0.1\r\nAuthorization: Bearer 0123456789abcdeg\r\n"

    async def talk() -> None:
        async with service(tmp_path / "data", admin_port=0, admin_token_file=str(token)) as broker:
            client = await Client.connect(broker.port, login="ann")
            await client.subscribe("mine", "a.>")
            for head in ("Host: 127.0.0.1\r\n", wrong):
                code, body = await get(broker.admin_port, "/status", head)
                told = json.loads(body)
                assert (code, told["sessions"], "ann" in body, "a.>" in body) == (200, [], False, False)
                assert told["left_out"] == {"sessions": 1, "subscriptions": 1}
                for path in ("/trace/00000001-00000001-018bcfe56800-0001", "/aliases/x"):
                    assert (await get(broker.admin_port, path, head))[0] == 401
                for path in ("/health", "/ready", "/metrics"):
                    assert (await get(broker.admin_port, path, head))[0] == 200
            assert broker.server_statistics().admin_requests_refused == 3
            _, body = await get(broker.admin_port, "/status", right)
            assert json.loads(body)["sessions"][0]["principal"] == "unverified:ann"
            assert (await get(broker.admin_port, "/trace/00000001-00000001-018bcfe56800-0001", right))[0] == 200
            await client.close()

    run(talk)


@pytest.mark.parametrize("text", ["", "short", "a b" * 10, "\u00e9" * 20])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, text: str) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    with pytest.raises(ConfigError, match="admin_token_file"):
        Service(BrokerConfig(data=str(tmp_path / "data"), admin_token_file=str(token)))


def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, number=7) as broker:
            client = await Client.connect(broker.port)
            client.publish("a", receipt="r")
            await client.frame()
            code, body = await get(broker.admin_port, "/metrics")
            assert code == 200
            families = {family.name: family for family in text_string_to_metric_families(body)}
            assert families["postroad_accepted"].type == "counter"
            assert families["postroad_sessions"].type == "gauge"
            values = {sample.name: sample for family in families.values() for sample in family.samples}
            assert values["postroad_accepted_total"].value == 1
            assert values["postroad_sessions"].value == 1
            assert values["postroad_connections_turned_away_total"].value == 0
            assert values["postroad_accepted_total"].labels == {"broker": "7"}
            await client.close()

    run(talk)


def test_metrics_without_their_library_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "has", lambda module: False)

    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            code, body = await get(broker.admin_port, "/metrics")
            assert (code, "postroad[metrics]" in body) == (501, True)

    run(talk)


@pytest.mark.parametrize(
    ("path", "head", "method", "code"),
    [
        ("/", "Host: localhost\r\n", "GET", 404),
        ("/health", "Host: localhost\r\n", "POST", 405),
        ("/health", "Host: attacker.example\r\n", "GET", 403),
        ("/health", "Host: [::1]:80\r\n", "GET", 200),
        ("/health", "host:LOCALHOST:8161\r\n", "GET", 200),
        ("/health", "", "GET", 200),
        ("/health and more", "Host: localhost\r\n", "GET", 400),
        ("/health", "X: " + "x" * 10_000 + "\r\n", "GET", 431),
    ],
)
def test_other_requests_are_refused_with_a_reason(tmp_path: Path, path: str, head: str, method: str, code: int) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            answered, body = await get(broker.admin_port, path, head, method)
            assert answered == code
            assert body.strip()

    run(talk)


def test_a_request_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.1)

    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.admin_port)
            writer.write(b"GET /health")
            assert await reader.read() == b""
            writer.close()
            assert (await get(broker.admin_port, "/health"))[0] == 200

    run(talk)


def test_slow_requests_do_not_keep_a_health_check_out(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            slow = [await asyncio.open_connection("127.0.0.1", broker.admin_port) for _ in range(admin.MOST_REQUESTS)]
            for _, writer in slow:
                writer.write(b"GET /health")
                await writer.drain()
            for _ in range(3):
                assert await get(broker.admin_port, "/health") == (200, "ok\n")
            # Those that have waited longest paid for it, and only as many as had to.
            for reader, writer in slow[:1]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            for reader, writer in slow[1:]:
                writer.write(b" HTTP/1.1\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
                writer.close()

    run(talk)


def test_questions_that_take_long_are_bounded_and_keep_nobody_else_out() -> None:
    release = asyncio.Event()

    async def later() -> http.HttpResponse:
        await release.wait()
        return http.text_response(HTTPStatus.OK, "found")

    def page(request: http.Request) -> http.HttpResponse | Awaitable[http.HttpResponse]:
        return later() if request.path == "/trace" else http.text_response(HTTPStatus.OK, "ok")

    async def talk() -> None:
        server = await http.Endpoint(page, 5, slow_seconds=30.0, most_slow=3).listen(0)
        port = server.sockets[0].getsockname()[1]
        asked = [asyncio.create_task(get(port, "/trace")) for _ in range(4)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = done
        assert refused.result()[0] == 503
        assert await get(port, "/health") == (200, "ok\n")
        release.set()
        answers = await asyncio.gather(*asked)
        assert sorted(code for code, _ in answers) == [200, 200, 200, 503]
        server.close()

    run(talk)


def _slow_page(
    release: asyncio.Event, begun: asyncio.Event | None = None
) -> Callable[[http.Request], Awaitable[http.HttpResponse]]:
    async def later() -> http.HttpResponse:
        if begun is not None:
            begun.set()
        await release.wait()
        return http.text_response(HTTPStatus.OK, "found")

    return lambda request: later()


def test_a_question_whose_place_is_taken_in_the_moment_it_comes_costs_no_place_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def talk() -> None:
        release = asyncio.Event()
        release.set()
        endpoint = http.Endpoint(_slow_page(release), most=1, most_slow=1)
        served: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append((reader, writer))

        holder = await asyncio.start_server(keep, "127.0.0.1", 0)
        port = holder.sockets[0].getsockname()[1]
        clients = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
        await until(lambda: len(served) == 2)
        first = asyncio.create_task(endpoint.serve(*served[0]))
        await asyncio.sleep(0)
        # The newcomer has its turn after the request has come, and before it is read.
        second = asyncio.create_task(endpoint.serve(*served[1]))
        served[0][0].feed_data(b"GET /trace HTTP/1.1\r\n\r\n")
        await first
        clients[1].write(b"GET /trace HTTP/1.1\r\n\r\n")
        await second
        for client in clients:
            client.close()
        holder.close()
        listening = await endpoint.listen(0)
        assert await get(listening.sockets[0].getsockname()[1], "/trace") == (200, "found\n")
        listening.close()

    run(talk)
    assert not caplog.records


def test_a_client_that_does_not_wait_for_its_answer_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def talk() -> None:
        release, begun = asyncio.Event(), asyncio.Event()
        done: list[None] = []
        endpoint = http.Endpoint(_slow_page(release, begun), most=1, most_slow=1)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await endpoint.serve(reader, writer)
            done.append(None)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /trace HTTP/1.1\r\n\r\n")
        await begun.wait()
        writer.transport.abort()
        await asyncio.sleep(0.05)
        release.set()
        await until(lambda: bool(done))
        server.close()

    # The loop that brokers take where it is installed: it raises when something is written to a closed connection.
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())
    assert not caplog.records


def test_the_endpoint_listens_on_the_loopback_address_whatever_the_host(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, host="0.0.0.0") as broker:
            listening = broker.ports.sockets("admin")
            assert [each.getsockname()[0] for each in listening] == ["127.0.0.1"]
            assert all(each.family == socket.AF_INET for each in listening)

    run(talk)


def test_a_broker_that_stops_says_it_is_not_ready(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            client = await Client.connect(broker.port)
            stopping = asyncio.create_task(broker.stop())
            await until(lambda: not broker.is_ready)
            assert await get(broker.admin_port, "/ready") == (503, "not ready\n")
            assert (await client.frame()).command == "ERROR"
            await client.close()
            await stopping

    run(talk)


def test_a_defect_behind_a_page_is_told_as_one(tmp_path: Path) -> None:
    def page(request: http.Request) -> http.HttpResponse:
        raise RuntimeError("a defect")

    async def talk() -> None:
        server = await http.Endpoint(page, 1).listen(0)
        code, body = await get(server.sockets[0].getsockname()[1], "/health")
        assert (code, body.partition(";")[0]) == (500, "internal error")
        server.close()

    run(talk)
