"""The definitions of a pair as one hash: what a drill was run on, and what a live run is about to be run on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migverify.guards.schema_model import Snapshot

__all__ = ["definitions_now", "fingerprint_of", "schema_fingerprint"]


def fingerprint_of(sides: dict[str, str]) -> str:
    """Return one hash of the fingerprints of all endpoints, by their names."""
    text = "\n".join(f"{endpoint} {fingerprint}" for endpoint, fingerprint in sorted(sides.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def schema_fingerprint(config: Path) -> str:
    """Return the hash of the definitions of both sides as they are now; raises as ``definitions_now`` does."""
    return fingerprint_of(definitions_now(config).fingerprints())


def definitions_now(config: Path) -> Snapshot:
    """Read the definitions of both sides as they are now.

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
    return read_snapshot(Scope.of(load_config(config).at_snapshot(None)))
