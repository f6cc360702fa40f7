"""SIGHUP: what can change while the broker runs does, what cannot is named, and a mistake changes nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.broker import Limits
from postroad.config import BrokerConfig, TlsConfig
from postroad.server.named_files import file_digests
from postroad.server.reload import RELOADED, fixed_changes, with_changes
from tests.server.papers import Papers
from tests.server.processes import BrokerProcess, forked_brokers, wait_until
from tests.server.scene import PATIENCE
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def events(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.stderr.splitlines() if line.startswith("{")]


def reloaded(broker: BrokerProcess, settings: Path, text: str) -> list[dict[str, Any]]:
    """Write settings, and tell the broker; what it logs about them."""
    settings.write_text(text)
    before = len(events(broker))
    os.kill(broker.pid, signal.SIGHUP)
    ends = ("settings reloaded", "settings not reloaded")
    wait_until(lambda: any(each["event"] in ends for each in events(broker)[before:]))
    return events(broker)[before:]


def shown_by(port: int, papers: Papers) -> bytes:
    """The certificate that a broker shows."""
    context = ssl.create_default_context(cafile=str(papers.ca))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=3 * PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def says(port: int, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=3 * PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:here\n\n\0")
        return client.recv(4096)


def test_a_hangup_changes_levels_limits_and_certificates_of_a_broker_that_runs(tmp_path: Path) -> None:
    papers = Papers(tmp_path / "papers")
    settings = tmp_path / "broker.toml"
    certificate = f"[tls]\ncertificate = '{papers.certificate}'\nkey = '{papers.key}'\n"
    begin = f"port = 0\nadmin_port = 0\ndata = '{tmp_path}'\n"
    settings.write_text(f"{begin}{certificate}")
    with forked_brokers() as brokers:
        broker = brokers.start(settings).wait_until_ready()
        first = shown_by(broker.port(), papers)
        # Another certificate in the same file, as when one is renewed.
        renewed = papers.authority.issue_cert("127.0.0.1")
        renewed.private_key_pem.write_to_path(papers.key)
        for number, blob in enumerate(renewed.cert_chain_pems):
            blob.write_to_path(papers.certificate, append=number > 0)
        told = reloaded(broker, settings, f"{begin}log_level = 'debug'\n{certificate}[limits]\nsessions = 1\n")
        (done,) = [each for each in told if each["event"] == "settings reloaded"]
        assert sorted(done["changed"]) == ["limits", "log_level", "tls.certificate", "tls.key"]
        assert shown_by(broker.port(), papers) != first
        assert broker.status()["limits"]["sessions"] == 1
        # What cannot change is named, and the rest counts.
        text = f"{begin}heart_beat_ms = 50\nnumber = 9\n{certificate}[tracking]\nkeep_days = 3\n"
        told = reloaded(broker, settings, text)
        assert {"settings reloaded", "settings need a restart"} <= {each["event"] for each in told}
        (named,) = [each["settings"] for each in told if each["event"] == "settings need a restart"]
        assert named == ["number", "tracking"]
        assert broker.status()["limits"]["sessions"] == Limits().sessions
        assert says(broker.port(), papers.client_context()).startswith(b"CONNECTED")
        # A mistake changes nothing.
        for wrong in ("prot = 1", f"{begin}users_file = '{tmp_path}/none'", f"{begin}[tls]\ncertificate='x'\nkey='y'"):
            told = reloaded(broker, settings, wrong)
            # Those who looked at certificates are gone by now, and may be logged meanwhile.
            (refused,) = [each for each in told if each["event"].startswith("settings")]
            assert (refused["event"], refused["level"]) == ("settings not reloaded", "error")
            assert refused["reason"]
        assert broker.status()["broker"] == 1


def test_files_with_other_contents_are_named_by_their_settings(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("certificate", "key", "ca", "token", "users")}
    for name, file in files.items():
        file.write_text(name)
    tls = {"certificate": str(files["certificate"]), "key": str(files["key"])}
    links = {"name": "n", "tls": {**tls, "ca": str(files["ca"])}}
    settings = {"tls": tls, "admin_tls": tls, "users_file": str(files["users"]), "network": links}
    config = msgspec.convert({**settings, "admin_token_file": str(files["token"])}, BrokerConfig)
    before = file_digests(config)
    assert (len(before), len(set(before.values()))) == (9, 5)
    named = {
        "ca": ["network.tls.ca"],
        "token": ["admin_token_file"],
        "users": ["users_file"],
        "key": ["tls.key", "admin_tls.key", "network.tls.key"],
    }
    for name, expected in named.items():
        files[name].write_text("renewed")
        after = file_digests(config)
        assert [setting for setting in after if after[setting] != before[setting]] == expected
        before = after
    files["ca"].unlink()
    assert file_digests(config)["network.tls.ca"] == b""


def test_every_setting_is_reloaded_or_needs_a_restart() -> None:
    """A setting that is added has to be put on one side or the other: what is not reloaded is named."""
    before = BrokerConfig()
    tls = TlsConfig(certificate="c", key="k")
    after = msgspec.structs.replace(before, number=2, log_level="debug", tls=tls, limits=Limits(publishers_kept=1))
    assert fixed_changes(before, after) == ["limits.publishers_kept", "number", "tls"]
    kept = with_changes(before, after)
    assert (kept.number, kept.log_level, kept.tls) == (1, "debug", None)
    assert kept.limits == before.limits
    other = msgspec.structs.replace(after, tls=TlsConfig(certificate="c2", key="k2"))
    assert fixed_changes(after, other) == []
    assert with_changes(after, other) == other
    assert set(RELOADED) <= set(BrokerConfig.__struct_fields__)


def test_the_document_says_what_a_reload_changes() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split("\n## Reload\n")[1].split("\n## ")[0]
    table = [line.split("|")[1].strip().strip("`") for line in section.splitlines() if line.startswith("| `")]
    assert sorted(table) == sorted(RELOADED)
