"""Rules files: what is understood, and what each mistake says."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ConfigError, ExitCode
from migverify.recon.checks import expired
from migverify.recon.fields import Measure, Money, duration_text
from migverify.recon.load import load_rules
from migverify.recon.model import ChangesPart, FilePart, QueryPart, Severity, TablePart
from migverify.recon.rule import RuleSet, rule_text
from tests.rule_fakes import KINDS

ENDPOINTS = ("source", "target", "ledger")
HEAD = """\
version: recon/v1
datasets:
  a: {endpoint: source, table: d.a, key: id, time: created, static: true}
  b: {endpoint: target, table: d.b, key: id, time: created, static: true}
  c: {endpoint: target, table: d.c, columns: [id, amount, currency], key: id}
"""
RULES = HEAD + "rules:\n"


def load(folder: Path, text: str) -> RuleSet:
    path = folder / "recon.yaml"
    path.write_text(text, encoding="utf-8")
    return load_rules(path, ENDPOINTS)


def one(folder: Path, rule: str, head: str = RULES) -> Any:
    return load(folder, f"{head}  - {{name: r, {rule}}}\n").rules[0]


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value).replace(str(folder), "")


def test_defaults_and_what_a_rule_says_itself(tmp_path: Path) -> None:
    rules = load(
        tmp_path,
        """\
version: recon/v1
defaults: {owner: pay, severity: major, settle: 1m30s, window: {every: 1h, start: 2026-01-01, immutable: 90d}, rereads: 5,
  delay: 500ms}
datasets:
  a: {endpoint: source, table: d.a, key: id, time: created}
  b: {endpoint: target, table: "`d.x`.`b``c`", where: "x > 0 -- not those\\n", key: [id], time: created}
rules:
  - {name: first, kind: same_rows, source: a, target: b}
  - name: second
    kind: same_rows
    source: a
    target: b
    key: [k1, k2]
    compare: amount
    tolerance: {amount: 9007199254740993.0001}
    settle: 0
    severity: warning
    owner: other
    money: {column: amount, currency: "'JPY'"}
    window: none
    rereads: 0
    delay: 0
    description: two
    duplicates: allow
exceptions:
  - {rule: second, key: [7, ~], owner: me, reason: why, expires: "2026-06-01T09:00:00+09:00"}
  - {rule: first, owner: me, reason: why, expires: 2026-01-01}
