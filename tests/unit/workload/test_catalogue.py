"""The difference catalogue: its data is whole, its labels are precise, its page and schemas are in step."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from migverify.config.problems import validate
from migverify.config.reference import json_schema, json_schema_text
from migverify.config.yaml_text import read_yaml
from migverify.errors import ConfigError, UsageError
from migverify.guards import schema_drift
from migverify.model import Flavor
from migverify.workload.catalogue import waivers
from migverify.workload.catalogue.errors import SUCCESS, ErrorsDocument, error_class, error_classes
from migverify.workload.catalogue.load import data_files, load, read_data
from migverify.workload.catalogue.model import (
    ASPECTS,
    TITLE,
    CatalogueDocument,
    CatalogueEntry,
    EntryClass,
    Label,
    LabelState,
    Needs,
    ProbeState,
)
from migverify.workload.catalogue.versions import Versions, server
from migverify.workload.classify import StatementKind, classify
from migverify.workload.meaning import Meanings
from migverify.workload.replay.model import Difference, DifferenceSeverity
from tests.differences_page import REGENERATE, differences_page

ROOT = Path(__file__).parents[3]
DATA = ROOT / "migverify" / "workload" / "catalogue" / "data"
ENTRIES = load().entries
PAIR = Versions(server("9.7.4"), server("8.0.11-TiDB-v8.5.0"))


def difference(aspect: str, source: str = "", target: str = "", detail: str = "") -> Difference:
    return Difference(aspect, DifferenceSeverity.BLOCKER, source, target, detail=detail)


def labeled(sql: str, *differences: Difference, probed: dict[str, ProbeState] | None = None) -> Label:
    meaning = Meanings("mysql", shapes=False).meaning(sql.encode())
    return load().label(meaning.text, meaning.classification, differences, PAIR, probed=probed)


def test_the_page_is_the_catalogue() -> None:
    page = ROOT / "docs" / "differences.md"
    if os.environ.get("REGEN") == "1":
        page.write_text(differences_page())
    assert page.read_text() == differences_page(), f"run `{REGENERATE}` and read what changed"


@pytest.mark.parametrize(
    ("name", "root", "title"),
    [("catalogue", CatalogueDocument, TITLE), ("waivers", waivers.WaiversDocument, waivers.TITLE),
     ("drift", schema_drift.DriftDocument, schema_drift.TITLE)],
    ids=["catalogue", "waivers", "drift"],
)  # fmt: skip
def test_the_schemas_are_published(name: str, root: type[BaseModel], title: str) -> None:
    path = ROOT / "migverify" / "schemas" / f"{name}.schema.json"
    text = json_schema_text(root, title)
    if os.environ.get("REGEN") == "1":
        path.write_text(text)
    assert path.read_text() == text, f"run `{REGENERATE}` and read what changed"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("name", data_files())
def test_the_data_fits_its_schema(name: str) -> None:
    document = read_yaml((DATA / name).read_text(), variables=False).data
    jsonschema.validate(document, json_schema(CatalogueDocument, TITLE))


def test_there_are_as_many_as_promised() -> None:
    assert len(ENTRIES) >= 110
    assert sum(entry.probe is not None for entry in ENTRIES) >= 100
    assert {entry.kind for entry in ENTRIES} == set(EntryClass)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_probes_write_only_where_they_say_so(entry) -> None:  # type: ignore[no-untyped-def]
    if entry.probe is None or entry.probe.needs is not Needs.NONE:
        return
    for step in entry.probe.steps:
        assert not re.search(r"\bGLOBAL\b(?!\.sql_mode| STATUS)", step.sql), step.sql
        found = classify(step.sql.encode())
        prepared = step.sql.startswith(("PREPARE", "EXECUTE"))
        assert prepared or found.kind in (StatementKind.READ, StatementKind.SESSION, StatementKind.TRANSACTION), (
            step.sql
        )
        assert "into file" not in found.effects


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_probes_change_no_global_setting(entry) -> None:  # type: ignore[no-untyped-def]
    if entry.probe is None:
        return
    for sql in (*entry.probe.setup, *(step.sql for step in entry.probe.steps), *entry.probe.teardown):
        assert not re.search(r"^SET\b.*\b(GLOBAL|PERSIST)\b|^FLUSH\b|^LOCK INSTANCE", sql, re.IGNORECASE), sql


def read_entry(text: str) -> CatalogueEntry:
    document = read_yaml(f"seen_on: here\nentries:\n- {text}", variables=False)
    return validate(Path("x.yaml"), document, CatalogueDocument).entries[0]


BROKEN = {
    "id": ("id: XA", "id: "),
    "class": ("class: fatal", "this takes one of 'blocker'"),
    "references": ("references: [http://example.com]", "not a page that may be referred to"),
    "title": ("title: ''", "title: this must not be empty"),
    "extra": ("wrong: 1", "unknown key .*wrong"),
    "no_probe": ("no_probe: ''", "either a probe or no_probe"),
}


@pytest.mark.parametrize("key", BROKEN)
def test_a_damaged_entry_is_refused_with_its_place(key: str) -> None:
    whole = {
        "id": "id: some-thing-001", "title": "title: T", "class": "class: blocker", "explanation": "explanation: E",
        "remedy": "remedy: R", "references": "references: []", "no_probe": "no_probe: because",
        "trigger": "trigger: {signs: [{aspect: error, target: [1064]}]}",
    }  # fmt: skip
    assert read_entry("\n  ".join(whole.values())).id == "some-thing-001"
    line, message = BROKEN[key]
    with pytest.raises(ConfigError, match=message) as caught:
        read_entry("\n  ".join({**whole, key: line}.values()))
    assert re.match(r"x\.yaml:\d+:\d+: ", caught.value.message)


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ("{signs: []}", "signs: this must not be empty"),
        ("{signs: [{aspect: error}]}", "named by its number"),
        ("{signs: [{aspect: smell}]}", "this takes one of"),
        ("{signs: [{aspect: value, target: [1064]}]}", "are of errors"),
        ("{text: '(', signs: [{aspect: value}]}", "not a regular expression"),
        ("{kinds: [reading], signs: [{aspect: value}]}", "this takes one of"),
    ],
)
def test_an_imprecise_trigger_is_refused(trigger: str, message: str) -> None:
    lines = ["id: a-001", "title: T", "class: blocker", "explanation: E", "remedy: R", "no_probe: n"]
    with pytest.raises(ConfigError, match=message):
        read_entry("\n  ".join([*lines, f"trigger: {trigger}"]))


def test_errors_have_one_class_each() -> None:
    _, data = read_data("errors.yaml", ErrorsDocument)
    seen: set[int] = set()
    for one in data.classes.values():
        codes = [*one.codes, *one.tidb]
        assert len(codes) == len(set(codes))
        assert not seen & set(codes)
        seen |= set(codes)
    assert all(code >= 8000 for one in error_classes().classes.values() for code in one.tidb)


@pytest.mark.parametrize(
    ("errno", "flavor", "name"),
    [
        (0, Flavor.TIDB, SUCCESS), (1062, Flavor.MYSQL, "duplicate-key"), (1213, Flavor.MYSQL, "conflict"),
        (9007, Flavor.TIDB, "conflict"), (9007, Flavor.MYSQL, "errno 9007"), (1205, Flavor.TIDB, "lock-wait"),
        (1140, Flavor.MYSQL, "grouping"), (8123, Flavor.TIDB, "grouping"), (1064, Flavor.TIDB, "syntax"),
        (1105, Flavor.TIDB, "generic"), (8200, Flavor.TIDB, "unsupported"),
        (8025, Flavor.TIDB, "resource"), (9001, Flavor.TIDB, "storage"), (2013, Flavor.MYSQL, "connection"),
    ],
)  # fmt: skip
def test_error_classes(errno: int, flavor: Flavor, name: str) -> None:
    assert error_class(errno, flavor) == name


@given(st.integers(1, 65535), st.integers(1, 65535), st.sampled_from(Flavor))
def test_unknown_numbers_are_never_one_class(first: int, second: int, flavor: Flavor) -> None:
    one, other = error_class(first, flavor), error_class(second, flavor)
    if one.startswith("errno ") and first != second:
        assert one != other
    assert one.startswith("errno ") or one in error_classes().classes


SHOWN = [
    ("XA START 'x'", difference("error", "ok, 0 affected", "error 1064 (42000): syntax"), "xa-001"),
    ("SELECT a FROM t FOR SHARE", difference("error", "ok, 1 row", "error 1235 (42000): noop"), "for-share-001"),
    ("SELECT ST_X(p) FROM t", difference("error", "ok", "error 1305 (42000): FUNCTION"), "spatial-function-001"),
    ("UPDATE t SET a = 1", difference("error", "ok", "error 9007 (HY000): Write conflict"), "write-conflict-001"),
    ("CREATE TABLE u AS SELECT 1", difference("error", "ok", "error 1105 (HY000): is not implemented yet"),
     "create-table-select-001"),
    ("SELECT a / 3 * 3 FROM t", difference("value", "0.9999", "1.0000", "decimal"), "division-precision-001"),
    ("SELECT a, COUNT(*) FROM t", difference("errno", "1140", "8123", "grouping"), "only-full-group-by-001"),
    ("UPDATE t SET a = a + 1, b = a", difference("affected-rows", "1", "0"), "update-order-001"),
    ("UPDATE t SET id = 10 WHERE a = 1", difference("affected-rows", "1", "2"), "affected-key-update-001"),
    ("SELECT * FROM t LIMIT 1 FOR UPDATE SKIP LOCKED", difference("rows", "1", ""), "skip-locked-001"),
    ("SELECT GET_LOCK('a', 1)", difference("value", "0", "1"), "get-lock-001"),
    ("INSERT INTO t VALUES (1) AS n ON DUPLICATE KEY UPDATE v = n.v",
     difference("error", "ok", "error 1054 (42S22): n.v"), "row-alias-001"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "shown", "identity"), SHOWN, ids=[one[2] for one in SHOWN])
def test_a_finding_gets_its_entry(sql: str, shown: Difference, identity: str) -> None:
    found = labeled(sql, shown)
    assert identity in found.ids
    assert found.state is not LabelState.UNKNOWN


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT a FROM t", difference("row-count", "3", "2")),
        ("SELECT a FROM t", difference("value", "1", "2")),
        ("SELECT a FROM t", difference("rows", "1", "")),
        ("SELECT a FROM t WHERE id = 7", difference("null", "1", "NULL")),
        ("UPDATE t SET a = 1", difference("affected-rows", "1", "0")),
        ("SELECT a FROM t ORDER BY id", difference("order", "1", "2")),
        ("SELECT a FROM t", difference("error", "ok", "error 1146 (42S02): no table")),
        ("SELECT a FROM t", difference("error", "ok", "error 1064 (42000): syntax")),
        ("SELECT a FROM t", difference("json", "{}", "[]")),
        ("SELECT a FROM t", difference("float", "1.5", "2.5")),
        ("SELECT a FROM t", difference("temporal", "2026-01-01", "2026-01-02")),
        ("SELECT a FROM t", difference("type", "INTEGER (3)", "TEXT (253)")),
        ("SELECT a FROM t", difference("unanswered", "no answer: lost", "ok")),
    ],
)
def test_what_is_not_known_stays_unknown(sql: str, shown: Difference) -> None:
    found = labeled(sql, shown)
    assert found.state is LabelState.UNKNOWN, found.ids
    assert found.ids == ()


def test_one_unexplained_difference_keeps_a_finding_unknown() -> None:
    known = difference("json-form", "{}", "{}")
    assert labeled("SELECT a FROM t", known).state is LabelState.KNOWN
    both = labeled("SELECT a FROM t", known, difference("value", "1", "2"))
    assert both.state is LabelState.UNKNOWN
    assert both.ids == labeled("SELECT a FROM t", known).ids


def test_a_finding_without_differences_is_unknown() -> None:
    assert labeled("SELECT 1").state is LabelState.UNKNOWN


def test_what_a_probe_found_here_goes_before_versions() -> None:
    shown = difference("error", "ok", "error 1064 (42000): syntax")
    assert labeled("SAVEPOINT a", shown).ids == ()  # known up to 6.1 only
    assert labeled("SAVEPOINT a", shown, probed={"savepoint-001": ProbeState.HOLDS}).ids == ("savepoint-001",)
    gone = {"xa-001": ProbeState.DOES_NOT_HOLD}
    assert labeled("XA START 'x'", shown, probed=gone).state is LabelState.UNKNOWN


_CODES = (0, 1062, 1064, 1105, 1235, 1305, 1412, 8048, 8123, 8200, 9007, 4711)
_TEXTS = st.sampled_from([
    "", "ok", "1", "2", "0.9999", "1.0000", "-0", "0000-00-00", "no answer: lost",
    *(f"error {code} (42000): not implemented yet" if code else "ok, 0 affected" for code in _CODES),
])  # fmt: skip
_DIFFERENCES = st.builds(
    Difference, st.sampled_from(ASPECTS), st.just(DifferenceSeverity.REVIEW), _TEXTS, _TEXTS,
    detail=st.sampled_from(["", "case", "decimal", "trailing spaces", "txnLockFast", "cursor", "snapshot"]),
)  # fmt: skip
_STATEMENTS = st.sampled_from([
    "SELECT 1", "UPDATE t SET a = 1", "XA START 'x'", "SELECT SUM(a) / 3 FROM t GROUP BY b", "CALL p()",
    "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", "CREATE TABLE t (a INT, FULLTEXT KEY (a))",
    "SELECT * FROM performance_schema.threads", "EXPLAIN SELECT 1", "LOCK TABLES t WRITE", "SELECT @a := 1",
])  # fmt: skip


def errno(text: str) -> int | None:
    number = re.match(r"(?:error )?(\d+)\b", text)
    return int(number[1]) if number else 0 if text.startswith("ok") else None


@settings(max_examples=80)
@given(_STATEMENTS, st.lists(_DIFFERENCES, max_size=4))
def test_an_entry_never_labels_what_it_does_not_name(sql: str, differences: list[Difference]) -> None:
    meaning = Meanings("mysql", shapes=False).meaning(sql.encode())
    text, kind = meaning.text, meaning.classification
    found = load().label(text, kind, differences)
    by_difference = [load().label(text, kind, [one]).ids for one in differences]
    for shown, ids in zip(differences, by_difference, strict=True):
        for identity in ids:
            signs = [sign for sign in load().entry(identity).trigger.signs if sign.aspect == shown.aspect]
            assert signs, f"{identity} labels {shown.aspect}"
            source, target = errno(shown.source), errno(shown.target)
            if shown.aspect in ("error", "errno"):
                assert any(
                    (not sign.source or source in sign.source) and (not sign.target or target in sign.target)
                    for sign in signs
                ), f"{identity} labels {source} and {target}"
    explained = {identity for ids in by_difference for identity in ids}
    assert set(found.ids) == explained
    blocks = any(load().entry(identity).kind is EntryClass.BLOCKER for identity in explained)
    assert (found.state is LabelState.BLOCKER) == blocks


def test_an_unknown_entry_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nothing-001"):
        load().entry("nothing-001")


def test_schemas_refuse_what_the_loader_refuses() -> None:
    document = json.loads(json.dumps(read_yaml((DATA / "writes.yaml").read_text(), variables=False).data))
    document["entries"][0]["class"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json_schema(CatalogueDocument, TITLE))
