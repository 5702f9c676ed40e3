"""A first rules file: whatever the catalogs hold, it loads, and it holds the rules that can be guessed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.model import ColumnDef, IndexDef, TableDef, TableRef
from migverify.recon.load import load_rules
from migverify.recon.rule import RuleSet
from migverify.recon.starter import MAX_TABLES, Reference, SamePlace, SeenTables, parents, starter_text, usable_key

ENDPOINTS = ("source", "source.eu", "source.us", "target", "ledger")


def column(name: str, data_type: str = "bigint", *, nullable: bool = False, members: tuple[str, ...] = ()) -> ColumnDef:
    return ColumnDef(name, 1, data_type, data_type, nullable, members=members)


def table(
    endpoint: str, name: str, *columns: ColumnDef, key: tuple[str, ...] = ("id",), database: str = "d"
) -> TableDef:
    index = IndexDef("PRIMARY", True, key, (None,) * len(key))
    return TableDef(TableRef(endpoint, database, name), (column("id"), *columns), (index,) if key else (), 0, 0)


def load(folder: Path, text: str) -> RuleSet:
    path = folder / "recon.yaml"
    path.write_text(text, encoding="utf-8")
    return load_rules(path, ENDPOINTS)


MONEY = (column("amount", "decimal"), column("currency", "char"), column("created_at", "datetime"))


def test_what_is_guessed(tmp_path: Path) -> None:
    orders = [table(e, "orders", *MONEY, column("customer_id", nullable=True)) for e in ("source", "target")]
    customers = [table(e, "customers") for e in ("source", "target")]
    reference = Reference(orders[0].ref, ("customer_id",), customers[0].ref, ("id",))
    text = starter_text(
        [SamePlace((orders[0],), orders[1]), SamePlace((customers[0],), customers[1])],
        [
            SeenTables("source", (customers[0], orders[0]), (reference,)),
            SeenTables("target", (customers[1], orders[1])),
        ],
    )
    rules = load(tmp_path, text)
    assert [(rule.kind, rule.source, rule.target) for rule in rules.rules] == [
        ("same_rows", "orders", "orders_on_target"),
        ("same_groups", "orders", "orders_on_target"),
        ("same_rows", "customers", "customers_on_target"),
        ("orphans", "customers", "orders"),
    ]
    assert rules.datasets["orders"].time == "created_at"
    assert rules.rules[0].money is not None
    assert rules.rules[3].options["optional"] is True
    assert all(rule.settle for rule in rules.rules)


def test_shards_become_a_union(tmp_path: Path) -> None:
    shards = tuple(table(e, "orders") for e in ("source.eu", "source.us"))
    rules = load(tmp_path, starter_text([SamePlace(shards, table("target", "orders"))], []))
    assert [part.endpoint for part in rules.datasets["orders"].parts] == ["source.eu", "source.us"]  # type: ignore[union-attr]


def test_columns_of_one_side_are_left_out(tmp_path: Path) -> None:
    pair = SamePlace((table("source", "t", column("a"), column("b")),), table("target", "t", column("b"), column("c")))
    assert load(tmp_path, starter_text([pair], [])).rules[0].compare == ("b",)


def test_tables_without_a_key_or_too_many(tmp_path: Path) -> None:
    pairs = [SamePlace((table("source", f"t{n}"),), table("target", f"t{n}")) for n in range(MAX_TABLES + 3)]
    keyless = SamePlace((table("source", "k", key=()),), table("target", "k", key=()))
    text = starter_text([keyless, *pairs], [])
    assert len(load(tmp_path, text).rules) == MAX_TABLES - 1
    assert "# 4 more tables" in text


def test_keys_that_identify() -> None:
    nullable = table("source", "t", column("x", nullable=True), key=("x",))
    assert usable_key(nullable) == ()
    prefix = TableDef(nullable.ref, (column("id"),), (IndexDef("u", True, ("id",), (5,)),), 0, 0)
    assert usable_key(prefix) == ()
    both = TableDef(
        nullable.ref, (column("id"), column("x")),
        (IndexDef("u", True, ("x",), (None,)), IndexDef("PRIMARY", True, ("id",), (None,))), 0, 0,
    )  # fmt: skip
    assert usable_key(both) == ("id",)


def test_foreign_keys_are_read_in_their_order() -> None:
    base = {"TABLE_SCHEMA": "d", "TABLE_NAME": "c", "CONSTRAINT_NAME": "f", "REFERENCED_TABLE_SCHEMA": "d",
            "REFERENCED_TABLE_NAME": "p"}  # fmt: skip
    rows: list[dict[str, str | None]] = [
        {**base, "COLUMN_NAME": "b", "REFERENCED_COLUMN_NAME": "x"},
        {**base, "column_name": "a", "COLUMN_NAME": "a", "REFERENCED_COLUMN_NAME": "y"},
    ]
    assert parents(rows, "e") == (Reference(TableRef("e", "d", "c"), ("b", "a"), TableRef("e", "d", "p"), ("x", "y")),)


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.tuples(names, names, names), min_size=1, max_size=4, unique=True))
def test_whatever_the_names_are_the_file_loads(tmp_path: Path, found: list[tuple[str, str, str]]) -> None:
    pairs, tables, references = [], [], []
    for database, name, extra in found:
        columns = (*MONEY, column(f"{extra}_state", "enum", members=(extra, "b")))
        ours, theirs = (table(e, name, *columns, database=database) for e in ("source", "target"))
        pairs.append(SamePlace((ours,), theirs))
        tables.append(ours)
        references.append(Reference(ours.ref, ("id",), tables[0].ref, ("id",)))
    rules = load(tmp_path, starter_text(pairs, [SeenTables("source", tuple(tables), tuple(references))]))
    assert len(rules.rules) >= 2 * len(found)
    assert {(p.database, p.table) for d in rules.datasets.values() for p in d.parts} == {(d, t) for d, t, _ in found}  # type: ignore[union-attr]