""",
    )
    first, second = rules.rules
    assert (first.key, first.compare, first.settle, first.severity, first.owner) == (
        ("id",),
        (),
        90.0,
        Severity.MAJOR,
        "pay",
    )
    assert (first.rereads, first.delay, first.options) == (5, 0.5, {"duplicates": "report"})
    assert first.window is not None
    assert (first.window.every, first.window.start, first.window.immutable) == (
        3600,
        datetime(2026, 1, 1),
        90 * 86400,
    )
    assert (second.key, second.compare, second.settle) == (("k1", "k2"), ("amount",), 0.0)
    assert second.tolerance == {"amount": Decimal("9007199254740993.0001")}
    assert (second.severity, second.owner, second.money) == (
        Severity.WARNING,
        "other",
        Money(column="amount", currency="'JPY'"),
    )
    assert (second.window, second.rereads, second.delay) == (None, 0, 0.0)
    assert (second.options, second.place.line) == ({"duplicates": "allow"}, 9)
    assert rules.datasets["b"].parts == (TablePart("target", "d.x", "b`c", "x > 0"),)
    assert rules.exceptions[0].key == ("7", None)
    assert rules.exceptions[0].expires == datetime(2026, 6, 1)
    assert expired(rules, datetime(2026, 2, 1)) == [rules.exceptions[1]]
    assert expired(rules, datetime(2026, 6, 1)) == [rules.exceptions[0], rules.exceptions[1]]


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("kind: same_rows, source: a, target: b", {"duplicates": "report"}),
        (
            'kind: same_groups, source: a, target: b, groups: [x], measures: [count, " sum( y )", "checksum(p, q)"]',
            {"groups": ("x",), "drill": True,
             "measures": (Measure("count", None), Measure("sum", "y"), Measure("checksum", "p,q"))},
        ),
        ("kind: zero_sum, source: a, groups: t, amount: v", {"groups": ("t",), "amount": "v", "currency": None}),
        (
            "kind: balance, source: a, target: b, balance: s, entries_key: w, amount: v",
            {"balance": "s", "entries_key": ("w",), "amount": "v", "currency": None},
        ),
        (
            "kind: transitions, source: a, column: s, order: n, allowed: {new: [1, true], 1: []}, final: ['1']",
            {"column": "s", "order": "n", "allowed": {"new": ("1", "true"), "1": ()}, "initial": None, "final": ("1",)},
        ),
        ("kind: orphans, source: a, target: b, reference: x", {"reference": ("x",), "both": False, "optional": False}),
        ("kind: unique, source: a", {"ignore_null": True}),
        ("kind: sequence, source: a, column: n", {"column": "n", "groups": (), "gaps": "report", "start": None}),
        ("kind: freshness, source: a, limit: 5m", {"limit": 300.0, "column": None, "groups": ()}),
        (
            "kind: coverage, source: a, columns: {x: 0.95, y: 1}",
            {"columns": {"x": Decimal("0.95"), "y": Decimal(1)}, "groups": ()},
        ),
        ("kind: no_rows, source: a", {"show": None, "limit": 1000}),
        ("kind: expectations, source: a, suite: s.json", {"suite": "s.json", "result_format": None, "limit": None}),
    ],
)  # fmt: skip
def test_options_of_every_kind(tmp_path: Path, rule: str, options: dict[str, Any]) -> None:
    (tmp_path / "s.json").write_text('{"expectations": [{"type": "expect_table_row_count_to_equal", "value": 1}]}')
    found = one(tmp_path, rule)
    assert found.options == options
    assert rule_text(found, load_rules(tmp_path / "recon.yaml", ENDPOINTS)).startswith("r: ")


def test_every_kind_is_in_the_test_above() -> None:
    marks = test_options_of_every_kind.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {rule.split(",")[0] for rule, _ in marks} == {f"kind: {kind}" for kind in KINDS}


def test_unions(tmp_path: Path) -> None:
    rules = load(
        tmp_path,
        """\
version: recon/v1
datasets:
  numbered: {union: {range: 08..10, template: {endpoint: source, table: "d_{n}.t_{shard}_{n:03}", where: "x = '{y}'"}}, key: id}
  named:
    union:
      shards: [eu, 7]
      template: {endpoint: source, sql: "SELECT a, '{x}' AS b FROM `d_{shard}`.`t_{n}`"}
    key: a
  files: {union: {shards: [eu, us], template: {parquet: "out/{shard}/*.parquet"}}, columns: {a: b}, key: a}
  changes: {union: {shards: [eu, us], template: {path: "s3://x/{shard}", changes: d.t, operations: [insert]}}, key: a}
rules:
  - {name: one, kind: unique, source: numbered}
