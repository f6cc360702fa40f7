"""Mistakes in settings name their section, what is wrong, and what could stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.config import ConfigError, read_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[tracking]\nrecorder = "exakt"',
            r"\[tracking\]: recorder is 'exakt', which is none of bloom, exact, log, none, sealed; "
            r"did you mean exact\?",
        ),
        ('log_level = "loud"', r"at the top: log_level is 'loud', which is none of debug, error, info, warning "),
        (
            "[limits]\nqueue_mesages = 4",
            r"\[limits\]: there is no setting queue_mesages; did you mean queue_messages\?; the settings there are "
            r"queue_messages, queue_bytes, ",
        ),
        (
            "prot = 1",
            r"at the top: there is no setting prot; did you mean port\?; the settings there are number, host, ",
        ),
        (
            '[network]\nstrategy = "dip"',
            r"\[network\]: strategy is 'dip', which is none of .*drp.*; did you mean drp\?",
        ),
        (
            "[[network.neighbours]]\nnumber = 2\nport = 1\ncosts = 3",
            r"\[network.neighbours\]: there is no setting costs; did you mean cost\?; the settings there are number, ",
        ),
        (
            '[[store.retain]]\ntopic = "/topic/orders.>"',
            r"\[store.retain\]: topic '/topic/orders.>': write it without /topic/",
        ),
        ('[[store.retain]]\ntopic = "orders..a"', r"\[store.retain\]: topic 'orders..a': "),
        ('port = "61613"', r"at the top: port: this is a text in quotes, and has to be a whole number "),
        ("port = 99999", r"at the top: port: this has to be at most 65,535 "),
        ("websocket_port = 1.5", r"websocket_port: this is a number, and has to be a whole number or left out "),
        ("connect_seconds = 0", r"at the top: connect_seconds: this has to be more than 0 "),
        ('group = ""', r"at the top: group: this may not be empty "),
        ("limits = 3", r"at the top: limits: this is a whole number, and has to be a section "),
        ('[tls]\ncertificate = "a.pem"', r"\[tls\]: key is missing "),
        ("[limits]\nsessions = -1", r"\[limits\]: sessions: this has to be 1 or more "),
    ],
)
def test_mistake_is_told_with_its_section_and_the_choices(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
