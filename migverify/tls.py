"""Transport encryption of MySQL connections: what a mode means, and contexts that are made once.

PyMySQL makes a context per connection and loads the system's certificates into it, also where it then checks none:
37 ms of CPU each, measured on Debian 12, where a whole connection takes 3 ms.
"""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pymysql

from migverify.model import Tls

if TYPE_CHECKING:
    _Connection: TypeAlias = pymysql.connections.Connection[Any]  # generic to the type checker only
else:
    _Connection = pymysql.connections.Connection


class Connection(_Connection):
    """A connection that encrypts with a shared context when the server offers it and no certificate is checked."""

    def _create_ssl_ctx(self, sslp: dict[str, Any] | ssl.SSLContext) -> ssl.SSLContext:
        if sslp == {}:
            return unverified()
        made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return made


@lru_cache(maxsize=1)
def unverified() -> ssl.SSLContext:
    """Return the context of connections that encrypt and check no certificate; one for all of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def options(tls: Tls) -> dict[str, Any]:
    """Return the arguments of ``Connection`` for the encryption of an endpoint.

    Raises
    ------
    OSError, ssl.SSLError
        a certificate file is not there or cannot be used.
    """
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    if tls.mode == "required" and not tls.cert:
        return {"ssl": unverified()}
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = tls.mode == "verify-identity"
    context.verify_mode = ssl.CERT_NONE if tls.mode == "required" else ssl.CERT_REQUIRED
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return {"ssl": context}
