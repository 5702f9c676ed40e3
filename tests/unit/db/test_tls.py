"""Contexts of encryption: shared where nothing is checked, strict where it is asked for."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress

import pymysql
import pytest
from pymysql.constants import CLIENT

from migverify.config.endpoints import TlsSettings
from migverify.db import tls
from migverify.errors import ConfigError
from migverify.model import Tls, default_tls_mode


def test_a_connection_that_checks_nothing_shares_one_context() -> None:
    connection = tls.Connection(defer_connect=True)
    assert connection.ctx is tls.unverified()
    assert connection.ctx.verify_mode is ssl.CERT_NONE
    # The name that is overridden is PyMySQL's own.
    assert callable(pymysql.connections.Connection._create_ssl_ctx)


def test_a_given_context_is_used() -> None:
    context = ssl.create_default_context()
    assert tls.Connection(defer_connect=True, ssl=context).ctx is context


def test_modes() -> None:
    assert tls.options(Tls("disabled")) == {"ssl_disabled": True}
    assert tls.options(Tls("preferred")) == {}
    assert tls.options(Tls("required"))["ssl"].verify_mode is ssl.CERT_NONE
    for mode, hostname in (("verify-ca", False), ("verify-identity", True)):
        context = tls.options(Tls(mode))["ssl"]
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, hostname)


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"tls.ca: /nowhere/ca.pem: No such file"):
        tls.options(Tls("verify-ca", ca="/nowhere/ca.pem"))


class Impostor(threading.Thread):
    """Answers in a server's place: asks for the password by a plugin, and keeps all that it gets."""

    def __init__(self, plugin: bytes, *asks: bytes) -> None:
        super().__init__(daemon=True)
        self.plugin, self.asks, self.got = plugin, asks, b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.start()

    def run(self) -> None:
        connection = self.socket.accept()[0]
        connection.settimeout(10)
        capabilities = 0xFFFFFFFF & ~CLIENT.SSL
        greeting = b"\x0a8.4.0\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<H", capabilities & 0xFFFF)
        greeting += b"\xff\2\0" + struct.pack("<H", capabilities >> 16) + b"\x15" + b"\0" * 10 + b"123456789012\0"
        self._send(connection, 0, greeting + self.plugin + b"\0")
        number = 2
        with suppress(OSError):
            for ask in (*self.asks, b"\0\0\0\2\0\0\0"):
                self.got += connection.recv(65536)
                self._send(connection, number, ask)
                number += 2
            self.got += connection.recv(65536)
        connection.close()

    @staticmethod
    def _send(connection: socket.socket, number: int, payload: bytes) -> None:
        connection.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)


CLEAR = b"\xfemysql_clear_password\0"
DIALOG = b"\xfedialog\0\x04Password: "
FULL = b"\x01\x04"
KEY = b"\x01-----BEGIN PUBLIC KEY-----\nnone\n-----END PUBLIC KEY-----\n"


def attempt(impostor: Impostor, **options: object) -> BaseException | None:
    try:
        connection = tls.Connection(host="127.0.0.1", port=impostor.socket.getsockname()[1], user="app",
                                    password=b"hunter22", connect_timeout=5, read_timeout=5, **options)  # fmt: skip
    except (pymysql.MySQLError, ValueError) as error:
        return error
    connection._force_close()
    return None


@pytest.mark.attack(
    "connections",
    "whoever answers in the server's place asks for the password itself",
    "refused; nothing of it is sent",
)
@pytest.mark.parametrize(
    ("plugin", "asks"),
    [
        (b"caching_sha2_password", [FULL, KEY]),
        (b"caching_sha2_password", [CLEAR]),
        (b"mysql_native_password", [CLEAR]),
        (b"mysql_native_password", [DIALOG]),
        (b"sha256_password", [KEY]),
        (b"mysql_native_password", [b"\xfesha256_password\0" + b"1" * 20 + b"\0", KEY]),
    ],
)
def test_a_password_is_not_given_to_whoever_answers(
    plugin: bytes, asks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "is_loopback", lambda _host: False)
    impostor = Impostor(plugin, *asks)
    error = attempt(impostor)
    assert isinstance(error, tls.CleartextRefusedError), error
    impostor.join(10)
    assert b"hunter22" not in impostor.got
    assert b"\x01\x00\x00\x03\x02" not in impostor.got  # the request for a key to encrypt it with
    assert "tls.ca" in (tls.remedy(error) or "")
    assert "hunter22" not in str(error)


def test_it_is_given_where_the_configuration_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "is_loopback", lambda _host: False)
    impostor = Impostor(b"mysql_native_password", CLEAR)
    attempt(impostor, **tls.options(Tls("disabled", allow_cleartext_password=True)))
    impostor.join(10)
    assert b"hunter22\0" in impostor.got


def test_full_authentication_is_allowed_on_this_machine_and_clear_passwords_are_not() -> None:
    impostor = Impostor(b"caching_sha2_password", FULL, KEY)
    assert isinstance(attempt(impostor), ValueError)  # it asked for the key, which is none
    impostor = Impostor(b"mysql_native_password", CLEAR)
    assert isinstance(attempt(impostor), tls.CleartextRefusedError)


@pytest.mark.attack(
    "connections", "a server that offers no TLS where a verified certificate is the default", "refused with the remedy"
)
def test_a_server_without_tls_is_refused_where_it_has_to_be_verified() -> None:
    error = attempt(Impostor(b"mysql_native_password"), **tls.options(Tls("verify-identity")))
    assert error is not None
    assert "offers no TLS" in (tls.remedy(error) or "")


@pytest.mark.parametrize(
    ("host", "mode"),
    [
        ("localhost", "preferred"), ("127.0.0.1", "preferred"), ("127.8.9.1", "preferred"), ("::1", "preferred"),
        ("db1", "verify-identity"), ("10.0.0.1", "verify-identity"), ("localhost.example", "verify-identity"),
        ("127.0.0.1.nip.example", "verify-identity"), ("0.0.0.0", "verify-identity"),  # noqa: S104
    ],
)  # fmt: skip
def test_the_default_mode_verifies_every_other_machine(host: str, mode: str) -> None:
    assert default_tls_mode(host, verifies=False) == mode
    assert TlsSettings().for_host(host) == Tls(mode)
    assert TlsSettings(ca="ca.pem").for_host(host).mode == "verify-identity"
    assert TlsSettings(mode="required").for_host(host).mode == "required"
