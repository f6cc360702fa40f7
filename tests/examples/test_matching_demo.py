from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from examples import everyday
from examples import matching_demo as demo
from postroad.matching import SubscriptionIndex
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.lab.workloads import SubscriptionSpec

SMALL = ["--subscriptions", "4000", "--seconds", "0"]


def wants(wording: str, topic: str, attributes: dict[str, Any]) -> bool:
    """Whether a subscription, as the demo words it, wants a message."""
    pattern, selector = wording.split("  ", 1)
    condition = "" if selector == "(any message)" else selector
    return TopicPattern.parse(pattern).matches(topic) and Selector.parse(condition).matches(attributes)


def test_demo_reports_what_the_selectors_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([*SMALL, "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["demo"] == "matching"
    assert report["subscriptions"] == 4_000
    assert report["messages"] == demo.BATCH * demo.BATCHES
    assert report["matches_per_message"] > 0.1
    assert 0 < report["index_bytes"] < report["process_bytes"]
    assert {example["topic"].split(".")[0] for example in report["examples"]} == {"stocks", "buildings", "news"}
    for example in report["examples"]:
        assert 1 <= example["matches"] == len(example["wanted_by"]) <= demo.MOST_SHOWN
        assert all(wants(one, example["topic"], example["attributes"]) for one in example["wanted_by"])
    unwanted = report["unwanted"]
    everybody = [demo.wording(one) for _, one in zip(range(4_000), everyday.subscriptions(demo.SEED), strict=False)]
    assert not any(wants(one, unwanted["topic"], unwanted["attributes"]) for one in everybody)
    assert "subscribing: 4,000 of 4,000" in output.err


def test_demo_speaks_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(SMALL) == 0
    output = capsys.readouterr().out
    assert output.isascii()
    assert max(map(len, output.splitlines())) <= 120
    for part in ("messages per second", "matches per message", "bytes for each subscription", "wanted by nobody"):
        assert part in output


def test_demo_shows_the_same_examples_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    reports = []
    for _ in range(2):
        demo.main([*SMALL, "--json"])
        reports.append(json.loads(capsys.readouterr().out))
    first, second = reports
    for part in ("examples", "unwanted", "matches_per_message", "index_bytes"):
        assert first[part] == second[part]


def test_demo_with_one_subscription_has_nothing_to_boast_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--subscriptions", "1", "--seconds", "0"]) == 0
    assert "wanted by nobody" in capsys.readouterr().out


def test_demo_leaves_quietly_when_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(SubscriptionIndex, "add", interrupted)
    assert demo.main(SMALL) == demo.INTERRUPTED
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "\nstopped\n")


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--subscriptions", "0"], "--subscriptions takes 1 to 2,000,000, not 0"),
        (["--subscriptions", "2000001"], "--subscriptions takes 1 to 2,000,000"),
        (["--seconds", "-1"], "--seconds takes 0 to 3600"),
        (["--seconds", "nan"], "--seconds takes 0 to 3600"),
    ],
)
def test_demo_refuses_arguments_out_of_range(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.main(arguments)
    assert ended.value.code == 2
    assert advice in capsys.readouterr().err


def test_progress_rewrites_one_line_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        progress = demo.DemoProgress("work", 8)
        for count in range(1, 9):
            progress.reach(count)
        return capsys.readouterr().err

    assert told() == "work: 2 of 8\nwork: 4 of 8\nwork: 6 of 8\nwork: 8 of 8\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert "\r" not in told()
    monkeypatch.setenv("TERM", "xterm")
    assert told() == "".join(f"\rwork: {count} of 8" for count in range(1, 9)) + "\n"


def test_everyday_subscriptions_and_messages_are_the_same_for_the_same_seed() -> None:
    def taken(stream: Iterator[Any]) -> list[Any]:
        return [one for _, one in zip(range(200), stream, strict=False)]

    first: list[SubscriptionSpec] = taken(everyday.subscriptions(1))
    assert first == taken(everyday.subscriptions(1)) != taken(everyday.subscriptions(2))
    assert taken(everyday.messages(1)) == taken(everyday.messages(1)) != taken(everyday.messages(2))
    assert {one.topic.split(".")[0] for one in taken(everyday.messages(1))} == {"stocks", "buildings", "news", "system"}
