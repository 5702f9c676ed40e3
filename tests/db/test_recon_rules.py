"""Rules from their files to their verdicts, where only the whole way shows whether the parts agree."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.recon.statements import check_query
from migverify.sql.lexer import TokenKind
from migverify.sql.tokens import SqlProblem, tokens

pytestmark = pytest.mark.db

DAY = ["--from", "2026-01-02", "--to", "2026-01-03", "--engine", "local", "-q"]


@pytest.fixture
def config(databases, tmp_path: Path) -> Path:
    path = tmp_path / "migverify.yaml"
    path.write_text(
        f'source: {{url: "mysql://root@{databases.pair.source}"}}\n'
        f'target: {{url: "tidb://root@{databases.pair.target}"}}\n'
        f'endpoints: {{ledger: {{url: "tidb://root@{databases.pair.target}"}}}}\n'
    )
    return path


def verdict(config: Path, rules: str, *arguments: str) -> int:
    path = config.parent / "recon.yaml"
    path.write_text("version: recon/v1\ndefaults: {settle: 0s, rereads: 0, delay: 0s}\n" + rules)
    return run(["recon", "run", str(path), "-c", str(config), *DAY, *arguments])


def test_a_parent_may_be_older_than_the_window_of_its_child(databases, config: Path) -> None:
    databases.source(
        "CREATE TABLE parents (id INT PRIMARY KEY, at DATETIME NOT NULL)",
        "INSERT INTO parents VALUES (1, '2025-06-01'), (2, '2026-01-02 10:00:00')",
    )
    databases.target(
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT, at DATETIME NOT NULL)",
        "INSERT INTO children VALUES (1, 1, '2026-01-02 11:00:00'), (2, 2, '2026-01-02 12:00:00')",
        "INSERT INTO children VALUES (3, 9, '2026-02-01')",
    )
    rules = f"""\
datasets:
  parents: {{endpoint: source, table: {databases.name}.parents, key: id, time: at}}
  children: {{endpoint: ledger, table: {databases.name}.children, key: id, time: at}}
rules:
  - {{name: r, kind: orphans, source: parents, target: children, reference: parent, window: 1d}}
"""
    assert verdict(config, rules) == 0
    databases.target("INSERT INTO children VALUES (4, 8, '2026-01-02 13:00:00')")
    assert verdict(config, rules) == 1


def test_parameters_mapping_and_shards_on_the_way_to_a_verdict(databases, config: Path) -> None:
    for number, rows in enumerate(("(1, 7, 1000, 'P'), (2, 8, 5, 'P')", "(3, 7, 2500, 'N')")):
        databases.source(
            f"CREATE TABLE orders_{number} (id INT PRIMARY KEY, tenant INT, cents BIGINT, status CHAR(1))",
            f"INSERT INTO orders_{number} VALUES {rows}",
        )
    databases.target(
        "CREATE TABLE payments (order_id BIGINT PRIMARY KEY, amount DECIMAL(20,2), state VARCHAR(9), note VARCHAR(20))",
        "INSERT INTO payments VALUES (1, 10.00, 'paid', 'it''s; :x'), (3, 25.00, 'new', '')",
    )
    rules = f"""\
parameters: {{tenant: integer, note: text}}
datasets:
  orders:
    union:
      range: 0..1
      template: {{endpoint: source, table: "{databases.name}.orders_{{n}}", where: "tenant = :tenant"}}
    columns: {{id: id, amount: "CAST(cents / 100 AS DECIMAL(20,2))", state: status}}
    values: {{state: {{P: paid, N: new}}}}
    key: id
  payments:
    endpoint: target
    sql: |
      SELECT order_id AS id, amount, state  -- of every note
      FROM {databases.name}.payments WHERE note = :note OR note = ''
    key: id
rules:
  - {{name: r, kind: same_rows, source: orders, target: payments}}
