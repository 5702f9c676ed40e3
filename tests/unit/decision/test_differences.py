"""What changed since evidence was made is named: servers, tables with columns and indexes, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migverify.config import load_config
from migverify.decision.basis import capture_identity, configuration_digest, settings_of
from migverify.decision.differences import differences
from migverify.decision.model import Basis, DecisionPart
from tests.unit.decision_store import BASIS

ORDERS = {"": "t1", "column id": "c1", "index by_code": "k1"}
THEN = replace(BASIS, tables={"target shop.orders": ORDERS}, settings={"found_rows": "false"})


def texts(then: Basis, now: Basis, part: DecisionPart = DecisionPart.ANSWERS) -> list[str]:
    return list(differences(then, now, (), part, needs_capture=True))


def test_the_same_is_no_difference_and_survives_the_store() -> None:
    assert texts(THEN, THEN) == []
    assert Basis.from_json(THEN.as_json()) == THEN


def test_another_server_at_the_same_address_is_named() -> None:
    other = replace(THEN, identities={**THEN.identities, "target": "cluster 8"})
    assert texts(THEN, other) == [
        "target is another server at the same address: it was cluster 7, made 2026-01-01 then, and is cluster 8 now"
    ]


def test_a_server_that_does_not_tell_is_not_known() -> None:
    silent = replace(THEN, identities={"source": "uuid-1"})
    (now,) = texts(THEN, silent)
    assert "which server target is cannot be read now" in now
    assert "GRANT SELECT ON mysql.tidb" in now
    assert texts(silent, THEN) == ["which server target was is not known: it did not tell then"]


def test_evidence_of_an_earlier_release_says_so() -> None:
    body = {name: one for name, one in THEN.as_json().items() if name in ("pair", "versions", "schema",
                                                                         "configuration", "capture")}  # fmt: skip
    earlier = Basis.from_json(body)
    assert earlier is not None
    assert "made by an earlier release" in texts(earlier, THEN)[0]


def test_a_clone_is_another_server_and_its_own_side_is_compared() -> None:
    clone = {"source": "db:3306", "target": "clone:4000"}
    then = replace(THEN, pair=clone, identities={"source": "uuid-1", "target": "clone's"})
    assert list(differences(then, THEN, (clone,), DecisionPart.ANSWERS, needs_capture=True)) == []
    other = replace(then, identities={"source": "uuid-2", "target": "clone's"})
    (found,) = differences(other, THEN, (clone,), DecisionPart.ANSWERS, needs_capture=True)
    assert found.startswith("source is another server")
    assert list(differences(replace(then, identities={"source": "uuid-1"}), THEN, (clone,), DecisionPart.ANSWERS,
                            needs_capture=True))  # fmt: skip


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"target shop.orders": {"": "t2", "column id": "c1"}}, "target shop.orders (index by_code is gone)"),
        ({"target shop.orders": {**ORDERS, "": "t2", "column n": "c"}}, "target shop.orders (column n is new)"),
        ({"target shop.orders": {**ORDERS, "": "t2", "column id": "c"}}, "target shop.orders (column id changed)"),
        ({"target shop.orders": {**ORDERS, "": "t2"}}, "target shop.orders (foreign keys, checks,"),
        ({"target shop.orders": {"": "t2"}, "source shop.n": {"": "n"}}, "source shop.n is new; target shop.orders"),
        (THEN.tables, "views, routines or events changed"),
        ({}, "the definitions of the tables are other ones now than they were then"),
    ],
)
def test_the_table_that_changed_is_named_with_what(tables: dict[str, dict[str, str]], words: str) -> None:
    (found,) = texts(THEN, replace(THEN, schema="6" * 64, tables=tables))
    assert words in found


def test_a_setting_that_changed_is_named_with_both_values() -> None:
    changed = replace(THEN, configuration="d" * 64, settings={"found_rows": "true"})
    assert texts(THEN, changed) == ["the configuration changed: found_rows was false then, and is true now"]
    unnamed = replace(THEN, configuration="d" * 64)
    assert texts(THEN, unnamed) == [
        "the configuration said otherwise then about tables, routes, sessions or service levels"
    ]


def test_a_service_level_that_changed_voids_latency_alone(tmp_path: Path) -> None:
    def of(seconds: float, rows: str) -> Basis:
        path = tmp_path / "migverify.yaml"
        path.write_text(f"""
source: {{host: db, user: u}}
target: {{host: tidb, user: u}}
overrides: [{{table: shop.orders, where: {{source: "{rows}", target: "{rows}"}}}}]
workload: {{service_levels: {{loose: {{writes: 0, reads: 5, seconds: {seconds}}}}}}}
""")
        config = load_config(path)
        return replace(THEN, configuration=configuration_digest(config), settings=settings_of(config))

    one = of(1, "id < 7777")
    assert texts(one, of(2, "id < 7777"), DecisionPart.ANSWERS) == []
    assert texts(one, of(2, "id < 7777"), DecisionPart.LATENCY) == [
        "the configuration changed: service level loose.seconds was 1.0 then, and is 2.0 now"
    ]
    (found,) = texts(one, of(1, "id < 8888"))
    assert found.startswith("the configuration changed: overrides[1].where_source was (a condition, ")
    assert "7777" not in found
    assert "8888" not in found


@pytest.mark.parametrize("size", [100, 20_000_000])
def test_a_capture_of_other_bytes_and_the_same_sizes_is_another_one(tmp_path: Path, size: int) -> None:
    (tmp_path / "_summary.json").write_text("{}")
    file = tmp_path / "statements-1.parquet"
    file.write_bytes(b"a" * size)
    before = capture_identity(tmp_path)
    assert capture_identity(tmp_path) == before
    for bytes_ in (b"b" + b"a" * (size - 1), b"a" * (size - 1) + b"b"):
        file.write_bytes(bytes_)
        assert capture_identity(tmp_path) != before
