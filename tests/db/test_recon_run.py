"""Rules on real servers: every kind with a planted fault and without, late rows, exceptions, kill -9 and resume."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.model import TableResult, Verdict
from migverify.recon.listing import unsafe
from migverify.store.open import open_store

pytestmark = pytest.mark.db

TABLES = (
    "CREATE TABLE {d}.payments (id BIGINT PRIMARY KEY, order_id BIGINT, amount DECIMAL(24,4), currency CHAR(3),"
    " state VARCHAR(20), request VARCHAR(40), at DATETIME(6))",
    "CREATE TABLE {d}.entries (id BIGINT PRIMARY KEY, transaction_id BIGINT, account BIGINT, amount DECIMAL(24,4),"
    " currency CHAR(3))",
    "CREATE TABLE {d}.accounts (account BIGINT PRIMARY KEY, currency CHAR(3), balance DECIMAL(24,4))",
    "CREATE TABLE {d}.history (id BIGINT, n INT, state VARCHAR(20), PRIMARY KEY (id, n))",
)
PAYMENTS = (
    "INSERT INTO {d}.payments SELECT n, n, n + 0.25, IF(n % 2, 'EUR', 'JPY'), 'paid', CONCAT('r', n),"
    " '2026-01-01' + INTERVAL n HOUR FROM"
    " (WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60) SELECT n FROM s) AS s"
)
ENTRIES = (
    "INSERT INTO {d}.entries VALUES (1,1,7,10,'EUR'), (2,1,8,-10,'EUR'), (3,2,7,9007199254740993.0001,'EUR'),"
    " (4,2,8,-9007199254740993.0001,'EUR'), (5,3,7,-3.5,'JPY'), (6,3,8,3.5,'JPY')"
)
ACCOUNTS = (
    "INSERT INTO {d}.accounts VALUES (7,'EUR',9007199254741003.0001), (8,'EUR',-9007199254741003.0001), (9,'EUR',0)"
)
HISTORY = "INSERT INTO {d}.history VALUES (1,1,'new'), (1,2,'paid'), (1,3,'settled'), (2,1,'new'), (2,2,'cancelled')"
HEAD = """version: recon/v1
defaults: {{settle: 100ms, rereads: 1, delay: 20ms, owner: ann}}
datasets:
  ours: {{endpoint: source, table: "{d}.payments", key: [id]}}
  theirs: {{endpoint: target, table: "{d}.payments", key: [id]}}
  timed: {{endpoint: source, table: "{d}.payments", key: [id], time: at}}
  timed_too: {{endpoint: target, table: "{d}.payments", key: [id], time: at}}
  entries: {{endpoint: target, table: "{d}.entries", key: [id]}}
  eur: {{endpoint: target, sql: "SELECT * FROM {d}.entries WHERE currency = 'EUR'"}}
  accounts: {{endpoint: source, table: "{d}.accounts", key: [account]}}
  history: {{endpoint: target, table: "{d}.history", key: [id]}}
  large: {{endpoint: target, sql: "SELECT id, amount, currency FROM {d}.payments WHERE amount > 1000", key: [id]}}
