"""The definitions of a pair as one hash: what a drill was run on, and what a live run is about to be run on."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["fingerprint_of", "schema_fingerprint"]


def fingerprint_of(sides: dict[str, str]) -> str:
    """Return one hash of the fingerprints of all endpoints, by their names."""
    told = "\n".join(f"{endpoint} {fingerprint}" for endpoint, fingerprint in sorted(sides.items()))
    return hashlib.sha256(told.encode()).hexdigest()


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
    from migverify.guards.schema_read import Scope, read_snapshot
    from migverify.secrets import resolve_password

    loaded = load_config(config)
    secrets = {e.name: resolve_password(e).reveal() for e in loaded.endpoints if e.password_env or e.password_command}
    # The definitions of now, not those of a snapshot that a verification reads at.
    found = read_snapshot(Scope(loaded.at_snapshot(None), secrets))
    return fingerprint_of({side.endpoint: side.fingerprint for side in found.sides})