""",
    )
    parts = rules.datasets["numbered"].parts
    assert [(p.database, p.table, p.shard) for p in parts if isinstance(p, TablePart)] == [
        ("d_8", "t_08_008", "08"), ("d_9", "t_09_009", "09"), ("d_10", "t_10_010", "10"),
    ]  # fmt: skip
    assert rules.datasets["named"].parts == (
        QueryPart("source", "SELECT a, '{x}' AS b FROM `d_eu`.`t_0`", "eu"),
        QueryPart("source", "SELECT a, '{x}' AS b FROM `d_7`.`t_1`", "7"),
    )
    assert rules.datasets["files"].parts == (
        FilePart(f"{tmp_path}/out/eu/*.parquet", "eu"), FilePart(f"{tmp_path}/out/us/*.parquet", "us")
    )  # fmt: skip
    assert rules.datasets["changes"].parts[0] == ChangesPart("", "s3://x/eu", "d", "t", ("insert",), False, "eu")


def test_columns_and_values(tmp_path: Path) -> None:
    head = HEAD.replace(
        "columns: [id, amount, currency]", 'columns: {id: id, "a b": "x / 100"}, values: {id: {1: one}}'
    )
    rules = load(tmp_path, head + "rules: [{name: r, kind: unique, source: c}]")
    assert rules.datasets["c"].columns == (("id", "id"), ("a b", "x / 100"))
    assert rules.datasets["c"].values == (("id", (("1", "one"),)),)
    assert load(tmp_path, RULES + "  - {name: r, kind: unique, source: c}").datasets["c"].columns[0] == ("id", "`id`")


U = "kind: unique, source: a"
S = "kind: same_rows, source: a, target: b"
G = "kind: same_groups, source: a, target: b, groups: x, measures: [count, sum(y)]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("rules: []", "the key version is missing"),
        ("version: recon/v2", "/recon.yaml:1:1: version: this takes one of 'recon/v1'"),
        ("version: recon/v1", "there is no rule"),
        (HEAD + "rules: []", "/recon.yaml:6:1: there is no rule"),
        (HEAD + "rulez: []", "/recon.yaml:6:1: unknown key rulez\n  Did you mean rules?"),
        (RULES + f"  - {{name: r, {S}, tolerence: {{}}}}", ": unknown key rules[0].tolerence\n  Did you mean tolerance?"),
        (RULES + f"  - {{name: r, {U}, measures: [count]}}", "unknown key rules[0].measures\n  Known keys here: name,"),
        (RULES + "  - {name: r, kind: same_row, source: a}", "rules[0].kind: this takes one of same_rows,"),
        (RULES + "  - {name: r, kind: same_row, source: a}", "Did you mean same_rows?"),
        (RULES + "  - {name: r, source: a}", "the key rules[0].kind is missing"),
        (RULES + "  - {name: r, kind: same_rows, source: a}", "the key rules[0].target is missing"),
        (RULES + "  - {name: r, kind: zero_sum, source: a, groups: x}", "the key rules[0].amount is missing"),
        (RULES + f"  - {{name: r, {S}, tolerance: {{amount: -1}}}}", "rules[0].tolerance.amount: this takes an exact"),
        (RULES + f"  - {{name: r, {S}, tolerance: {{amount: .nan}}}}", "not a number"),
        (RULES + f"  - {{name: r, {S}, settle: 30}}", "a duration needs a unit"),
        (RULES + f"  - {{name: r, {S}, settle: soon}}", "this is a duration"),
        (RULES + f"  - {{name: r, {S}, severity: bad}}", "this takes one of 'critical', 'major' or 'warning'"),
        (RULES + f"  - {{name: r, {U}, key: [x, x]}}", "named twice"),
        (RULES + f"  - {{name: 'r r', {U}}}", "a name holds letters"),
        (RULES + f"  - {{name: r, {G.replace('sum(y)', 'avg(y)')}}}", "a measure is count,"),
        (RULES + f"  - {{name: r, {G.replace('sum(y)', 'sum(*)')}}}", "a measure is count,"),
        (RULES + f"  - {{name: r, {G.replace('sum(y)', 'sum(y, z)')}}}", "a measure is count,"),
        (RULES + "  - {name: r, kind: coverage, source: a}", "columns is missing"),
        (RULES + "  - {name: r, kind: coverage, source: a, columns: {x: 1.5}}", "a number at most 1"),
        (HEAD.replace("key: id, time: created, static: true}", "typ: x}", 1), "unknown key datasets.a.typ"),
        # datasets
        (HEAD.replace("table: d.a", "table: d.a, sql: SELECT 1"), "`table` and `sql` is given; give one of"),
        (HEAD.replace("table: d.a, ", ""), "nothing is given; give one of `table`, `sql`, `parquet`, `changes` or `union`"),
        (HEAD.replace("table: d.a", "table: a"), "database.table"),
        (HEAD.replace("endpoint: source, ", ""), "`endpoint` is missing beside `table`"),
        (HEAD.replace("table: d.a", "parquet: x"), "`parquet` takes no `endpoint`"),
        (HEAD.replace("table: d.a", "changes: d.a, path: x"), "`endpoint` or `path`, one of them"),
        (HEAD.replace("table: d.a", "table: d.a, state: true"), "`table` takes no `state`"),
        (HEAD.replace("endpoint: source", "endpoint: sourc") + f"rules: [{{name: r, {U}}}]", "no endpoint sourc\n  Did you"),
        (HEAD.replace("table: d.a", 'table: d.a, where: "a; b"'), ":3:44: datasets.a.where: the SQL holds more than one"),
        (HEAD.replace("table: d.c, columns: [id, amount, currency]", "table: d.c, columns: {id: SLEEP(1)}"),
         "datasets.c.columns.id: SLEEP() waits"),
        (HEAD.replace("endpoint: target, table: d.c, columns: [id, amount, currency]", "parquet: x, columns: {id: a + 1}"),
         "column id: no database computes expressions over files and changes"),
        (HEAD.replace("columns: [id, amount, currency]", "columns: {id: CAST(id AS DECIMAL(20,2)), b: b}"),
         "2)): this key has no value; give it one or remove the key\n  Inside {...} put a text with a comma in quotes."),
        # parameters
        (HEAD.replace("table: d.a", 'table: d.a, where: "t = :tenant"') + f"rules: [{{name: r, {U}}}]",
         "dataset a: the parameter :tenant is not declared"),
        (HEAD + f"parameters: {{tenant: integer}}\nrules: [{{name: r, {U}}}]", ":6:14: no dataset uses the parameter tenant"),
        (HEAD + "parameters: {tenant: int}", "parameters.tenant.type: this takes one of integer, decimal"),
        (HEAD + "parameters: {window_start: datetime}", "`window_start` is given by the window"),
        (HEAD + "parameters: {t: {type: integer, default: 1.5}}", "parameters.t: this is a whole number"),
        (HEAD + "parameters: {t: {type: date, default: 2026-02-30}}", "parameters.t: this is a date"),
        (HEAD.replace("d.a", "'${DB}.a'"), "variables (${...}) are not filled in here"),
        # what rules name
        (RULES + "  - {name: r, kind: unique, source: xyz}", "rule r: there is no dataset xyz\n  Known datasets: a, b, c."),
        (RULES + f"  - {{name: r, {S.replace('target: b', 'target: a')}}}", "compares a with itself"),
        (RULES + f"  - {{name: r, {U}}}\n  - {{name: r, {U}}}", ":8:6: the rule r is there already, at /recon.yaml:7"),
        (RULES + "  - {name: r, kind: same_rows, source: a, target: c}", "c may change while it is read"),
        (RULES + "  - {name: r, kind: unique, source: c, window: 1h}", "windows cannot cut dataset c: it has no `time`"),
        (RULES + f"  - {{name: r, {U}, window: 500ms}}", "a window is whole seconds"),
        (RULES + f"  - {{name: r, {S}, compare: x, tolerance: {{y: 1}}}}", "a tolerance for y, which is not compared"),
        (RULES + f"  - {{name: r, {S}, tolerance: {{id: 1}}}}", "a tolerance for id, which is not compared"),
        (RULES + f"  - {{name: r, {G}, tolerance: {{sum(z): 1}}}}", "a tolerance for sum(z), which is not compared"),
        (RULES + "  - {name: r, kind: zero_sum, source: a, groups: x, amount: v, tolerance: {w: 1}}", "tolerance for w"),
        (RULES + "  - {name: r, kind: unique, source: c, money: {column: amount}}", "money.currency is missing"),
        (RULES + "  - {name: r, kind: unique, source: c, money: {column: amount, currency: \"''\"}}", "the currency is empty"),
        (RULES + "  - {name: r, kind: orphans, source: a, target: b, reference: [x, y]}", "reference has 2 columns, the key has 1"),
        (RULES + "  - {name: r, kind: transitions, source: a, column: s, allowed: {a: [b]}}", "need an order"),
        (RULES + "  - {name: r, kind: transitions, source: a, column: s, order: n, allowed: {a: [b]}, initial: [c]}", "state c is"),
        (RULES + "  - {name: r, kind: transitions, source: a, column: s, order: n, allowed: {a: [b]}, final: [a]}", "a is final"),
        (RULES + "  - {name: r, kind: freshness, source: c, limit: 1m}", "freshness needs the column of the time"),
        # exceptions
        (HEAD + f"rules: [{{name: r, {U}}}]\nexceptions: [{{rule: q, owner: o, reason: x, expires: 2026-01-01}}]", "no rule q"),
        (HEAD + f"rules: [{{name: r, {U}}}]\nexceptions: [{{rule: r, reason: x, expires: 2026-01-01}}]", "[0].owner is missing"),
        (HEAD + f"rules: [{{name: r, {U}}}]\nexceptions: [{{rule: r, owner: o, reason: x}}]", "[0].expires is missing"),
        (HEAD + f"rules: [{{name: r, {U}}}]\nexceptions: [{{rule: r, owner: o, reason: x, expires: soon}}]", "ISO date"),
        (HEAD + f"rules: [{{name: r, {U}}}]\nexceptions: [{{rule: r, key: [1, 2], owner: o, reason: x, expires: 2026-01-01}}]",
         "the key has 2 parts, the rule r has 1"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("union", "says"),
    [
        ("{range: 3..1, template: {endpoint: source, table: d.t}}", "from the lower to the higher"),
        ("{range: 0..99999, template: {endpoint: source, table: d.t}}", "at most"),
        ("{shards: [a, a], template: {endpoint: source, table: 'd.{shard}'}}", "named twice"),
        ("{shards: ['a;b'], template: {endpoint: source, table: 'd.{shard}'}}", "letters, digits, _ and -"),
        ("{template: {endpoint: source, table: d.t}}", "give `shards` or `range`"),
        ("{shards: [a, b], template: {endpoint: source, table: d.t}}", "two shards name the same rows"),
        ("{shards: [a], template: {endpoint: source, table: d.t, where: \"x = '{shard}'\"}}", "not in a condition"),
        ("{shards: [a], template: {endpoint: source, sql: \"SELECT '{shard}' FROM t\"}}", "not in a text"),
        ("{shards: [a], template: {endpoint: source, sql: 'SELECT 1 FROM t_{shard}'}}", "needs backticks around it"),
        ("{shards: [a], template: {endpoint: 'source.{shard}', table: d.t}}", "there is no endpoint source.a"),
    ],
)
def test_unions_refused(tmp_path: Path, union: str, says: str) -> None:
    text = (
        f"version: recon/v1\ndatasets:\n  u: {{union: {union}, key: id}}\nrules: [{{name: r, kind: unique, source: u}}]"
    )
    assert says in refused(tmp_path, text)


def test_sql_is_refused_at_its_line(tmp_path: Path) -> None:
    text = """\
