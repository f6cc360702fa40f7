"""Every recorder that the settings may name can be made."""

from __future__ import annotations

from typing import get_args

import pytest

from postroad.config import BrokerConfig, RecorderName, TrackingConfig
from postroad.recording.recorders import RECORDERS, make_recorder


def test_every_recorder_that_the_settings_may_name_has_a_row() -> None:
    assert tuple(RECORDERS) == get_args(RecorderName)


@pytest.mark.parametrize("name", get_args(RecorderName))
def test_the_settings_get_the_recorder_they_name(name: RecorderName) -> None:
    recorder = make_recorder(BrokerConfig(tracking=TrackingConfig(recorder=name)), 0)
    assert type(recorder).__name__ == ("NoneType" if name == "none" else f"{name.capitalize()}Recorder")
