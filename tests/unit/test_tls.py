"""Contexts of encryption: shared where nothing is checked, strict where it is asked for."""

from __future__ import annotations

import ssl

import pymysql
import pytest

from migverify import tls
from migverify.model import Tls


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
    with pytest.raises(FileNotFoundError):
        tls.options(Tls("verify-ca", ca="/nowhere/ca.pem"))
