"""Endpoint URLs and store URLs: taken apart by hand, because messages must never show a piece of a password.

A library parser meets ``mysql://app:pa/ss@db`` and complains about the port ``pa``. Here nothing of the text
is ever part of a message, and anything that could be a password is refused as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

DEFAULT_PORTS = {"mysql": 3306, "tidb": 4000}
_SECRET_PARAMETERS = frozenset({"password", "passwd", "pwd", "pass", "sslpassword", "token", "secret"})


@dataclass(frozen=True, slots=True)
class Address:
    """Who connects where."""

    host: str
    port: int
    user: str


@cache
def parse_endpoint_url(text: str) -> Address:
    """Take ``mysql://user@host:3306`` or ``tidb://user@host:4000`` apart; the parts are percent-decoded.

    Raises
    ------
    ValueError
        with one sentence that says what is wrong and shows nothing of the URL.
    """
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in DEFAULT_PORTS:
        raise ValueError("the URL starts with mysql:// or tidb://, for example mysql://user@host:3306")
    user, at, place = rest.rpartition("@")
    if ":" in user:
        raise ValueError("a password does not belong in the URL; name a variable with password_env instead")
    if "@" in user or "/" in user:
        raise ValueError("write @ in a user name as %40 and / as %2F")
    if not at or not user:
        raise ValueError("the URL names no user, for example mysql://user@host:3306")
    place = place.removesuffix("/")
    if any(mark in place for mark in "/?#"):
        raise ValueError("the URL ends after the port: databases go into `tables`, TLS into `tls`")
    host, port = _host_and_port(place)
    return Address(_decoded(host), port or DEFAULT_PORTS[scheme], _decoded(user))


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("what is percent-encoded in the URL is not UTF-8") from None


def _host_and_port(place: str) -> tuple[str, int | None]:
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("the IPv6 address lacks its closing bracket")
        port = rest[1:]
    else:
        host, _, port = place.partition(":")
    if not host:
        raise ValueError("the URL names no host, for example mysql://user@host:3306")
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= 65535:
        raise ValueError("the port is not a number from 1 to 65535; an IPv6 address goes in brackets")
    return host, int(port)


def check_store_url(text: str, instead: str = "name a variable with store_password_env instead") -> str:
    """Return a SQLAlchemy URL that holds no password; ``instead`` says where the password belongs.

    Raises
    ------
    ValueError
        it is no URL, or holds a password; shows nothing of the URL.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme.replace("+", "").replace("_", "").isalnum():
        raise ValueError("the store is a SQLAlchemy URL, for example sqlite:///migverify.db")
    if scheme.split("+")[0].lower() == "sqlite":
        if not rest.startswith("/"):
            raise ValueError("an SQLite URL has three slashes: sqlite:///migverify.db, or four for an absolute path")
        return text
    user, _, _ = rest.rpartition("@")
    _, _, query = rest.partition("?")
    names = {part.partition("=")[0].lower() for part in query.split("&")}
    if ":" in user or names & _SECRET_PARAMETERS:
        raise ValueError(f"a password does not belong in the URL; {instead}")
    return text


def store_host(url: str) -> str:
    """Return the host of a store's URL; ``localhost`` for a file and for a URL without one."""
    scheme, _, rest = url.partition("://")
    if scheme.split("+")[0].lower() == "sqlite":
        return "localhost"
    place = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return (_host_and_port(place)[0] if place else "") or "localhost"


def check_http_url(text: str) -> None:
    """Refuse what is no plain ``http://host:port/path``: with a user, a query or a fragment it may hold a secret.

    Raises
    ------
    ValueError
        with one sentence that shows nothing of the URL.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise ValueError("the URL starts with http:// or https://, for example http://prometheus:9090")
    if any(mark in rest for mark in "@?#"):
        raise ValueError("the URL holds host, port and path only; name a variable with password_env or token_env")
    _host_and_port(rest.partition("/")[0])
