"""Conditions that no journal shows: each by itself, and that what is not known is never ready."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.config import load_config
from migverify.errors import StoreError
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.model import Endpoint, RunInfo, StoredKind, TableResult, Verdict
from migverify.runbook.model import Person, Policy, Role, Runbook
from migverify.runbook.readiness import standing
from migverify.runbook.readiness.standing import DAY, LackingOf, LastProof, LogPlace
from migverify.runbook.readiness.standing_reads import newest_proof
from migverify.sql.identity import UNKNOWN_ID, TableIdentity
from migverify.tables.directions import WatchView
from migverify.tables.last_status import LastStatus
from migverify.tables.run_facts import ALL_TABLES, CHOSEN
from tests.unit.runbook.test_readiness_watch import small
from tests.unit.runbook_runs import runbook, step

NOW = 1_800_000_000.0
PASS, WARN, FAIL, OPEN = AnswerState.PASS, AnswerState.WARN, AnswerState.FAIL, AnswerState.INCONCLUSIVE


def answer(name: str, state: AnswerState = PASS, value: str = "fine", subject: str = "source") -> GuardAnswer:
    return GuardAnswer("check", name, subject, state, value, "", "", "", "Mend it." if state is FAIL else "")


UP = [answer("reachable"), answer("reachable", subject="target")]


@pytest.mark.parametrize(
    ("id_", "answers", "state", "reason"),
    [
        ("servers", UP, "ok", ""),
        ("servers", [UP[0], answer("reachable", OPEN, "no answer", "target")], "unknown", "target was not asked"),
        ("servers", [], "unknown", "no server answered"),
        ("limits", [*UP, answer("connections", value="3 used of 100"), answer("disk")], "ok", ""),
        ("limits", [*UP, answer("connections", FAIL, "98 used of 100")], "missing", "source: connections: 98 used"),
        ("limits", [*UP, answer("connections"), answer("disk", FAIL, "1GiB left", "target/kv1")], "missing", "kv1"),
        ("limits", [*UP, answer("connections", OPEN, "PROCESS")], "unknown", "connections: PROCESS is not known"),
        ("limits", [UP[0], answer("reachable", OPEN, "gone", "target"), answer("connections")], "unknown", "was not"),
        ("limits", UP, "unknown", "no server answered"),
        ("certificate", [*UP, answer("tls", value="the certificate ends in 90 days")], "ok", ""),
        ("certificate", [*UP, answer("tls", WARN, "not verified")], "ok", ""),
        ("certificate", [*UP, answer("tls", FAIL, "the certificate ends in 13 days")], "missing", "in 13 days"),
        ("certificate", [*UP, answer("tls", OPEN, "?")], "unknown", "tls"),
        ("retention", [*UP, answer("gc-life-time"), answer("binlog tables", FAIL)], "ok", ""),
        ("retention", [*UP, answer("gc-life-time", FAIL, "10m0s", "target")], "missing", "gc-life-time: 10m0s"),
        ("retention", [*UP, answer("binlog binlog_expire_logs_seconds", OPEN, "?")], "unknown", "expire"),
        ("retention", [*UP, answer("binlog binary logs", FAIL, "none")], "missing", "binary logs: none"),
        ("retention", [*UP, answer("binlog log_bin", FAIL, "OFF")], "missing", "log_bin: OFF"),
    ],
)  # fmt: skip
def test_what_the_guard_of_settings_answers(id_: str, answers: list[GuardAnswer], state: str, reason: str) -> None:
    found = standing.answered(id_, answers)
    assert found.state == state
    assert any(reason in one for one in found.reasons) if reason else not found.reasons
    if state == "missing":
        assert found.do


def test_what_is_denied_needs_a_grant_and_no_longer_retention() -> None:
    refused = "SELECT command denied to user 'mv'@'%' for table 'tidb'"
    denied = answer("gc-safe-point", AnswerState.INCONCLUSIVE, refused, "target")
    found = standing.retention((), [denied], NOW)
    assert found.state == "unknown"
    assert found.do == "Grant what is denied: migverify config --grants --for 'guard settings'"
    failed = answer("gc-life-time", AnswerState.FAIL, "10m", "target")
    assert "Grant" not in standing.retention((), [denied, failed], NOW).do


def test_a_failure_counts_more_than_a_server_that_is_silent() -> None:
    silent = answer("reachable", OPEN, "gone", "target")
    found = standing.answered("limits", [UP[0], silent, answer("connections", FAIL, "full")])
    assert (found.state, len(found.reasons)) == ("missing", 2)


@pytest.mark.parametrize(
    ("answers", "asked", "state"),
    [
        (None, None, "not asked"),
        ([answer("disk")], NOW - DAY, "ok"),
        ([answer("disk")], NOW - 8 * DAY, "unknown"),
        ([answer("disk", FAIL)], NOW - 8 * DAY, "missing"),
        ([answer("disk", OPEN)], NOW, "unknown"),
        ([], NOW, "unknown"),
        ([answer("disk")], NOW + 1.0, "ok"),
        ([answer("disk")], NOW + 3600.0, "unknown"),
        ([answer("disk")], float("nan"), "unknown"),
        ([answer("disk", FAIL)], NOW + 3600.0, "missing"),
    ],
)
def test_what_the_guard_of_capacity_answered_last(answers: Any, asked: float | None, state: str) -> None:
    assert standing.capacity(answers, asked, NOW, 7 * DAY).state == state


def test_a_revoked_grant_is_named_with_the_account_and_the_statement() -> None:
    held = LackingOf("source", "mv@%")
    revoked = LackingOf("target", "mv@%", {"`pay`.*": ("SELECT",)}, ("GRANT SELECT ON `pay`.* TO `mv`@`%`;",))
    silent = LackingOf("target", problem="cannot connect")
    assert standing.grants([held]).state == "ok"
    found = standing.grants([held, revoked])
    assert (found.state, found.reasons) == ("missing", ("target: mv@% lacks SELECT on `pay`.*",))
    assert found.do == "On target: GRANT SELECT ON `pay`.* TO `mv`@`%`;"
    assert standing.grants([held, silent]).state == "unknown"
    assert standing.grants([]).state == "unknown"


# --- people --------------------------------------------------------------------------------------------------------

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAlice comment"


def cast(**people: dict[str, Any]) -> Runbook:
    book = runbook(step("a"))
    persons = {name: Person(name=name, **given) for name, given in people.items()}
    roles = {"coordinator": Role(name="coordinator", person="alice"), "dba": Role(name="dba", person="bob")}
    return book.model_copy(update={"people": persons, "roles": roles})


@pytest.mark.parametrize(
    ("now", "reasons"),
    [
        ({"alice": {"ssh_key": KEY}, "bob": {}}, ()),
        ({"alicia": {"ssh_key": KEY, "aliases": ("alice",)}, "bob": {}}, ()),
        ({"alice": {"ssh_key": KEY.replace("comment", "laptop")}, "bob": {}, "eve": {}}, ()),
        ({"bob": {}}, ("alice left: coordinator in r1, and none of the people any more",)),
        ({"alice": {}, "bob": {}}, ("alice had a key in r1, and has none any more",)),
        ({"alice": {"ssh_key": KEY.replace("IAlice", "IMallory")}, "bob": {}},
         ("the key of alice is another one than in r1",)),
    ],
)  # fmt: skip
def test_who_left_and_whose_key_is_gone(now: dict[str, Any], reasons: tuple[str, ...]) -> None:
    found = standing.people(cast(**now), cast(alice={"ssh_key": KEY}, bob={}, carol={}), "r1")
    assert found.reasons == reasons
    assert found.state == ("missing" if reasons else "ok")


@pytest.mark.parametrize(("who", "part"), [("alice", "coordinator"), ("carol", "acted")])
def test_somebody_who_acted_in_the_last_drill_and_left_counts_whatever_the_cast_has_to_be(who: str, part: str) -> None:
    drilled = cast(alice={}, bob={}, carol={})
    lowered = Policy.model_validate({"readiness": {"full_cast_last": False}})
    left = {name: {} for name in ("alice", "bob", "carol") if name != who}
    book = cast(**left).model_copy(update={"policy": lowered})
    found = standing.people(book, drilled, "r1", (who, "bob"))
    assert found.reasons == (f"{who} left: {part} in r1, and none of the people any more",)
    assert found.state == "missing"
    renamed = cast(**left, frida={"aliases": (who,)}).model_copy(update={"policy": lowered})
    assert standing.people(renamed, drilled, "r1", (who, "bob")).state == "ok"
    assert standing.people(book, drilled, "r1", ("bob",)).state == "ok"


def test_people_without_a_drill_or_without_keys_where_approvals_are_signed() -> None:
    book = cast(alice={"ssh_key": KEY}, bob={})
    assert standing.people(book, None, "").state == "not asked"
    signed = book.model_copy(update={"policy": Policy(signed_approvals=True)})
    found = standing.people(signed, signed, "r1")
    assert found.reasons == ("bob has no key, and approvals are to be signed",)


# --- watch, proof, log ----------------------------------------------------------------------------------------------


def view(state: str = "alive", **more: Any) -> WatchView:
    last = LastStatus(NOW - 1, Verdict.MATCH, "binlog.7:1", "binlog.7:1", 0, None, 0, "")
    given = {"last": replace(last, **more) if more.pop("_", True) else None}
    return WatchView("w1", False, state, Verdict.MATCH, "", given["last"], None, None, "", "", "", None)


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (None, "not asked", ""),
        (view(), "ok", ""),
        (view("not alive"), "missing", "not alive"),
        (view("ended"), "missing", "ended"),
        (view(at=NOW - 61), "missing", "stalled"),
        (view(oldest_seconds=301.0), "missing", "behind"),
        (view(oldest_seconds=299.0), "ok", ""),
        (view(oldest_seconds=float("nan")), "missing", "behind"),
        (view(at=NOW + 1.0), "ok", ""),
        (view(at=NOW + 3600.0), "unknown", "a clock is wrong"),
        (view(at=float("nan")), "unknown", "it is not known when"),
        (view(verdict=Verdict.MISMATCH, reason="1 key differs"), "missing", "1 key differs"),
        (view(verdict=Verdict.INCONCLUSIVE, reason="no position"), "unknown", "no position"),
        (replace(view(), last=None), "unknown", "no status"),
    ],
)
def test_a_watch_that_stalls_or_ends(found: WatchView | None, state: str, reason: str) -> None:
    condition = standing.watch(found, NOW, 300.0)
    assert condition.state == state
    assert any(reason in one for one in condition.reasons) if reason else not condition.reasons


@pytest.mark.parametrize(
    ("newest", "state"),
    [
        (None, "missing"),
        (LastProof("r", Verdict.MATCH, NOW - 6 * DAY), "ok"),
        (LastProof("r", Verdict.MATCH, NOW - 8 * DAY), "missing"),
        (LastProof("r", Verdict.MATCH, NOW + 30 * DAY), "unknown"),
        (LastProof("r", Verdict.MATCH, float("nan")), "unknown"),
        (LastProof("r", Verdict.MISMATCH, NOW), "missing"),
        (LastProof("r", Verdict.INCONCLUSIVE, NOW), "unknown"),
    ],
)
def test_a_proof_that_is_too_old(newest: LastProof | None, state: str) -> None:
    assert standing.proof(newest, NOW, 7 * DAY).state == state


READ = {"source/a.t": "1", "source/a.u": "2", "target/a.t": "3", "target/a.u": "4"}


@pytest.mark.parametrize(
    ("now", "reasons"),
    [
        (READ, ()),
        ({**READ, "target/a.t": "9"}, ("target/a.t is defined otherwise than run r read it",)),
        ({name: one for name, one in READ.items() if name != "target/a.u"}, ("target/a.u is gone since run r",)),
        ({**READ, "source/a.v": "5"}, ("source/a.v is new since run r",)),
        ({**READ, "target/a.v": "5"}, ()),
        ({}, tuple(f"{name} is gone since run r" for name in sorted(READ))),
    ],
)
def test_a_proof_is_of_the_tables_as_it_read_them(now: dict[str, str], reasons: tuple[str, ...]) -> None:
    proof = LastProof("r", Verdict.MATCH, NOW, (), READ)
    found = standing.tables(proof, now)
    assert (found.state, found.reasons) == ("missing" if reasons else "ok", reasons)
    assert standing.tables(replace(proof, layouts={}), now).state == "unknown"
    assert standing.tables(None, now).state == "not asked"


def identity(number: str = "7", altered: str = "2026-01-01 00:00:00", **partitions: str) -> TableIdentity:
    return TableIdentity("BASE TABLE", tuple(sorted({"": number, **partitions}.items())), altered, "c")


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (identity(), identity(), "ok"),
        (identity(), identity(altered="2026-02-02 00:00:00"), "ok"),  # its definition says what that was
        (identity(), identity("8"), "unknown"),
        (identity(p1="1", p2="2"), identity(p2="2", p3="3"), "ok"),
        (identity(p1="1", p2="2"), identity(p1="1", p2="9"), "unknown"),
        (identity(UNKNOWN_ID), identity(UNKNOWN_ID, "2026-01-01 00:00:00, read at 2026-01-01 00:00:01"), "ok"),
        (identity(UNKNOWN_ID), identity(UNKNOWN_ID, "2026-02-02 00:00:00"), "unknown"),
    ],
)
def test_a_table_that_is_another_one_now_is_not_known(before: TableIdentity, after: TableIdentity, state: str) -> None:
    """The target was emptied, or restored from a copy, after its proof: it is defined as it was."""
    proof = LastProof("r", Verdict.MATCH, NOW, (), READ, "", {"target/a.t": before, "target/a.u": identity()})
    found = standing.tables(proof, READ, {"target/a.t": after, "target/a.u": identity()})
    assert found.state == state
    assert state == "ok" or "target/a.t was emptied, swapped" in found.reasons[0]


def test_a_target_that_was_made_anew_by_the_same_script_is_not_known() -> None:
    """Its tables have the ids that they had, and are all younger."""
    then = {f"{side}/a.{name}": identity(name) for side in ("source", "target") for name in "tu"}
    now = then | {f"target/a.{name}": identity(name, "2026-02-02 00:00:00") for name in "tu"}
    found = standing.tables(LastProof("r", Verdict.MATCH, NOW, (), READ, "", then), READ, now)
    assert [one.partition(" was")[0] for one in found.reasons] == ["target/a.t", "target/a.u"]


def test_many_changed_tables_are_counted() -> None:
    read = {f"source/a.t{number:02}": "1" for number in range(20)}
    found = standing.tables(LastProof("r", Verdict.MATCH, NOW, (), read), dict.fromkeys(read, "2"))
    assert found.reasons[-1] == "12 more are"
    assert len(found.reasons) == 9


def test_a_proof_says_what_it_leaves_out() -> None:
    newest = LastProof("r", Verdict.MATCH, NOW - DAY, left_out="4 tables, 4 of them in part (where)")
    assert standing.proof(newest, NOW, 7 * DAY).found == "run r, 1.0 days old; 4 tables, 4 of them in part (where)"


FILES = ("binlog.1", "binlog.2", "binlog.3")
PLACE = LogPlace("source", "watch w1", "binlog.2", FILES, NOW - DAY, 7 * DAY)
KEPT = [*UP, answer("binlog binlog_expire_logs_seconds", value="604800"), answer("gc-life-time", subject="target")]


@pytest.mark.parametrize(
    ("place", "state", "reason"),
    [
        (PLACE, "ok", ""),
        (replace(PLACE, file="binlog.0"), "missing", "is purged"),
        (replace(PLACE, closed=NOW - 6.5 * DAY), "missing", "is purged in 12.0 h"),
        (replace(PLACE, closed=NOW - 9 * DAY), "missing", "is purged in 0.0 h"),
        (replace(PLACE, closed=NOW - 900 * DAY, seconds=0.0), "ok", ""),
        (replace(PLACE, file="binlog.3", closed=None, seconds=None), "ok", ""),
        (replace(PLACE, seconds=None), "unknown", "not known"),
        (replace(PLACE, closed=None), "unknown", "not known"),
        (replace(PLACE, problem="cannot connect"), "unknown", "cannot connect"),
    ],
)
def test_a_log_that_watch_or_proof_go_on_from(place: LogPlace, state: str, reason: str) -> None:
    found = standing.retention([place], KEPT, NOW)
    assert found.state == state
    assert any(reason in one for one in found.reasons) if reason else not found.reasons


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("binlog_expire_logs_seconds", "604800", 604800.0),
        ("binlog_expire_logs_auto_purge", "OFF", 0.0),
        ("binlog retention hours", "24", DAY),
        ("expire_logs_days", "7", 7 * DAY),
        ("binlog retention hours", "NULL", None),
        ("sync_binlog", "1", None),
    ],
)
def test_how_long_a_source_keeps_its_log(name: str, value: str, seconds: float | None) -> None:
    assert standing.retention_seconds("source", [answer(f"binlog {name}", value=value)]) == seconds
    assert standing.retention_seconds("source.b", [answer(f"binlog {name}", value=value)]) is None


ADDRESSES = {"source": {"address": "127.0.0.1:1"}, "target": {"address": "127.0.0.1:2"}}
PAIR = SimpleNamespace(
    endpoints=(Endpoint("source", "127.0.0.1", 1, "u"), Endpoint("target", "127.0.0.1", 2, "u"))
)  # fmt: skip


class Runs:
    """A store with runs of tables."""

    def __init__(self, *runs: RunInfo, results: dict[str, list[TableResult]] | None = None) -> None:
        self.all, self.results = runs, results or {}

    def table_results(self, run_id: str) -> list[TableResult]:
        return self.results.get(run_id, [])

    def verdict_counts(self, run_id: str) -> Counter[Verdict]:
        return Counter(one.verdict for one in self.table_results(run_id))

    def runs(self, limit: int) -> list[RunInfo]:
        return list(self.all)[:limit]

    def load_run(self, run_id: str) -> RunInfo:
        for one in self.all:
            if one.run_id == run_id:
                return one
        raise StoreError(f"there is no run {run_id}")


def verified(id_: str, pairs: int = 2, verdict: Verdict = Verdict.MATCH, **facts: Any) -> RunInfo:
    plan = {"pairs": [{"id": f"p{number}"} for number in range(pairs)]}
    facts = {CHOSEN: ALL_TABLES if pairs > 1 or "rechecks" in facts else "d.t", "endpoints": ADDRESSES} | facts
    return RunInfo(id_, "", NOW - 9, NOW - 1, verdict, "digest", plan, facts, StoredKind.TABLES)


def test_the_newest_proof_is_of_all_tables_and_of_this_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.runbook.readiness import standing_reads as reads

    monkeypatch.setattr(reads, "comparison_digest", lambda _: "digest")

    def newest(*runs: RunInfo) -> str:
        found = newest_proof(PAIR, Runs(*runs))  # type: ignore[arg-type]
        return found.run_id if found is not None else ""

    whole = verified("whole")
    assert newest() == ""
    assert newest(verified("some", 1), whole) == "whole"
    assert newest(verified("watch", watch=True), verified("repair", repairs="x"), whole) == "whole"
    assert newest(replace(whole, run_id="other", plan_hash="x"), whole) == "whole"
    assert newest(replace(whole, run_id="cut", finished=None), whole) == "whole"
    assert newest(verified("bad", verdict=Verdict.MISMATCH), whole) == "bad"
    assert newest(verified("again", 1, rechecks="whole"), whole) == "again"
    assert newest(verified("some", 1)) == "", "of all runs it has the most tables"
    fewer = replace(verified("fewer", 2), verdict=Verdict.MISMATCH)
    assert newest(fewer, verified("more", 3)) == "fewer", "a table was dropped since"
    other = verified("other", endpoints=ADDRESSES | {"target": {"address": "127.0.0.1:3"}})
    assert newest(other, whole) == "whole", "another target"
    assert newest(verified("old", endpoints={}), verified("older", **{CHOSEN: None})) == ""


def test_a_proof_is_as_old_as_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is resumed after a month has tables of a month ago."""
    from migverify.runbook.readiness import standing_reads as reads

    monkeypatch.setattr(reads, "comparison_digest", lambda _: "digest")
    run = replace(verified("resumed"), started=NOW - 30 * DAY)
    found = newest_proof(PAIR, Runs(run))  # type: ignore[arg-type]
    assert standing.proof(found, NOW, 7 * DAY).state == "missing"


