"""Reads what evidence rests on as it is now: servers, definitions, configuration and capture.

A run that may become evidence keeps it among its facts, and the decision compares it with what is there later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from migverify.config import Config
from migverify.config.digest import comparison_digest
from migverify.db.session import Session
from migverify.decision.model import Basis
from migverify.errors import MigverifyError, UsageError
from migverify.guards.schema_model import SideSchema
from migverify.guards.schema_read import read_snapshot, whole_of
from migverify.guards.scope import Scope
from migverify.workload.model import SUMMARY

KEY = "basis"
"""Among the facts of a run."""


def read_basis(
    config: Config, capture: Path | None = None, opened: Callable[[Session], None] = lambda _: None
) -> Basis:
    """Read the catalogs of all endpoints, and the capture's own summary; ``opened`` as for ``read_snapshot``.

    Raises
    ------
    EndpointError, ReadError
        a server cannot be asked, or hides tables.
    UsageError
        the folder holds no capture.
    """
    identity = "" if capture is None else capture_identity(capture)
    scope = Scope.of(config.at_snapshot(None))  # the definitions of now, not those of a snapshot
    sides = read_snapshot(scope, opened).sides
    return Basis(
        {side.endpoint: side.address for side in sides},
        {side.endpoint: f"{side.flavor} {side.version}" for side in sides},
        _schema(scope, sides, config.workload.clone_marker), configuration_digest(config), identity,
    )  # fmt: skip


def basis_facts(
    config: Config, capture: Path | None = None, opened: Callable[[Session], None] = lambda _: None
) -> tuple[dict[str, Any], str]:
    """Return what a run keeps of its basis, and why it keeps nothing where it cannot be read.

    A run goes on without it: it is only no evidence for a decision.
    """
    try:
        return {KEY: read_basis(config, capture, opened).as_json()}, ""
    except MigverifyError as error:
        return {}, f"this run is no evidence for a decision, as what it rests on could not be read: {error.message}"


def basis_of(facts: Mapping[str, Any]) -> Basis | None:
    """Return the basis among the facts of a run; None where there is none."""
    return Basis.from_json(facts.get(KEY))


def _schema(scope: Scope, sides: tuple[SideSchema, ...], marker: str | None) -> str:
    """Return one hash of the definitions, without the table by which a clone is known: the original has none."""
    whole = hashlib.sha256()
    for side in sorted(sides, key=lambda one: one.endpoint):
        tables = [table for table in side.tables if f"{table.table.ref.database}.{table.table.ref.table}" != marker]
        fingerprint = whole_of(tables, side.objects, scope.renamed(side.endpoint))
        whole.update(f"{side.endpoint} {fingerprint}\n".encode())
    return whole.hexdigest()


def configuration_digest(config: Config) -> str:
    """Return the hash of what a configuration says about what is compared and asked for."""
    workload = config.workload
    levels = {name: level.model_dump(mode="json") for name, level in workload.service_levels.items()}
    meaning = {"compared": comparison_digest(config), "levels": levels, "found_rows": workload.found_rows}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def capture_identity(capture: Path) -> str:
    """Return a hash of a capture's summary and the sizes of its files: another capture has another one.

    Raises UsageError: the folder holds no capture.
    """
    try:
        identity = hashlib.sha256((capture / SUMMARY).read_bytes())
        for path in sorted(capture.glob("statements-*.parquet")):
            identity.update(f"\n{path.name} {path.stat().st_size}".encode())
    except OSError as error:
        raise UsageError(
            f"{capture} holds no capture.", hint="Make one: migverify workload capture FILE --out DIR."
        ) from error
    return identity.hexdigest()
