"""Versions of servers, and which of them an entry speaks of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from migverify.model import Flavor

Version = tuple[int, ...]

_TIDB = re.compile(r"TiDB-v?(\d+(?:\.\d+){0,2})", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+(?:\.\d+){1,2})")


def version_of(text: str, flavor: Flavor | None = None) -> Version | None:
    """Return the version in a server's words (``8.0.11-TiDB-v8.5.0`` is 8.5.0 of TiDB), None where there is none."""
    found = _TIDB.search(text) if flavor is Flavor.TIDB else None
    found = found or (_NUMBER.search(text) if flavor is not Flavor.TIDB else None)
    if found is None and flavor is None and re.fullmatch(r"\d+", text):
        return (int(text),)
    return tuple(int(part) for part in found[1].split(".")) if found else None


@dataclass(frozen=True, slots=True)
class KnownServer:
    """What kind of server one side is."""

    flavor: Flavor
    version: Version | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Versions:
    """Both sides' servers."""

    source: KnownServer
    target: KnownServer


def server(text: str) -> KnownServer:
    """Return the server that calls itself so (``SELECT VERSION()`` or the handshake)."""
    lowered = text.lower()
    flavor = Flavor.TIDB if "tidb" in lowered else Flavor.MARIADB if "mariadb" in lowered else Flavor.MYSQL
    return KnownServer(flavor, version_of(text, flavor), text)