rules:
"""
RULES = {
    "same_rows": "source: ours, target: theirs, money: {column: amount, currency: currency}",
    "same_groups": "source: ours, target: theirs, groups: [currency],"
    " measures: [count, sum(amount), 'checksum(id, state)'],"
    " money: {column: amount, currency: currency}",
    "zero_sum": "source: entries, groups: [transaction_id], amount: amount, currency: currency",
    "balance": "source: accounts, target: eur, balance: balance, entries_key: [account], amount: amount,"
    " currency: \"'EUR'\"",
    "transitions": "source: history, column: state, order: n, initial: [new], final: [settled, cancelled],"
    " allowed: {new: [paid, cancelled], paid: [settled]}",
    "orphans": "source: ours, target: theirs, reference: [order_id], money: {column: amount, currency: currency}",
    "unique": "source: theirs, key: [request], money: {column: amount, currency: currency}",
    "sequence": "source: theirs, column: id, start: 1",
    "freshness": "source: theirs, column: at, limit: 36500d",
    "coverage": "source: theirs, columns: {state: 1.0, request: 0.9}",
    "no_rows": "source: large, money: {column: amount, currency: currency}",
}
FAULTS: dict[str, tuple[str, list[str], str, dict[str, str]]] = {
    # kind: (fault on the target, keys found, words of the message, unexplained money)
    "same_rows": ("UPDATE {d}.payments SET amount = amount + 0.0001 WHERE id = 7", ["7"],
                  "amount 7.2500 on ours, 7.2501 on theirs", {"EUR": "0.0001"}),
    "same_groups": ("DELETE FROM {d}.payments WHERE id = 8", ["JPY", "row,8"], "sum(amount)", {"JPY": "8.2500"}),
    "zero_sum": ("UPDATE {d}.entries SET amount = amount - 0.0001 WHERE id = 3", ["2,EUR"],
                 "sum(amount) of entries is -0.0001, not 0", {"EUR": "0.0001"}),
    "balance": ("UPDATE {d}.entries SET amount = amount - 0.0001 WHERE id = 3", ["7"], "entries sum to",
                {"EUR": "0.0001"}),
    "transitions": ("INSERT INTO {d}.history VALUES (2,3,'paid')", ["2,3"],
                    "id 2: cancelled is final, and became paid", {}),
    "orphans": ("UPDATE {d}.payments SET order_id = 999 WHERE id = 5", ["999"], "1 row of theirs without ours",
                {"EUR": "5.2500"}),
    "unique": ("UPDATE {d}.payments SET request = 'r1' WHERE id = 3", ["r1"], "2 rows on theirs", {}),
    "sequence": ("DELETE FROM {d}.payments WHERE id IN (20, 21)", ["21"], "id 20 to 21 are missing", {}),
    "freshness": ("UPDATE {d}.payments SET at = '1900-01-01'", [""], "the newest row of theirs is", {}),
    "coverage": ("UPDATE {d}.payments SET state = NULL WHERE id = 4", [""], "state is there in 59 of 60 rows", {}),
    "no_rows": ("UPDATE {d}.payments SET amount = 1000.0001 WHERE id = 9", ["9"], "must not be there",
                {"EUR": "1000.0001"}),
}  # fmt: skip


class World:
    """Two servers with the same rows, rules in a folder, and what a run of them left in the store."""

    def __init__(self, databases: Any, folder: Path) -> None:
        self.folder, self.databases = folder, databases
        self.d = databases.name if hasattr(databases, "name") else str(databases)
        folder.joinpath("migverify.yaml").write_text(
            f'source: {{url: "mysql://root@{databases.pair.source}"}}\n'
            f'target: {{url: "tidb://root@{databases.pair.target}"}}\nreport: {{values: true}}\n'
        )
        databases.both(*(text.format(d=self.d) for text in (*TABLES, PAYMENTS, ENTRIES, ACCOUNTS, HISTORY)))

    def rules(self, *kinds: str, more: str = "", after: str = "", **replaced: str) -> Path:
        texts = {kind: replaced.get(kind, RULES[kind]) for kind in kinds}
        listed = "".join(f"  - {{name: {kind}, kind: {kind}, {text}{more}}}\n" for kind, text in texts.items())
        path = self.folder / "recon.yaml"
        path.write_text(HEAD.format(d=self.d) + listed + after)
        return path

    def command(self, path: Path, *arguments: str) -> list[str]:
        config = str(self.folder / "migverify.yaml")
        return ["recon", "run", str(path), "-c", config, "--store", self.url, "-q", *arguments]

    def run(self, path: Path, *arguments: str) -> int:
        return run(self.command(path, *arguments))

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'runs.db'}"

    def results(self) -> dict[str, TableResult]:
        store = open_store(self.url)
        try:
            return {result.pair: result for result in store.table_results(store.load_run("last").run_id)}
        finally:
            store.close()

    def findings(self, rule: str) -> list[dict[str, Any]]:
        store = open_store(self.url)
        try:
            return [body for _, body in store.findings(store.load_run("last").run_id, rule)]
        finally:
            store.close()


@pytest.fixture
def world(databases: Any, tmp_path: Path) -> World:
    return World(databases, tmp_path)


def test_every_kind_matches_sound_data_and_finds_its_planted_fault(world: World) -> None:
    code = world.run(world.rules(*RULES))
    verdicts = {name: (result.verdict, result.reasons) for name, result in world.results().items()}
    assert {name: verdict for name, (verdict, _) in verdicts.items()} == dict.fromkeys(RULES, Verdict.MATCH), verdicts
    assert code == 0
    tables = ("payments", "entries", "history")
    for name in tables:
        world.databases.target(f"CREATE TABLE {world.d}.sound_{name} LIKE {world.d}.{name}",
                               f"INSERT INTO {world.d}.sound_{name} SELECT * FROM {world.d}.{name}")  # fmt: skip
    for kind, (fault, keys, words, money) in FAULTS.items():
        world.databases.target(fault.format(d=world.d))
        assert world.run(world.rules(kind)) == 1, kind
        result, found = world.results()[kind], world.findings(kind)
        assert result.verdict is Verdict.MISMATCH
        assert sorted(",".join(map(str, body["key"])) for body in found) == sorted(keys), kind
        assert any(words in body["message"] for body in found), [body["message"] for body in found]
        assert result.details["recon"]["unexplained"] == money, kind
        for name in tables:
            world.databases.target(f"DELETE FROM {world.d}.{name}",
                                   f"INSERT INTO {world.d}.{name} SELECT * FROM {world.d}.sound_{name}")  # fmt: skip


@pytest.mark.parametrize("endpoint", ["source", "target"])
def test_a_query_that_hits_its_time_limit_makes_its_rule_inconclusive(world: World, endpoint: str) -> None:
    config = world.folder / "migverify.yaml"
    config.write_text(config.read_text() + "limits: {rule_query_seconds: 3}\n")
    path = world.rules("no_rows", "same_rows", no_rows="source: endless")
    text = path.read_text()
    crossed = " JOIN ".join(f"{world.d}.payments AS t{n}" for n in range(5))
    endless = (
        f'  endless: {{endpoint: {endpoint}, sql: "SELECT t0.id FROM {crossed} WHERE t0.id+t1.id+t2.id+t3.id+t4.id<0"'
    )
    path.write_text(text.replace("rules:\n", f"{endless}, key: [id]}}\nrules:\n"))
    assert world.run(path) == 3
    results = world.results()
    assert results["same_rows"].verdict is Verdict.MATCH
    assert results["no_rows"].verdict is Verdict.INCONCLUSIVE
    assert "a query hit its time limit" in " ".join(results["no_rows"].reasons)
    assert "limits.rule_query_seconds" in " ".join(results["no_rows"].reasons)


@pytest.mark.parametrize("command", ["run", "watch", "check"])
def test_everything_that_does_not_fit_is_told_at_once(
    world: World, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = world.rules("same_rows", "unique", unique=RULES["unique"].replace("request", "gone"))
    text = path.read_text().replace("kind: same_rows", "kind: same_rows, compare: [nope]")
    suite = "[{type: expect_column_values_to_not_be_null, column: lost}]"
    path.write_text(text + f"  - {{name: fits, kind: expectations, source: ours, suite: {suite}}}\n")
    config = str(world.folder / "migverify.yaml")
    more = [] if command == "check" else ["--store", world.url, "-q" if command == "run" else "--once"]
    assert run(["recon", command, str(path), "-c", config, *more]) == 2
    told = capsys.readouterr().err
    for words in ("3 problems", "nope", "gone", "lost", "rule same_rows", "rule unique", "rule fits"):
        assert words in told, told
    store = open_store(world.url)
    assert store.runs() == []
    store.close()


def test_a_group_that_lies_in_several_shards_names_all_of_them(world: World) -> None:
    kind = "same_groups"
    rule = "source: parts, target: entries, groups: [transaction_id], measures: [sum(amount)]"
    text = world.rules(kind, same_groups=rule).read_text()
    union = (f"  parts: {{union: {{shards: [1, 2, 3], template: {{endpoint: source, sql: \"SELECT * FROM"
             f" `{world.d}`.entries WHERE id % 3 + 1 = '{{shard}}'\"}}}}, key: [id]}}\n")  # fmt: skip
    union = union.replace("WHERE id % 3 + 1 = '{shard}'", "JOIN `r8_{shard}` USING (id)")
    path = world.folder / "recon.yaml"
    tables = [f"CREATE TABLE {world.d}.`r8_{n}` AS SELECT id FROM {world.d}.entries WHERE id % 3 + 1 = {n}"
              for n in (1, 2, 3)]  # fmt: skip
    world.databases.source(*tables, f"UPDATE {world.d}.entries SET amount = amount + 1 WHERE id = 1")
    union = union.replace("JOIN `r8_", f"JOIN `{world.d}`.`r8_")
    path.write_text(text.replace("rules:\n", union + "rules:\n"))
    assert world.run(path) == 1
    groups = [body for body in world.findings(kind) if body["key"][0] == "1"]
    assert [body["shard"] for body in groups] == ["2, 3"], groups


def test_rows_within_their_settle_time_are_pending(world: World) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    world.databases.source(f"INSERT INTO {world.d}.payments VALUES (61, 61, 1, 'EUR', 'paid', 'r61', '{now}')")
    rule = "source: timed, target: timed_too, settle: 60s"
    assert world.run(world.rules("same_rows", same_rows=rule)) == 3
    assert [body["kind"] for body in world.findings("same_rows")] == ["pending"]


@pytest.mark.parametrize(("days", "code", "kind"), [(1, 0, "known exception"), (-1, 1, "value mismatch")])
def test_an_exception_holds_until_it_expires(world: World, days: int, code: int, kind: str, tmp_path: Path) -> None:
    world.databases.target(f"UPDATE {world.d}.payments SET state = '=HYPERLINK(1)' WHERE id = 7")
    until = (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")
    entry = f"exceptions:\n  - {{rule: same_rows, key: [7], owner: bob, reason: ticket, expires: '{until}'}}\n"
    listing = tmp_path / "findings.csv"
    assert world.run(world.rules("same_rows", after=entry), "--csv", str(listing)) == code
    with listing.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == [kind]
    assert "bob" in rows[0]["reason"]
    assert json.loads(unsafe(rows[0]["deviations"]))[0][2] == "=HYPERLINK(1)"


def test_windows_are_evaluated_one_by_one_and_neighbors_are_looked_at(world: World) -> None:
    world.databases.target(
        f"UPDATE {world.d}.payments SET at = '2026-01-02 00:00:00.5' WHERE id = 24",
        f"UPDATE {world.d}.payments SET at = '2026-01-01 23:59:59.5' WHERE id = 24",
        f"DELETE FROM {world.d}.payments WHERE id = 30",
    )
    rule = "source: timed, target: timed_too, compare: [amount], window: 1d, settle: 1s"
    path = world.rules("same_rows", same_rows=rule)
    assert world.run(path, "--from", "2026-01-01", "--to", "2026-01-04") == 1
    found = {tuple(body["key"]): (body["kind"], body["window"]) for body in world.findings("same_rows")}
    day_one, day_two = ("[2026-01-01 00:00:00, 2026-01-02 00:00:00)", "[2026-01-02 00:00:00, 2026-01-03 00:00:00)")
    assert found[("30",)] == ("missing on target", day_two)
    assert list(found) == [("30",)], "a row that matches across the border is no finding"
    details = world.results()["same_rows"].details["recon"]
    assert (details["covered"]["matched"], details["covered"]["crossed"]) == (59, 1)
    assert (details["windows"]["count"], details["windows"]["first"]) == (3, day_one)


def test_an_error_of_one_rule_is_its_own_reason(world: World) -> None:
    path = world.rules("same_rows", "zero_sum")
    gone = 'gone: {endpoint: closed, sql: "SELECT 1 AS a"}'
    text = path.read_text().replace("accounts: {endpoint", f"{gone}\n  accounts: {{endpoint")
    text += "  - {name: closed, kind: no_rows, source: gone}\n"
    path.write_text(text)
    config = world.folder / "migverify.yaml"
    config.write_text(config.read_text() + 'endpoints: {closed: {url: "mysql://root@127.0.0.1:1"}}\n')
    assert world.run(path) == 3
    results = world.results()
    assert {name: result.verdict for name, result in results.items()} == {
        "same_rows": Verdict.MATCH, "zero_sum": Verdict.MATCH, "closed": Verdict.INCONCLUSIVE,
    }  # fmt: skip
    assert "127.0.0.1:1" in " ".join(results["closed"].reasons)


def test_values_are_masked_unless_the_configuration_allows_them(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    config = world.folder / "migverify.yaml"
    config.write_text(config.read_text().replace("values: true", "values: false"))
    world.databases.target(
        f"UPDATE {world.d}.payments SET state = 'top secret' WHERE id = 7",
        f"UPDATE {world.d}.payments SET amount = 1000.5, request = 'top secret 2' WHERE id = 9",
    )
    path = world.rules("same_rows", "no_rows", no_rows="source: large")
    text = path.read_text().replace("SELECT id, amount, currency FROM", "SELECT request, state, amount FROM")
    path.write_text(text.replace('1000", key: [id]', '1000"'))
    assert world.run(path, "--csv", str(world.folder / "f.csv"), "--json") == 1
    said = capfd.readouterr()
    kept = (world.folder / "f.csv").read_text() + said.out + said.err + json.dumps(world.findings("no_rows"))
    assert "top secret" not in kept
    assert "state differs" in kept
    assert "sha256:" in kept


def test_kill_9_in_the_middle_and_resume(world: World) -> None:
    world.databases.target(f"DELETE FROM {world.d}.payments WHERE id IN (3, 30)")
    rule = "source: timed, target: timed_too, window: 1d, settle: 1s, rereads: 1, delay: 1500ms"
    path = world.rules("zero_sum", "same_rows", same_rows=rule)
    command = [sys.executable, "-m", "migverify", *world.command(path, "--from", "2026-01-01", "--to", "2026-01-04")]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _done(world, 1):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    store = open_store(world.url)
    info = store.load_run("last")
    first = [body for body in store.windows(info.run_id, "same_rows") if body["state"] == "done"]
    store.close()
    assert info.finished is None
    assert 1 <= len(first) < 3
    assert world.run(path, "--from", "2026-01-01", "--to", "2026-01-04", "--resume", "last") == 1
    store = open_store(world.url)
    again = list(store.windows(info.run_id, "same_rows"))
    resumed = store.load_run(info.run_id)
    store.close()
    assert (resumed.verdict, len(again)) == (Verdict.MISMATCH, 3)
    assert again[: len(first)] == first, "finished windows are not evaluated again"
    assert sorted(body["key"][0] for body in world.findings("same_rows")) == ["3", "30"]
    assert world.results()["zero_sum"].verdict is Verdict.MATCH


def _done(world: World, number: int) -> bool:
    if not (world.folder / "runs.db").exists():
        return False
    store = open_store(world.url)
    try:
        runs = store.runs(1)
        ended = [b for b in store.windows(runs[0].run_id, "same_rows") if b["state"] == "done"] if runs else []
        return len(ended) >= number
    finally:
        store.close()


def test_a_run_with_other_rules_is_not_resumed(world: World) -> None:
    assert world.run(world.rules("zero_sum")) == 0
    assert world.run(world.rules("zero_sum", "unique"), "--resume", "last") == 2


def test_explain_shows_what_runs(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    path = world.rules(*RULES)
    suite = "[{type: expect_column_sum_to_be_between, column: amount, min_value: 7}]"
    path.write_text(path.read_text() + f"  - {{name: suite, kind: expectations, source: theirs, suite: {suite}}}\n")
    config = str(world.folder / "migverify.yaml")
    assert run(["recon", "explain", str(path), "-c", config]) == 0
    text = capfd.readouterr().out
    for kind in RULES:
        assert f"{kind}  ({kind}, critical, ann)" in text
    assert "CAST(SUM(`amount`) AS CHAR) AS o0, SUM(`amount`) >= 7 AS h0 FROM (SELECT" in text, "a suite shows its SQL"
    assert run(["recon", "explain", str(path), "-c", config, "--rule", "same_rows", "--json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert [read["endpoint"] for read in plan["rules"][0]["reads"]] == ["source", "target"]


@pytest.mark.parametrize("endpoint", ["source", "target"])
@pytest.mark.parametrize("kind", ["no_rows", "unique", "coverage"])
def test_a_value_that_the_server_could_not_compute_is_no_match(world: World, kind: str, endpoint: str) -> None:
    rule = RULES[kind].replace("theirs", "odd").replace("large", "odd")
    odd = f'  odd: {{endpoint: {endpoint}, sql: "SELECT * FROM {world.d}.payments WHERE state = 7", key: [id]}}\n'
    path = world.rules(kind, **{kind: rule})
    path.write_text(path.read_text().replace("rules:\n", f"{odd}rules:\n"))
    assert world.run(path) == 3
    (reason,) = (one for one in world.results()[kind].reasons if one.startswith("not read"))
    # The state 'paid' was compared as the number 0.
    assert "the server warned that a value is not what it was: 1292: " in reason


def test_money_is_exact_above_what_a_float_holds(world: World) -> None:
    world.databases.both(f"UPDATE {world.d}.payments SET amount = 9007199254740993.0001")
    world.databases.target(f"UPDATE {world.d}.payments SET amount = 9007199254740993.0002")
    assert world.run(world.rules("same_rows")) == 1
    at_risk = world.results()["same_rows"].details["recon"]["unexplained"]
    assert {currency: Decimal(value) for currency, value in at_risk.items()} == {
        "EUR": Decimal("0.0030"), "JPY": Decimal("0.0030"),
    }  # fmt: skip
