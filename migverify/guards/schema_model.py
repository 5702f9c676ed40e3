"""The nouns of the schema guard: what an endpoint's definitions are, and how two of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from migverify.codec import decode, encode
from migverify.errors import UsageError
from migverify.model import SchemaClass, SchemaDifference, TableDef
from migverify.sql.definitions import Name
from migverify.sql.parts import DatabaseObject, Parts

NAME = "schema"
COMMAND = "migverify guard schema --json"
"""What shows again what an answer says."""
FORM = 1
"""The number of the snapshot's form: another one is refused, never half read."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table of an endpoint.

    ``target`` is the name that it leads to; ``fingerprint`` is over everything, ``layout`` over columns, keys and
    options, which every run records.
    """

    table: TableDef
    parts: Parts
    target: tuple[str, str]
    fingerprint: str
    layout: str

    @property
    def name(self) -> str:
        """``database.table`` on its endpoint."""
        return str(self.table.ref)


@dataclass(frozen=True, slots=True)
class SideSchema:
    """Everything defined at one endpoint, at one moment; both clocks in Unix seconds.

    ``position`` is where its change stream stood before it was read. ``hidden`` names what the server does not show to
    the user, and what therefore looks as if there were none.
    """

    endpoint: str
    address: str
    flavor: str
    version: str
    server_time: float
    local_time: float
    position: str
    tables: tuple[TableSchema, ...]
    objects: tuple[DatabaseObject, ...]
    fingerprint: str
    hidden: tuple[str, ...] = ()

    def by_name(self) -> dict[str, TableSchema]:
        """Tables by ``database.table``."""
        return {table.name: table for table in self.tables}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All endpoints at one moment; ``taken`` is Unix seconds, ``label`` the run or file it comes from."""

    taken: float
    sides: tuple[SideSchema, ...]
    label: str = ""

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each endpoint."""
        return {side.endpoint: side.fingerprint for side in self.sides}

    def layouts(self) -> dict[str, str]:
        """Return fingerprints of columns, keys and options by ``endpoint/database.table``, as runs record them."""
        return {f"{side.endpoint}/{table.name}": table.layout for side in self.sides for table in side.tables}

    def side(self, endpoint: str) -> SideSchema | None:
        """Return the side of that name."""
        return next((side for side in self.sides if side.endpoint == endpoint), None)


@dataclass(frozen=True, slots=True)
class DefinitionDifference:
    """One difference of a table. ``allowed`` says by whose word it is expected, empty where by nobody's."""

    path: str
    source: str | None
    target: str | None
    level: SchemaClass
    message: str
    allowed: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the difference as a JSON object."""
        reported: dict[str, Any] = {
            "path": self.path, "source": self.source, "target": self.target, "class": self.level.value,
            "message": self.message,
        }  # fmt: skip
        return {**reported, "allowed": self.allowed} if self.allowed else reported


@dataclass(frozen=True, slots=True)
class DefinitionComparison:
    """What a table's two definitions say. ``table`` is its name on the source, or on the target where it is only there.

    ``sources`` and ``target`` hold fingerprints by ``endpoint/database.table``; empty where that side lacks it.
    """

    table: str
    differences: tuple[DefinitionDifference, ...]
    fingerprints: Mapping[str, str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs at all, expected or not."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "table": self.table, "equal": self.equal, "differences": [one.as_json() for one in self.differences],
            "fingerprints": dict(self.fingerprints),
        }  # fmt: skip


RANK = {SchemaClass.BREAKS_COMPARISON: 2, SchemaClass.MAY_LOSE_DATA: 1, SchemaClass.COSMETIC: 0}
"""How grave a class is."""

_ASPECTS = {
    "column-name": "name", "table-name": "name", "table-collation": "collation", "key-name": "name",
    "key-visibility": "visibility", "key-kind": "kind", "key-order": "order", "key-comment": "comment",
    "foreign-key-name": "name", "foreign-key-on-delete": "on_delete", "foreign-key-on-update": "on_update",
    "check-name": "name", "check-enforced": "enforced", "partition-bound": "bound", "partition-comment": "comment",
    "partition-method": "method", "partition-expression": "expression", "partition-sub-method": "sub_method",
    "partition-sub-expression": "sub_expression", "partition-sub-count": "sub_count", "partition-order": "order",
    "on-update": "on_update",
}  # fmt: skip
_WHOLE = {"column-missing", "column-extra", "key-missing", "key-extra", "foreign-key-missing", "foreign-key-extra",
          "check-missing", "check-extra", "check", "trigger", "trigger-missing", "trigger-extra", "partition-missing",
          "partition-extra", "partitioning", "attribute", "sources-differ"}  # fmt: skip
_ROOMS = (
    ("key ", "keys"), ("foreign key ", "foreign_keys"), ("check ", "checks"), ("trigger ", "triggers"),
    ("partition ", "partitions"),
)  # fmt: skip


def path_of(found: SchemaDifference) -> str:
    """Return the place of a difference: ``columns.amount.type``, ``keys.by_day``, ``options.collation``."""
    kind, where = found.kind, found.where
    aspect = "" if kind in _WHOLE else "." + _ASPECTS.get(kind, kind)
    if kind == "attribute":
        return f"attributes.{where}"
    if kind == "column-order":
        return "column_order"
    if kind.startswith("partition") and where == "table":
        return f"partitions{aspect}"
    for word, room in _ROOMS:
        # A column may be called `key a`: what the difference is of decides, not how the place begins.
        if kind.startswith(word.strip().replace(" ", "-")) and where.startswith(word):
            return f"{room}.{where.removeprefix(word)}{aspect}"
    if where == "table" and kind in {"table-name", "table-collation", "comment", "sharding", "engine"}:
        return f"options{aspect}"
    return f"columns.{where}{aspect}"


def split_name(text: str) -> Name:
    """Return database and table of ``database.table``; a dot inside the database's name is not reported apart."""
    database, _, table = text.partition(".")
    return database, table


def shortened(text: str | None, most: int = 120) -> str:
    """Return one side of a difference in one line: ``none`` where that side has nothing."""
    shown = "none" if text is None else " ".join(text.split())
    return shown if len(shown) <= most else shown[:most] + " ..."


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as a JSON value, fingerprints first."""
    return {
        "form": FORM, "taken": snapshot.taken,
        "fingerprints": snapshot.fingerprints(),
        "tables": {
            f"{side.endpoint}/{table.name}": table.fingerprint for side in snapshot.sides for table in side.tables
        },
        "sides": [encode(side) for side in snapshot.sides],
    }  # fmt: skip


def from_json(text: str | bytes, label: str) -> Snapshot:
    """Read what ``to_json`` wrote.

    Raises
    ------
    UsageError
        it is no snapshot, or one of another form.
    """
    try:
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("form") != FORM:
            raise ValueError(f"its form is not {FORM}")
        return Snapshot(float(body["taken"]), tuple(decode(SideSchema, side) for side in body["sides"]), label)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{label} is no schema snapshot that this version can read: {error}",
                         hint="`migverify guard schema --snapshot --out FILE` writes one.") from error  # fmt: skip
