"""Transport encryption of MySQL connections: what a mode means, and where a password may go.

PyMySQL makes a context per connection and loads the system's certificates into it, also where it then checks none:
37 ms of CPU each, measured on Debian 12, where a whole connection takes 3 ms.

A server may ask for the password itself instead of a proof that the client knows it: ``mysql_clear_password``, and
the full authentication of ``caching_sha2_password`` and ``sha256_password``, over TLS or encrypted with a key that the
same server has sent. Whoever answers in the server's place gets it then, so it is sent over a verified channel only:
TLS with a certificate that was checked, or a connection that does not leave this machine.
"""

from __future__ import annotations

import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pymysql
from pymysql.constants import CR

from migverify.errors import ConfigError
from migverify.model import Tls, is_loopback

if TYPE_CHECKING:
    _Connection: TypeAlias = pymysql.connections.Connection[Any]  # generic to the type checker only
else:
    _Connection = pymysql.connections.Connection

_CLEAR_PLUGINS = frozenset({b"mysql_clear_password", b"dialog"})
_KEY_REQUESTS = frozenset({b"\x01", b"\x02"})
"""sha256_password and caching_sha2_password ask the server for the key that the password will be encrypted with."""


class CleartextRefusedError(pymysql.err.OperationalError):
    """The server requested the password itself where it must not be sent; nothing of it was sent."""


class Connection(_Connection):
    """A connection that encrypts with a shared context where no certificate is checked, and keeps the password.

    Parameters
    ----------
    allow_cleartext_password
        Send the password itself wherever the server asks for it.
    """

    def __init__(self, *arguments: Any, allow_cleartext_password: bool = False, **options: Any) -> None:
        self._allows_cleartext = allow_cleartext_password
        self._authenticating = False
        super().__init__(*arguments, **options)

    def _create_ssl_ctx(self, sslp: dict[str, Any] | ssl.SSLContext) -> ssl.SSLContext:
        if sslp == {}:
            return unverified()
        made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return made

    def _request_authentication(self) -> None:
        plugin = str(self._auth_plugin_name)  # type: ignore[attr-defined]
        if plugin == "sha256_password" and self.password and not self._will_verify():
            self._refuse(plugin)  # its first answer over TLS is the password already
        self._authenticating = True
        try:
            super()._request_authentication()  # type: ignore[misc]
        finally:
            self._authenticating = False

    def _process_auth(self, plugin_name: bytes, *rest: Any) -> Any:
        if plugin_name in _CLEAR_PLUGINS and not self._allows_cleartext:
            self._refuse(plugin_name.decode())
        return super()._process_auth(plugin_name, *rest)  # type: ignore[misc]

    def write_packet(self, payload: bytes) -> None:
        """Send a packet, unless it gives the password away; every way of authentication comes through here."""
        if self._authenticating and self.password and not self._is_verified():
            secret = self.password if isinstance(self.password, bytes) else str(self.password).encode("latin1")
            if bytes(payload) == secret + b"\0" or bytes(payload) in _KEY_REQUESTS:
                self._refuse("full authentication of caching_sha2_password")
        super().write_packet(payload)

    def _will_verify(self) -> bool:
        return self._is_verified() or bool(self.ssl and self.ctx.verify_mode is ssl.CERT_REQUIRED)  # type: ignore[attr-defined]

    def _is_verified(self) -> bool:
        sock: socket.socket = self._sock  # type: ignore[attr-defined]
        if self._allows_cleartext or sock.family == socket.AF_UNIX:
            return True
        if isinstance(sock, ssl.SSLSocket) and sock.context.verify_mode is ssl.CERT_REQUIRED:
            return True
        return is_loopback(str(sock.getpeername()[0]))

    def _refuse(self, how: str) -> None:
        raise CleartextRefusedError(
            CR.CR_AUTH_PLUGIN_ERR, f"the server asks for the password itself ({how}), and it was not sent"
        )


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
    ConfigError
        a certificate file is not there or cannot be used.
    """
    allowed = {"allow_cleartext_password": True} if tls.allow_cleartext_password else {}
    if tls.mode == "disabled":
        return {"ssl_disabled": True, **allowed}
    if tls.mode == "preferred":
        return allowed
    if tls.mode == "required" and not tls.cert:
        return {"ssl": unverified(), **allowed}
    if tls.ca is None and tls.cert is None:
        return {"ssl": _of_the_system(tls.mode), **allowed}
    return {"ssl": _context(tls.mode, tls.ca, tls.cert, tls.key), **allowed}


@lru_cache(maxsize=4)  # files that are named are read each time: they may be replaced meanwhile
def _of_the_system(mode: str) -> ssl.SSLContext:
    return _context(mode, None, None, None)


def _context(mode: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("tls.ca", ca, error) from error
    # Authorities of many companies lack what RFC 5280 demands of them; MySQL's own clients take them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify-identity"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    if cert:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise _unusable("tls.cert and tls.key", f"{cert} and {key}" if key else cert, error) from error
    return context


def _unusable(option: str, path: str | None, error: OSError) -> ConfigError:
    why = error.strerror if not isinstance(error, ssl.SSLError) and error.strerror else str(error)
    return ConfigError(f"{option}: {path}: {why}", hint="Name PEM files that this process can read.")


def remedy(error: BaseException) -> str | None:
    """Return what to do about a connection that failed for its encryption, None where it failed for something else."""
    if isinstance(error, CleartextRefusedError):
        return (
            "Name the authority that signed the server's certificate: tls.ca, with tls.mode verify-identity."
            " tls.allow_cleartext_password: true sends the password all the same."
        )
    if isinstance(error, pymysql.err.OperationalError) and error.args[:1] == (CR.CR_SSL_CONNECTION_ERROR,):
        return (
            "The server offers no TLS: turn it on there; on a network you trust, tls.mode: preferred or disabled"
            " connects in clear."
        )
    cause = getattr(error, "original_exception", None) or error.__cause__ or error
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError) and "match" in cause.verify_message:
        return "Connect by a name that is in the certificate, or set tls.mode: verify-ca, which does not check names."
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            "Set tls.ca to the PEM file of the authority that signed the server's certificate (for RDS and Aurora the"
            " provider's bundle). tls.mode: required encrypts without checking who answers."
        )
    return "Check tls.mode, tls.ca, tls.cert and tls.key, and which TLS versions the server allows (tls_version)."
