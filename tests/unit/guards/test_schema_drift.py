"""Allowed drift: who answers for what, until when; and what is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from migverify.errors import ConfigError
from migverify.guards.schema_drift import load_drift
from migverify.guards.schema_model import DefinitionComparison, DefinitionDifference, path_of
from migverify.model import SchemaClass, SchemaDifference

TODAY = date(2026, 1, 31)
ENTRY = {
    "table": "'app.*'", "path": "'columns.*.comment'", "class": "cosmetic", "owner": "ana", "reason": "later",
    "expires": "2026-02-28",
}  # fmt: skip


def written(folder: Path, **changes: str | None) -> Path:
    fields = {name: text for name, text in {**ENTRY, **changes}.items() if text is not None}
    path = folder / "drift.yaml"
    path.write_text("# who\nallowed:\n  - " + "\n    ".join(f"{name}: {text}" for name, text in fields.items()) + "\n")
    return path


def comparison(path: str = "columns.a.comment", level: SchemaClass = SchemaClass.COSMETIC) -> DefinitionComparison:
    return DefinitionComparison("app.t", (DefinitionDifference(path, "x", "y", level, "the comments differ"),), {})


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({}, True), ({"table": "'other.*'"}, False), ({"path": "'columns.b.*'"}, False), ({"path": "'*'"}, True),
        ({"class": "may-lose-data"}, True),
    ],
)  # fmt: skip
def test_what_an_entry_covers(tmp_path: Path, changes: dict[str, str], covered: bool) -> None:
    drift = load_drift(written(tmp_path, **changes), today=TODAY)
    (told,) = drift.apply([comparison()])
    assert bool(told.differences[0].allowed) == covered
    assert not told.equal
    if covered:
        assert "ana" in told.differences[0].allowed
        assert f"{tmp_path / 'drift.yaml'}:3" in told.differences[0].allowed
    assert len(drift.unused([comparison()])) == (not covered)


def test_a_graver_difference_is_not_covered(tmp_path: Path) -> None:
    drift = load_drift(written(tmp_path, path="'*'"), today=TODAY)
    (told,) = drift.apply([comparison("columns.a.type", SchemaClass.MAY_LOSE_DATA)])
    assert not told.differences[0].allowed


def test_the_last_day_counts_and_the_next_does_not(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert load_drift(path, today=date(2026, 2, 28)).holding
    late = load_drift(path, today=date(2026, 3, 1))
    assert not late.holding
    assert late.expired
    (told,) = late.apply([comparison()])
    assert not told.differences[0].allowed
    assert f"{path}:3" in told.differences[0].message


@pytest.mark.parametrize("field", ENTRY)
def test_an_entry_that_is_not_whole_is_refused_with_its_line(tmp_path: Path, field: str) -> None:
    path = written(tmp_path, **{field: None})
    with pytest.raises(ConfigError, match=rf"drift.yaml:3:\d+: .*{field}"):
        load_drift(path, today=TODAY)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("owner", "''"), ("expires", "soon"), ("expires", "2028-01-01"), ("class", "grave"), ("extra", "x"),
        ("table", "'a b'"), ("reason", "7"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, field: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"drift\.yaml:"):
        load_drift(written(tmp_path, **{field: text}), today=TODAY)


@pytest.mark.parametrize("text", ["", "allowed: 7\n", "other: []\n", "- a\n", "allowed: [\n", "allowed: [a]\n"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "drift.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"drift\.yaml"):
        load_drift(path, today=TODAY)


@pytest.mark.parametrize(
    ("kind", "where", "path"),
    [
        ("type", "key a", "columns.key a.type"), ("key-missing", "key a", "keys.a"),
        ("comment", "table", "options.comment"),
        ("column-missing", "table", "columns.table"), ("column-order", "table", "column_order"),
        ("foreign-key-on-delete", "foreign key f", "foreign_keys.f.on_delete"), ("attribute", "ttl", "attributes.ttl"),
        ("check", "check c", "checks.c"), ("trigger-missing", "trigger t", "triggers.t"),
        ("partition-bound", "partition p", "partitions.p.bound"), ("partitioning", "table", "partitions"),
        ("partition-method", "table", "partitions.method"), ("table-collation", "table", "options.collation"),
    ],
)  # fmt: skip
def test_places(kind: str, where: str, path: str) -> None:
    assert path_of(SchemaDifference(kind, where, None, None, SchemaClass.COSMETIC, "")) == path
