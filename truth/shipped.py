"""Trails that are harmed in a store: their brokers shipped them to an S3 server on loopback, one for each process."""

from __future__ import annotations

import atexit
import http.client
import logging
import os
from typing import TYPE_CHECKING, Any

from postroad.lab.trails import Scale, write_trail
from postroad.trail import DAY_MS, manifest_brokers
from postroad.trail.locations import StoredPath, forget_stores, location, put_file, relative, remove_file
from postroad.trail.shipper import Shipper
from truth.facts import facts_of_generated
from truth.mutations import Patient
from truth.specimens import Specimen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from postroad.messages import MessageId
    from truth.facts import Fact

__all__ = ["StoredPatient", "close_store", "shipped_specimen", "store_folder", "use_credentials"]

BUCKET = "truth"
REGION = "us-east-1"
_servers: list[Any] = []


def use_credentials() -> None:
    """Have credentials, which the server believes whatever they are; workers of Spark inherit them from its start."""
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(key, "truth")
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def store_folder(name: str) -> StoredPath:
    """A folder of this process's own store, which is started when it is first needed."""
    if not _servers:
        from moto.server import ThreadedMotoServer

        use_credentials()
        # It would write a line for each request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        _servers.append(server)
        atexit.register(close_store)
        connection = http.client.HTTPConnection(*server.get_host_and_port(), timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        connection.getresponse().read()
        connection.close()
    host, port = _servers[0].get_host_and_port()
    place = location(f"s3://{BUCKET}/{name}?endpoint_override=http://{host}:{port}&region={REGION}")
    assert isinstance(place, StoredPath)
    return place


def close_store() -> None:
    """End the store, if it was started; what is in it is gone."""
    forget_stores()
    while _servers:
        _servers.pop().stop()


class StoredPatient(Patient):
    """A trail in a store that is harmed and healed there.

    Args:
        place: where it is.
        files: its files by path.
        donor: the files of another trail, of brokers with the same numbers.
        beside: a place on disk for what jobs make of it.
    """

    def __init__(self, place: StoredPath, files: Mapping[str, bytes], donor: Mapping[str, bytes], beside: Path) -> None:
        self._place = place
        super().__init__(beside, files, donor)
        self.root = place
        self.beside = beside

    def read(self, path: str) -> bytes:
        return (self._place / path).read_bytes()

    def below(self, folder: str, files: Iterable[str] | None = None) -> list[str]:
        if files is not None:
            return super().below(folder, files)
        base = self._place if folder == "." else self._place / folder
        return sorted(relative(one, self._place) for one in _objects(base))

    def remove_folder(self, folder: str) -> None:
        for path in self.below(folder):
            self.remove(path)

    def _set(self, path: str, data: bytes) -> None:
        put_file(self._place / path, memoryview(data))

    def _take(self, path: str) -> None:
        remove_file(self._place / path)

    def _clear(self) -> None:
        for one in _objects(self._place):
            remove_file(one)


def _objects(folder: StoredPath) -> Iterator[StoredPath]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _objects(one)
        else:
            yield one


def shipped_specimen(name: str, folder: Path, scale: Scale, *, dropped: bool) -> Specimen:
    """A trail that its brokers shipped.

    Args:
        name: of its kind.
        folder: for what stays on disk.
        scale: of the trail.
        dropped: brokers dropped their copies of messages, and it is asked where they wrote it; otherwise in the store.
    """
    found: list[dict[str, bytes]] = []
    facts: dict[MessageId, Fact] = {}
    for part, seed in (("made", scale.seed), ("other", scale.seed + 100)):
        root, place = folder / f"{name}.{part}", store_folder(f"{os.getpid()}-{name}.{part}")
        write_trail(root, Scale(**{**vars(scale), "seed": seed}))
        facts = facts or facts_of_generated(root)
        for broker in manifest_brokers(root):
            Shipper(root, broker, place, keep_local_ms=0 if dropped else None).ship(scale.end + DAY_MS)
        found.append({relative(one, place): one.read_bytes() for one in _objects(place)})
    own, other = found
    patient = StoredPatient(store_folder(f"{os.getpid()}-{name}.made"), own, other, folder / f"{name}.out")
    asked = folder / f"{name}.made" if dropped else None
    return Specimen(name, patient, facts, scale.recorder != "exact", aliased=scale.aliases, asked=asked)
