"""Options that would change nothing beside others are refused, with what to do; and what a variable may say instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.topology import Plan, line
from tests.cli.programs import here
from tests.documents.commands_reference import commands

if TYPE_CHECKING:
    from pathlib import Path

TRAIL = ("--trail", "here", "--out", "there")
# Nothing listens there: a command that is not refused before says that it cannot connect.
NOWHERE = ("--server", "stomp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("subscribe", "/queue/q", "--durable", "d"), "leave --durable out"),
        (("subscribe", "/queue/q", "--overflow", "spool"), "--overflow does not apply to a queue"),
        (("subscribe", "a", "--durable", "d", "--overflow", "spool"), "--overflow does not apply to --durable"),
        (("subscribe", "a", "--prefetch", "5"), "add --ack client-individual"),
        (("subscribe", "/queue/q", "--ack", "auto", "--prefetch", "5"), "add --ack client-individual"),
        (("subscribe", "a", "--passcode", "p"), "give --login"),
        (("publish", "a", "b", "--stdin-lines"), "leave out BODY and --count"),
        (("publish", "a", "--stdin-lines", "--count", "2"), "leave out BODY and --count"),
        (("publish", "a", *NOWHERE, "--directory", "http://127.0.0.1:1"), "give one of them"),
        (("publish", "a", *NOWHERE, "--ca", "ca.pem"), "ca.pem"),
        (("trace", "1", "--otlp", "-", "--json"), "give one of them"),
        (("trace", "1", "--network", "n.toml", "--trail", "t"), "not both"),
        (("doctor", "--admin-token-file", "t"), "name it with --network"),
        (("doctor", "--admin-ca", "t"), "name it with --network"),
        (("broker", "--join-seconds", "5"), "these settings have no [network]"),
        (("network", "plan", "ring", "--fan-out", "2"), "--fan-out is for a tree"),
        (("network", "plan", "tree", "--seed", "2"), "--seed is for a power-law or a waxman"),
        (("network", "plan", "cluster", "--links-each", "3"), "--links-each is for a power-law or a waxman"),
        (("network", "plan", "ring", "--force"), "--force overwrites the file of --out"),
        (("network", "plan", "ring", "--tls", "--no-keys", "--out", "p"), "leave --no-keys out"),
        (("pipeline", "compact", *TRAIL, "--keep-days", "1", "--sample", "5"), "leave out --sample"),
        (("pipeline", "compact", *TRAIL, "--keep-days", "1", "--erase", "1/1"), "one after the other"),
        (("pipeline", "follow", *TRAIL, "--once", "--seconds", "5"), "leave out --seconds"),
        (("pipeline", "run", "audit", *TRAIL, "--ids", "pyproject.toml"), "leave --ids out"),
        (("pipeline", "run", "publish", *TRAIL, "--since", "2026-01-01"), "leave out --since and --until"),
        (("capacity", "plan", "--growth", "2"), "give --from-trail"),
        (("lab", "report", "--scale", "0.1"), "give --all"),
        (("lab", "report", "--seed", "2"), "give --all"),
        (("lab", "workload", "w.toml", "--bandwidth", "5000"), "give --plan"),
        (("lab", "workload", "w.toml", "--seed", "2"), "give --plan"),
        (("lab", "workload", "w.toml", "--costs", "c.json"), "give --plan"),
    ],
)
def test_option_that_would_be_ignored_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    refused = here(monkeypatch, *words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("postroad: ")
    assert told in refused.err


def test_costs_of_simulated_brokers_are_refused_for_live_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"costs": {"batch": 1e-6}}')
    refused = here(
        monkeypatch, "lab", "run", "tracking-latency", "--live", "--costs", str(costs), "--out", str(tmp_path)
    )
    assert (refused.code, "--costs is for simulated brokers" in refused.err) == (2, True)


@pytest.mark.parametrize("option", ["--persist=5", "--journal", "--alias=x", "--ship=s3://b/t"])
def test_network_without_a_record_refuses_options_of_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(Plan.of(line(2), "n").to_toml())
    refused = here(monkeypatch, "network", "up", str(plan), "--recorder", "none", option)
    assert refused.code == 2
    assert f"--recorder none keeps no record: leave out {option.split('=')[0]}" in refused.err


@pytest.mark.parametrize("command", ["status", "reload", "stop"])
def test_two_data_directories_of_one_network_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    refused = here(monkeypatch, "network", command, str(tmp_path), "--data", "other")
    assert (refused.code, "give one of them" in refused.err) == (2, True)


def test_what_the_command_says_comes_before_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROAD_DIRECTORY", "http://127.0.0.1:2")
    assert "directory http://127.0.0.1:2" in here(monkeypatch, "publish", "a").err
    assert "stomp://127.0.0.1:1: cannot connect" in here(monkeypatch, "publish", "a", *NOWHERE).err
    monkeypatch.setenv("POSTROAD_SERVER", "stomp://127.0.0.1:3")
    assert "directory http://127.0.0.1:1" in here(monkeypatch, "publish", "a", "--directory", "http://127.0.0.1:1").err


def test_wrong_number_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "broker", "--port", "99999").err
    assert told == "postroad: --port 99999: this has to be at most 65,535; see `postroad broker --help`\n"


def test_variable_names_the_authority_where_there_is_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROAD_CA", "missing.pem")
    assert "missing.pem" in here(monkeypatch, "publish", "a", "--server", "stomps://127.0.0.1:1").err
    assert "missing.pem" not in here(monkeypatch, "publish", "a", *NOWHERE).err


def test_variable_names_the_broker_that_top_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROAD_ADMIN", "127.0.0.1:1")
    assert "127.0.0.1:1: no broker answers" in here(monkeypatch, "top", "--once").err


# What the brokers of a new network will ask for, not what they ask for now.
WITHOUT_VARIABLE = {("network", "up", "--admin-token-file")}


def test_options_of_one_name_have_the_same_variable_in_every_command() -> None:
    variables: dict[str, set[str | None]] = {}
    for words, command in commands():
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and (*words, option) not in WITHOUT_VARIABLE:
                    variables.setdefault(option, set()).add(parameter.envvar)
    named = {option: found for option, found in variables.items() if found != {None}}
    assert {option: found for option, found in named.items() if len(found) > 1} == {
        "--network": {None, "POSTROAD_ADMIN"}
    }
    assert {"--server", "--directory", "--login", "--passcode", "--ca", "--admin", "--admin-ca"} <= named.keys()
