"""The definitions of a pair as one hash: what a drill was run on, and what a live run is about to be run on."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["fingerprint_of", "schema_fingerprint"]


def fingerprint_of(sides: dict[str, str]) -> str:
    """Return one hash of the fingerprints of all endpoints, by their names."""
    text = "\n".join(f"{endpoint} {fingerprint}" for endpoint, fingerprint in sorted(sides.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def schema_fingerprint(config: Path) -> str:
    """Read the definitions of both sides as they are now, and return their hash.

    Raises
    ------
    ConfigError
        the configuration or a secret is wrong.
    EndpointError, ReadError
        a server cannot be asked.
    """
    from migverify.config import load_config
    from migverify.guards.schema_read import read_snapshot
    from migverify.guards.scope import Scope

    # The definitions of now, not those of a snapshot that a verification reads at.
    found = read_snapshot(Scope.of(load_config(config).at_snapshot(None)))
    return fingerprint_of({side.endpoint: side.fingerprint for side in found.sides})
