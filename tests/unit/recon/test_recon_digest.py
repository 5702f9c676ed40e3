"""The digest of unchanged rules never changes: a resumed run recognizes the rules of an earlier run by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.recon.load import load_rules

RULES = """\
version: recon/v1
defaults: {owner: ann, severity: major, settle: 30s, window: 1h, rereads: 3, delay: 2s}
parameters:
  tenant: integer
  since: {type: date, default: 2026-01-31}
  least: {type: decimal, default: 0.10}
  note: {type: text, default: "x"}
  at: {type: datetime, default: "2026-01-31T09:00:00+09:00"}
datasets:
  orders:
    endpoint: source
    table: shop.`a.b`
    where: "tenant = :tenant -- of one\\n AND at >= :since"
    columns: {id: "", amount: cents / 100, cur: "'JPY'", status: "", at: ""}
    values: {status: {P: paid, 1: one}}
    key: id
    time: at
  payments:
    endpoint: target
    sql: SELECT id, amount, cur, status, order_id, at FROM pay.p WHERE at >= :window_start AND at < :window_end
    key: [id]
    time: at
  shards:
    union:
      template: {endpoint: source, table: "pay_{n:02}.orders", where: deleted = 0}
      range: 00..03
    columns: [id, amount, at]
    key: id
    time: at
  files: {parquet: "old/*.parquet", key: id}
  moves: {changes: shop.orders, endpoint: source, operations: [insert, update], key: id}
  last: {changes: shop.orders, path: archive, state: true, key: id, time: _time}
  history: {endpoint: target, table: pay.history, key: id, time: at, static: true,
     where: "n > :least AND t = :note AND at < :at"}
rules:
  - {name: rows, kind: same_rows, source: orders, target: payments, compare: [amount, status],
     tolerance: {amount: 0.01}, money: {column: amount, currency: cur}, duplicates: allow, description: all}
  - {name: groups, kind: same_groups, source: orders, target: payments, groups: cur,
     measures: [count, sum( amount ), "checksum(amount, status)", max(at)], tolerance: {sum( amount ): 1, count: 2},
     window: {every: 1d, start: "2026-01-01T00:00:00+09:00", immutable: 7d}, severity: warning, owner: bob}
  - {name: drilled, kind: same_groups, source: orders, target: history, groups: [cur], measures: [count],
     compare: amount, drill: false, window: none}
  - {name: zero, kind: zero_sum, source: orders, groups: [cur, status], amount: amount, currency: cur, window: none}
  - {name: balance, kind: balance, source: history, target: orders, balance: amount, entries_key: id, amount: amount,
     currency: cur, key: id, tolerance: {amount: 0.5}}
  - {name: steps, kind: transitions, source: moves, column: status, allowed: {P: [A, 1], A: []}, initial: [P],
     final: [A], window: 5m30s}
  - {name: orphans, kind: orphans, source: orders, target: payments, reference: order_id, both: true, settle: 500ms}
  - {name: unique, kind: unique, source: shards, ignore_null: false}
  - {name: numbers, kind: sequence, source: history, column: n, groups: tenant, start: 5}
  - {name: fresh, kind: freshness, source: history, limit: 1d12h, groups: [tenant]}
  - {name: covered, kind: coverage, source: orders, columns: {status: 0.99}, window: none}
  - {name: none, kind: no_rows, source: files, show: [id], limit: 5, window: none}
  - {name: fit, kind: expectations, source: history, window: none,
     suite: [{type: expect_column_values_to_not_be_null, kwargs: {column: amount}}]}
exceptions:
  - {rule: rows, key: 7, owner: ann, reason: ticket 7, expires: 2027-01-01}
  - {rule: groups, owner: ann, reason: all, expires: "2027-01-01T00:00:00Z"}
  - {rule: covered, key: [a], owner: ann, reason: one, expires: 2027-01-01}
"""


def test_a_digest_written_by_the_first_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recon.yaml").write_text(RULES, encoding="utf-8")
    rules = load_rules(Path("recon.yaml"), ["source", "target"])
    assert rules.digest == "4606137d93ce0ecbd2356fbd4edc9151e7c56febfd08f62a6a56b67a213867aa"
