"""Token and authority for requests to the admin endpoints of a running network, from its state file."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.client import AdminAccess
from postroad.network.errors import NetworkError

if TYPE_CHECKING:
    from postroad.network.state import NetworkState

__all__ = ["admin_access"]


def admin_access(state: NetworkState) -> AdminAccess:
    """The token, if this user may read it, and the authority of the certificates.

    Raises:
        NetworkError: the certificate of the authority cannot be read.
    """
    token, tls = "", None
    if state.admin_token_file:
        # Without a token brokers show less, or refuse and say why.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            token = Path(state.admin_token_file).read_text("ascii").strip()
    if state.admin_ca:
        try:
            tls = ssl.create_default_context(cafile=state.admin_ca)
        except (OSError, ValueError) as error:
            raise NetworkError(f"{state.admin_ca}: cannot be read ({error}); it is a PEM file") from None
    return AdminAccess(token, tls)
