"""Keys and certificates of a network's brokers, made beside its plan."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from postroad.config import Credentials
from postroad.network.errors import NetworkError
from postroad.security import Authority, KeyFault, new_key, public_key

if TYPE_CHECKING:
    from postroad.topology import Plan

__all__ = ["credentials_of", "make_credentials"]


def credentials_of(plan: Path) -> Path:
    """The directory of the private keys of a plan: beside `plan.toml` it is `plan.keys`."""
    return plan.with_suffix(".keys")


def make_credentials(plan: Plan, folder: Path, *, tls: bool) -> Plan:
    """Make keys and certificates for all brokers of a plan; existing keys are kept, certificates are replaced.

    Only the owner can read the directory. The authority's key is needed to make certificates, and no broker needs it:
    keep it elsewhere.

    Returns:
        the plan with the public keys.

    Raises:
        NetworkError: the library is missing, or the directory cannot be written.
    """
    if find_spec("cryptography") is None:
        raise NetworkError(
            "keys need the library cryptography, which is not installed: pip install 'postroad[security]'"
        )
    names = Credentials(str(folder))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        brokers = tuple(
            msgspec.structs.replace(one, key=public_key(_kept(Path(names.key(one.number))))) for one in plan.brokers
        )
        if tls:
            authority = _authority(names, plan.name)
            for one in plan.brokers:
                made, files = authority.issue(plan.name, one.number, one.host), names.tls(one.number)
                _write(Path(files.certificate), made.certificate)
                _write(Path(files.key), made.key)
    except OSError as error:
        raise NetworkError(f"{folder}: keys cannot be written ({error.strerror})") from None
    except KeyFault as error:
        raise NetworkError(f"{folder}: {error}") from None
    return msgspec.structs.replace(plan, brokers=brokers, tls=plan.tls or tls).checked()


def _kept(path: Path) -> bytes:
    """The private key of a broker; a new one if there is none."""
    if not path.exists():
        _write(path, new_key())
    return path.read_bytes()


def _authority(names: Credentials, network: str) -> Authority:
    certificate, key = Path(names.authority), Path(names.authority_key)
    if certificate.exists() and key.exists():
        return Authority(certificate.read_bytes(), key.read_bytes())
    made = Authority.new(network)
    _write(certificate, made.certificate)
    _write(key, made.key)
    return made


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
