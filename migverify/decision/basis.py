"""Reads what evidence rests on as it is now: servers, definitions, configuration and capture.

A run that may become evidence keeps it among its facts, and the decision compares it with what is there later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from migverify.config import Config
from migverify.config.digest import HIDDEN, comparison_digest, comparison_meaning, is_secret_name
from migverify.db.session import Session
from migverify.decision.differences import LEVEL
from migverify.decision.model import BASIS, Basis
from migverify.errors import MigverifyError, UsageError
from migverify.guards.schema_model import SideSchema, TableSchema
from migverify.guards.schema_read import read_snapshot, whole_of
from migverify.guards.scope import Scope
from migverify.model import Flavor
from migverify.sql.fingerprint import column_form, digest, key_form
from migverify.workload.model import SUMMARY
from migverify.workload.replay.clone import identify

_BIRTH = "SELECT CREATE_TIME FROM information_schema.tables WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'tidb'"
_MOST_TABLES, _MOST_PARTS = 2_000, 5_000
"""Of more no single hashes are kept: each run keeps them."""
_SHORT = 12
_BLOCKS, _BLOCK = 64, 1 << 17
"""At most 8 MiB are read of a file of a capture."""


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
    identities: dict[str, str] = {}

    def identified(session: Session) -> None:
        opened(session)
        if who := server_identity(session):
            identities[session.endpoint.name] = who

    sides = read_snapshot(scope, identified).sides
    marker = config.workload.clone_marker
    return Basis(
        {side.endpoint: side.address for side in sides},
        {side.endpoint: f"{side.flavor} {side.version}" for side in sides},
        _schema(scope, sides, marker), configuration_digest(config), identity, identities,
        _tables(sides, marker), settings_of(config),
    )  # fmt: skip


def server_identity(session: Session) -> str:
    """Return which server answers, empty where it does not tell.

    The cluster id of an embedded TiDB is always 1, so that the time at which the cluster's own tables were made is
    part of it.
    """
    try:
        who = identify(session).server
        if session.flavor is not Flavor.TIDB:
            return who
        born = session.query(_BIRTH)
    except MigverifyError:
        return ""
    return f"{who}, made {born[0][0]}" if born and born[0][0] else ""


def basis_facts(
    config: Config, capture: Path | None = None, opened: Callable[[Session], None] = lambda _: None
) -> tuple[dict[str, Any], str]:
    """Return what a run keeps of its basis, and why it keeps nothing where it cannot be read.

    A run goes on without it: it is only no evidence for a decision.
    """
    try:
        return {BASIS: read_basis(config, capture, opened).as_json()}, ""
    except MigverifyError as error:
        return {}, f"this run is no evidence for a decision, as what it rests on could not be read: {error.message}"


def _schema(scope: Scope, sides: tuple[SideSchema, ...], marker: str | None) -> str:
    """Return one hash of the definitions, without the table by which a clone is known: the original has none."""
    whole = hashlib.sha256()
    for side in sorted(sides, key=lambda one: one.endpoint):
        fingerprint = whole_of(_counted(side, marker), side.objects, scope.renamed(side.endpoint))
        whole.update(f"{side.endpoint} {fingerprint}\n".encode())
    return whole.hexdigest()


def _counted(side: SideSchema, marker: str | None) -> list[TableSchema]:
    return [table for table in side.tables if f"{table.table.ref.database}.{table.table.ref.table}" != marker]


def _tables(sides: tuple[SideSchema, ...], marker: str | None) -> dict[str, dict[str, str]]:
    """Return what names a changed table: hashes of its columns and indexes, of the table alone where there are many."""
    tables = {f"{side.endpoint} {table.name}": table for side in sides for table in _counted(side, marker)}
    if len(tables) > _MOST_TABLES:
        return {}
    found = {name: {"": table.fingerprint[:_SHORT]} for name, table in tables.items()}
    if sum(len(one.table.columns) + len(one.table.indexes) for one in tables.values()) <= _MOST_PARTS:
        for name, one in tables.items():
            found[name] |= {f"column {column.name}": digest(column_form(column))[:_SHORT]
                            for column in one.table.columns}  # fmt: skip
            found[name] |= {f"index {index.name}": digest(key_form(one.table, index))[:_SHORT]
                            for index in one.table.indexes}  # fmt: skip
    return found


def configuration_digest(config: Config) -> str:
    """Return the hash of what a configuration says about what is compared and required."""
    workload = config.workload
    meaning = {"compared": comparison_digest(config), "levels": _levels(config), "found_rows": workload.found_rows}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def _levels(config: Config) -> dict[str, dict[str, Any]]:
    return {name: level.model_dump(mode="json") for name, level in config.workload.service_levels.items()}


def settings_of(config: Config) -> dict[str, str]:
    """Return what ``configuration_digest`` is made of, value by value.

    Conditions of rows are shown as a hash, as they may hold values of rows, and what looks like a secret is hidden.
    """
    found = dict(_values("found_rows", config.workload.found_rows))
    for name, meaning in comparison_meaning(config).items():
        found |= dict(_values(name, meaning))
    for name, level in _levels(config).items():
        found |= dict(_values(f"{LEVEL}{name}", level))
    return found


def _values(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the single values of a setting by their path."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _values(f"{name}.{key}", one)
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value, 1):
            yield from _values(f"{name}[{number}]", one)
    else:
        text = json.dumps(value, sort_keys=True, default=str)
        if value is not None and name.rpartition(".")[2].startswith("where_"):
            text = f"(a condition, {digest(text)[:_SHORT]})"
        yield name, HIDDEN if is_secret_name(name) else text


def capture_identity(capture: Path) -> str:
    """Return a hash of a capture's summary and its files: another capture has another one.

    Of a large file blocks are read that are spread over it, so that a capture of many gigabytes takes seconds.

    Raises UsageError: the folder holds no capture.
    """
    try:
        identity = hashlib.sha256((capture / SUMMARY).read_bytes())
        for path in sorted(capture.glob("statements-*.parquet")):
            identity.update(f"\n{path.name} {path.stat().st_size} {_content(path)}".encode())
    except OSError as error:
        raise UsageError(
            f"{capture} holds no capture.", hint="Make one: migverify workload capture FILE --out DIR."
        ) from error
    return identity.hexdigest()


def _content(path: Path) -> str:
    """Return a hash of a file: of all of it, or of blocks with its beginning and its end."""
    size, found = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        if size <= _BLOCKS * _BLOCK:
            found.update(file.read())
            return found.hexdigest()
        for number in range(_BLOCKS):
            file.seek((size - _BLOCK) * number // (_BLOCKS - 1))
            found.update(file.read(_BLOCK))
    return found.hexdigest()