version: recon/v1
datasets:
  q:
    endpoint: source
    sql: |
      SELECT id
      -- a comment: FOR UPDATE
      FROM t
        FOR UPDATE
rules: [{name: r, kind: no_rows, source: q}]
"""
    assert refused(tmp_path, text).startswith("/recon.yaml:9:9: datasets.q.sql: the SQL locks rows")


def test_window_parameters_stand_for_the_time(tmp_path: Path) -> None:
    text = """\
version: recon/v1
datasets:
  q: {endpoint: source, sql: "SELECT id FROM t WHERE a >= :window_start AND a < :window_end"}
rules: [{name: r, kind: no_rows, source: q, WINDOW}]
"""
    assert load(tmp_path, text.replace("WINDOW", "window: 1h")).rules[0].window is not None
    assert "uses :window_end, and the rule has no window" in refused(tmp_path, text.replace(", WINDOW", ""))
    half = text.replace("WINDOW", "window: 1h").replace(" AND a < :window_end", "")
    assert "windows cannot cut dataset q" in refused(tmp_path, half)


def test_parents_need_no_time(tmp_path: Path) -> None:
    rule = "kind: orphans, source: c, target: a, reference: x, settle: 1s, window: 1h"
    assert one(tmp_path, rule).window is not None
    assert "windows cannot cut dataset c" in refused(tmp_path, f"{RULES}  - {{name: r, {rule}, both: true}}")


def test_kinds_that_ask_about_all_rows_take_no_default_window(tmp_path: Path) -> None:
    text = RULES.replace("datasets:", "defaults: {window: 1h}\ndatasets:", 1)
    kinds = {
        "unique": "kind: unique, source: a", "sequence": "kind: sequence, source: a, column: n",
        "freshness": "kind: freshness, source: a, limit: 1m",
        "balance": "kind: balance, source: a, target: b, balance: s, entries_key: w, amount: v",
        "zero_sum": "kind: zero_sum, source: a, groups: t, amount: v", "same_rows": S,
    }  # fmt: skip
    found = {kind: one(tmp_path, rule, text).window is not None for kind, rule in kinds.items()}
    assert [kind for kind, windowed in found.items() if windowed] == ["zero_sum", "same_rows"]
    assert one(tmp_path, kinds["unique"] + ", window: 1d", text).window is not None
    assert "the newest row of all" in refused(tmp_path, f"{RULES}  - {{name: r, {kinds['freshness']}, window: 1d}}")


def test_what_windows_cut(tmp_path: Path) -> None:
    orphans = "kind: orphans, source: a, target: b, reference: x"
    assert one(tmp_path, orphans).cut == (False, True)
    assert one(tmp_path, orphans + ", both: true").cut == (True, True)
    assert one(tmp_path, S).cut == (True, True)


@pytest.mark.parametrize(
    ("dataset", "live"),
    [("{endpoint: source, table: d.a, key: id}", True), ("{endpoint: source, table: d.a, key: id, static: true}", False),
     ("{parquet: x, key: id}", False), ("{endpoint: source, changes: d.a, key: id}", True),
     ("{path: x, changes: d.a, key: id}", False), ("{endpoint: source, sql: 'SELECT id, v FROM t', key: id}", True)],
)  # fmt: skip
def test_a_live_pair_needs_a_settle_time(tmp_path: Path, dataset: str, live: bool) -> None:
    text = f"{HEAD}  x: {dataset}\nrules: [{{name: r, kind: same_rows, source: b, target: x, compare: v}}]"
    if live:
        assert "x may change while it is read" in refused(tmp_path, text)
        assert load(tmp_path, text.replace("compare: v", "compare: v, settle: 0")).rules[0].settle == 0.0
    else:
        assert load(tmp_path, text).rules[0].settle is None


def test_several_problems_are_told_together(tmp_path: Path) -> None:
    text = refused(tmp_path, RULES + "  - {name: r, kind: unique, source: x}\n  - {name: s, kind: unique, source: y}")
    assert "2 problems\n" in text
    assert text.index("rule r") < text.index("rule s")


def test_a_folder_is_one_set_of_rules(tmp_path: Path) -> None:
    (tmp_path / "1.yaml").write_text(HEAD)
    (tmp_path / "2.yaml").write_text(f"version: recon/v1\nrules: [{{name: r, {S}}}]\n")
    rules = load_rules(tmp_path, ENDPOINTS)
    assert [str(rule.place) for rule in rules.rules] == [f"{tmp_path}/2.yaml:2"]
    (tmp_path / "3.yaml").write_text("version: recon/v1\ndatasets: {b: {endpoint: source, table: d.x}}\n")
    with pytest.raises(ConfigError, match=r"3.yaml:2:12: the dataset b is there already, at .*/1.yaml:4"):
        load_rules(tmp_path, ENDPOINTS)
    (tmp_path / "3.yaml").unlink()
    (tmp_path / "4.yml").write_text("")
    with pytest.raises(ConfigError, match=r"4.yml would not be read"):
        load_rules(tmp_path, ENDPOINTS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "no.yaml", "there is no rules file"),
        (tmp_path, "holds no"),
        (tmp_path / "x", "UTF-8"),
    ):
        if path.name == "x":
            path.write_bytes(b"\xff")
        with pytest.raises(ConfigError, match=says):
            load_rules(path, ENDPOINTS)


def test_the_digest_is_of_what_decides(tmp_path: Path) -> None:
    base = f"{RULES}  - {{name: r, {S}, compare: x, owner: o}}\n"
    digest = load(tmp_path, base).digest
    assert load(tmp_path, "# c\n" + base.replace("owner: o", "owner: p, description: d")).digest == digest
    for old, new in (("compare: x", "compare: y"), ("d.a", "d.A"), ("owner: o", "rereads: 3"), ("owner: o", "settle: 1s"),
                     ("owner: o", "tolerance: {x: 0.1}"), ("name: r", "name: q"), ("time: created", "time: made")):  # fmt: skip
        assert load(tmp_path, base.replace(old, new)).digest != digest, (old, new)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "0.5s"), (30, "30s"), (90, "1m30s"), (3600, "1h"), (86400 * 90, "90d"), (100, "1m40s")],
)
def test_durations_are_shown_as_they_are_written(seconds: float, text: str) -> None:
    from migverify.recon.fields import parse_duration

    assert duration_text(seconds) == text
    assert parse_duration(text) == seconds