def result(pair: str, verdict: Verdict, **details: Any) -> TableResult:
    return TableResult(pair, pair, pair, verdict, (), 9, 9, 1, (), 0, 0, 0, (), (), 0.1, details=details)


def begun(run: RunInfo, seconds: float, kind: StoredKind = StoredKind.TABLES) -> RunInfo:
    """Return a run that began so many seconds ago, and took one second."""
    return replace(run, started=NOW - seconds, finished=NOW - seconds + 1, kind=kind)


def servers(id_: str, host: str = "127.0.0.1") -> dict[str, Any]:
    """Return the facts of endpoints that say which servers they are."""
    return {name: {**facts, "host": host, "server": f"{id_}-{name}"} for name, facts in ADDRESSES.items()}


BAD = {"bad": [result("p0", Verdict.MISMATCH)]}
WHOLE = begun(verified("whole"), 100)
AGAIN = begun(verified("again", 1, rechecks="whole"), 50)
SINCE = begun(verified("since", since_run="whole"), 20)
RESTS = {"since": [result("p0", Verdict.MATCH, rests_on={"run": "whole"}), result("p1", Verdict.MATCH)]}


@pytest.mark.parametrize(
    ("runs", "results", "differs"),
    [
        ([begun(verified("equal", 1), 10, StoredKind.QUICK), WHOLE], {}, ()),
        ([begun(verified("bad", 2, Verdict.MISMATCH), 10, StoredKind.QUICK), WHOLE], BAD, ("bad",)),
        ([begun(verified("bad", 1, Verdict.MISMATCH), 10), WHOLE], BAD, ("bad",)),
        ([replace(begun(verified("bad", 1, Verdict.MISMATCH), 10), finished=None), WHOLE], BAD, ("bad",)),
        ([begun(verified("bad", 1, Verdict.MISMATCH, repairs="x"), 10), WHOLE], BAD, ()),
        ([replace(begun(verified("bad", 1, Verdict.MISMATCH), 10), plan_hash="x"), WHOLE], BAD, ()),
        ([WHOLE, begun(verified("bad", 1, Verdict.MISMATCH), 200, StoredKind.QUICK)], BAD, ()),
        ([AGAIN, begun(verified("bad", 1, Verdict.MISMATCH), 70, StoredKind.QUICK), WHOLE], BAD, ("bad",)),
        ([AGAIN, begun(verified("bad", 1, Verdict.MISMATCH, rechecks="whole"), 70), WHOLE], BAD, ()),
        ([SINCE, begun(verified("bad", 1, Verdict.MISMATCH), 50, StoredKind.QUICK), WHOLE], RESTS | BAD, ("bad",)),
        ([SINCE, begun(verified("bad", 1, Verdict.MISMATCH), 50, StoredKind.QUICK), WHOLE],
         RESTS | {"bad": [result("p1", Verdict.MISMATCH)]}, ()),
        ([SINCE, begun(verified("bad", 1, Verdict.MISMATCH), 50, StoredKind.QUICK)], RESTS | BAD, ("bad",)),
        # A recheck reads whole what the run before knew by its written keys alone.
        ([begun(verified("more", 1, rechecks="since"), 10), SINCE,
          begun(verified("bad", 1, Verdict.MISMATCH), 50, StoredKind.QUICK), WHOLE], RESTS | BAD, ()),
        ([begun(verified("bad", 1, Verdict.MISMATCH, endpoints=servers("b")), 10), WHOLE], BAD, ("bad",)),
        ([begun(verified("bad", 1, Verdict.MISMATCH, endpoints=servers("b")), 10),
          begun(verified("whole", endpoints=servers("a")), 100)], BAD, ()),
        ([begun(verified("bad", 1, Verdict.MISMATCH, endpoints=servers("a", "127.0.0.2")), 10),
          begun(verified("whole", endpoints=servers("a")), 100)], BAD, ("bad",)),
    ],
)  # fmt: skip
def test_a_difference_that_is_newer_than_the_proof_speaks_against_it(
    runs: list[RunInfo], results: dict[str, list[TableResult]], differs: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from migverify.runbook.readiness import standing_reads as reads

    monkeypatch.setattr(reads, "comparison_digest", lambda _: "digest")
    newest = newest_proof(PAIR, Runs(*runs, results=results))  # type: ignore[arg-type]
    assert newest is not None
    assert newest.differs == differs
    found = standing.proof(newest, NOW, 7 * DAY)
    assert found.state == ("missing" if differs else "ok")
    assert not differs or "bad" in found.reasons[0]


def test_what_guard_capacity_answered_is_of_these_servers(tmp_path: Path) -> None:
    """Services share a store: another one's answers are not taken for these, nor do its runs push them out."""
    from migverify.guards.capacity import NAME
    from migverify.guards.keep import GuardRecorder, begin
    from migverify.guards.model import GuardResult
    from migverify.runbook.readiness.standing_reads import _capacity
    from migverify_lab.fleet import MadeFleet

    with closing(MadeFleet(tmp_path, store=f"sqlite:///{tmp_path / 'runs.db'}")) as fleet:
        for name, state in (("orders", FAIL), ("users", PASS)):
            fleet.add(name)
            store = fleet.opened(name)
            recorder = GuardRecorder(store, begin(store, "guard capacity", [NAME], fleet.facts(name)))
            said = replace(answer("disk", state), guard=NAME, local_time=NOW)
            recorder.add(GuardResult(NAME, (said,), NOW, 0.1))
        for _ in range(250):
            begin(store, "guard ids", ["ids"], fleet.facts("users"))
        for name, state in (("orders", "missing"), ("users", "ok")):
            config = load_config(fleet.services[name].config)
            assert _capacity(config, store, NOW, DAY).state == state, name


CONFIG = """\
source: {host: 127.0.0.1, port: 1, user: u}
target: {host: 127.0.0.1, port: 1, user: u}
tables: {include: [a.b]}
"""


# --- the command ----------------------------------------------------------------------------------------------------


def evaluated(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    command = ["runbook", "readiness", str(folder / "small.yaml"), "-e", "prod", "--watch", "--times", "1", "--json"]
    assert run([*command, *more]) in (1, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {one["id"]: one for one in found["conditions"]}


def test_without_a_configuration_nothing_of_the_servers_is_known_and_some_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path)
    found = evaluated(tmp_path, capsys, "--without", "watch", "--without", "capacity")
    states = {id_: found[id_]["state"] for id_ in standing.STANDING}
    assert states == {
        "people": "not asked", "watch": "not asked", "capacity": "not asked",
        **dict.fromkeys(("servers", "grants", "limits", "certificate", "retention", "proof", "tables"), "unknown"),
    }  # fmt: skip
    assert found["watch"]["found"] == "left out by --without"


def test_servers_that_do_not_answer_leave_everything_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.unit.runbook_hooks import free_port

    monkeypatch.chdir(tmp_path)
    small(tmp_path)
    Path("migverify.yaml").write_text(
        f"{CONFIG.replace('port: 1,', f'port: {free_port()},')}store: 'sqlite:///store.db'\n"
    )
    found = evaluated(tmp_path, capsys)
    states = {id_: found[id_]["state"] for id_ in standing.STANDING}
    assert states == {
        "people": "not asked", "watch": "not asked", "capacity": "not asked", "proof": "missing",
        "tables": "not asked",
        **dict.fromkeys(("servers", "grants", "limits", "certificate", "retention"), "unknown"),
    }  # fmt: skip
    assert "source" in found["servers"]["reasons"][0]


def test_a_configuration_that_is_gone_is_not_known_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from migverify.cli import runbook_readiness_watch as command

    monkeypatch.chdir(tmp_path)
    small(tmp_path)
    config = Path("migverify.yaml")
    config.write_text(CONFIG)
    evaluate = command._Questions.evaluate

    def turn(asked: Any) -> Any:
        found = evaluate(asked)
        config.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(command._Questions, "evaluate", turn)
    arguments = [
        "runbook",
        "readiness",
        "small.yaml",
        "-e",
        "prod",
        "--watch",
        "--times",
        "2",
        "--every",
        "1s",
        "--json",
    ]
    assert run(arguments) == 3
    second = json.loads(capsys.readouterr().out.splitlines()[1])
    assert "definition" in [one["condition"] for one in second["changes"]]
    assert not [one for one in second["changes"] if one["after"] in ("ok", "not asked")]


@pytest.mark.parametrize(
    ("option", "value"), [("--without", "drills"), ("--for", "no such"), ("--proof-age", "7"), ("--watch-lag", "x")]
)
def test_options_that_name_nothing_are_refused(
    tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tmp_path)
    assert run(["runbook", "readiness", str(tmp_path / "small.yaml"), "-e", "prod", "--watch", option, value]) == 2
    assert option in capsys.readouterr().err


def test_a_mismatch_of_a_run_that_goes_on_and_its_verdict_are_one_reason() -> None:
    """They were announced one after the other, and woke somebody twice."""
    goes_on = standing.proof(LastProof("r1", Verdict.MATCH, NOW - DAY, ("r2",)), NOW, 7 * DAY)
    ended = standing.proof(LastProof("r2", Verdict.MISMATCH, NOW), NOW, 7 * DAY)
    assert (goes_on.state, goes_on.reasons) == (ended.state, ended.reasons) == ("missing", ("tables differ in run r2",))
    assert "r1" in goes_on.found
