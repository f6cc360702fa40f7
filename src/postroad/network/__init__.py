"""The network: brokers as processes that are started, watched, found again and stopped (`docs/network.md`)."""

from __future__ import annotations

from postroad.network.admin_access import admin_access
from postroad.network.credentials import credentials_of, make_credentials
from postroad.network.directory import Directory
from postroad.network.errors import NetworkError
from postroad.network.lookup import Stopped, find, look_once, reload_users, start_detached, stop_network
from postroad.network.rolling_restart import follow_restart
from postroad.network.run import DIRECTORY_PORT, Listener, NetworkRun, RunOptions
from postroad.network.state import BrokerEntry, NetworkState, Place, RestartProgress, place_of
from postroad.network.watch import BrokerView, Condition

__all__ = [
    "DIRECTORY_PORT",
    "BrokerEntry",
    "BrokerView",
    "Condition",
    "Directory",
    "Listener",
    "NetworkError",
    "NetworkRun",
    "NetworkState",
    "Place",
    "RestartProgress",
    "RunOptions",
    "Stopped",
    "admin_access",
    "credentials_of",
    "find",
    "follow_restart",
    "look_once",
    "make_credentials",
    "place_of",
    "reload_users",
    "start_detached",
    "stop_network",
]