"""
    assert verdict(config, rules, "--param", "tenant=7", "--param", "note=it's; :x") == 0
    assert (
        verdict(config, rules, "--param", "tenant=7", "--param", "note=' OR 1=1 -- ") == 1
    )  # a value, so row 1 is missing
    assert verdict(config, rules, "--param", "tenant=8", "--param", "note=it's; :x") == 1
    assert verdict(config, rules, "--param", "tenant=8") == 2


PIECES = st.one_of(
    st.text(alphabet="'\"`\\-#/*!+ \n,2", max_size=6),
    st.text(alphabet="'\"\\a,-#/* ", max_size=8).map(lambda text: f"'{text}'"),
    st.text(alphabet="'\"\\a,-#/* ", max_size=8).map(lambda text: f'"{text}"'),
    st.text(alphabet="*/!-#',\n ", max_size=8).map(lambda text: f"/*{text}*/"),
    st.text(alphabet="*/!-#', ", max_size=8).map(lambda text: f"-- {text}\n"),
    st.text(alphabet="*/!-#', ", max_size=8).map(lambda text: f"#{text}\n"),
    st.sampled_from([" , 2", " , 'x'", " AS `a,b`", " "]),
)


def test_servers_split_sql_as_the_tokens_do(databases) -> None:
    """Where a rule's SQL is let through, the server has to see the same strings and comments: the same columns."""
    from migverify.db.session import open_session
    from migverify.errors import ReadError
    from migverify.model import Endpoint

    accepted = 0
    with ExitStack() as stack:
        sessions = []
        for place in (databases.pair.source, databases.pair.target):
            host, _, port = str(place).partition(":")
            sessions.append(stack.enter_context(open_session(Endpoint("source", host, int(port), "root"), None)))

        @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
        @given(st.lists(PIECES, max_size=6))
        def compare(pieces: list[str]) -> None:
            nonlocal accepted
            sql = "SELECT 1 , " + "".join(pieces)
            try:
                sent = check_query(sql)
            except SqlProblem:
                return
            columns = 1 + sum(token.kind is TokenKind.OPERATOR and token.text == "," for token in tokens(sql))
            for session in sessions:
                for text in (sql, sent):
                    try:
                        (row,) = session.query(text)
                    except ReadError:
                        continue  # a server may refuse what was let through; it must not read it as something else
                    assert len(row) == columns, text
                    accepted += 1

        compare()
    assert accepted > 50, "the generated SQL was never run, so this test says nothing"


def test_a_computed_quotient_has_one_text_on_both_servers_and_in_every_read(databases, config: Path) -> None:
    """TiDB writes a quotient with more digits inside of CONCAT, which packed reads use and lookups do not."""
    databases.both(
        "CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL, a DECIMAL(20,4) NOT NULL)",
        "INSERT INTO t VALUES (1, 1, 9767.75), (2, 1, -1), (3, 2, 0.0001), (4, 2, 9999999999999999.9999)",
    )
    name = databases.name
    query = f"SELECT g, SUM(ABS(a)) / 2 AS half, MAX(a) / 3 AS third FROM {name}.t GROUP BY g"
    rules = f"""\
datasets:
  ours: {{endpoint: source, sql: "{query}", key: g}}
  theirs: {{endpoint: target, sql: "{query}", key: g}}
  our_thirds: {{endpoint: source, table: {name}.t, key: id, columns: {{id: "", g: "", third: a / 3}}}}
  their_thirds: {{endpoint: target, table: {name}.t, key: id, columns: {{id: "", g: "", third: a / 3}}}}
  wrong: {{endpoint: target, sql: "{query} HAVING half > 1000 AND g = 1", key: g}}
rules:
  - {{name: quotients, kind: same_rows, source: ours, target: theirs, compare: [half, third]}}
  - {{name: mapped, kind: same_rows, source: our_thirds, target: their_thirds, compare: [third]}}
  - {{name: sums, kind: same_groups, source: our_thirds, target: their_thirds, groups: [g], measures: [sum(third)]}}
"""
    assert verdict(config, rules) == 0
    found = rules + "  - {name: none, kind: no_rows, source: wrong, show: [half], rereads: 1, delay: 10ms}\n"
    assert verdict(config, found) == 1, "a row that stood still is a finding, and not one that is being written"
