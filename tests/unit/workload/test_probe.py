"""Probes are judged by both answers, and their verdict is never green by default."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from migverify.cli.main import app
from migverify.db.session import Opened
from migverify.errors import UsageError
from migverify.model import Endpoint, Flavor, Side, Verdict
from migverify.store.open import open_store
from migverify.workload import probe_run
from migverify.workload.catalogue.expected import Expected, ProbeOutcome, expectations
from migverify.workload.catalogue.load import load
from migverify.workload.catalogue.model import EntryClass, Probe, ProbeState, VersionRange
from migverify.workload.catalogue.versions import server
from migverify.workload.probe import ProbeResult, SideAnswer, judge, verdict
from migverify.workload.probe_run import ProbeSession, ProbeSide
from migverify.workload.probe_store import add_probe, finish_probe, last_probe, probe_states, probed_here, start_probe
from migverify.workload.replay.wire import Limits, ServerWire
from tests.unit.workload.test_replay_reader import err, stream
from tests.unit.workload.test_replay_reader import result as packets_of

MYSQL, TIDB = server("9.7.4-2"), server("8.0.11-TiDB-v8.5.0-lab")
XA = load().entry("xa-001")
OK, REFUSED = ProbeOutcome("XA START 'x'"), ProbeOutcome("XA START 'x'", errno=1064, sqlstate="42000", message="syntax")


def probe() -> Probe:
    assert XA.probe is not None
    return XA.probe


def judged(source: ProbeOutcome, target: ProbeOutcome, *, taken: bool = False) -> tuple[ProbeState, str]:
    return judge(probe(), (MYSQL, SideAnswer((source,), taken=taken)), (TIDB, SideAnswer((target,))))


def test_holds_when_both_answer_as_expected() -> None:
    assert judged(OK, REFUSED) == (ProbeState.HOLDS, "")


def test_does_not_hold_when_the_target_answers_like_the_source() -> None:
    assert judged(OK, OK)[0] is ProbeState.DOES_NOT_HOLD


def test_does_not_hold_when_both_answer_alike_though_otherwise_than_expected() -> None:
    other = replace(REFUSED, errno=1235)
    assert judged(other, other) == (ProbeState.DOES_NOT_HOLD, "both sides answer alike")


def test_alike_is_what_an_expectation_names() -> None:
    entry = load().entry("time-zone-names-001")
    assert entry.probe is not None
    zone, changed = ProbeOutcome("x", rows=(("2026-07-01 14:00:00",),), columns=("c",)), ProbeOutcome("x")
    pair = (MYSQL, SideAnswer((zone, changed))), (TIDB, SideAnswer((zone, changed)))
    assert judge(entry.probe, *pair)[0] is ProbeState.DOES_NOT_HOLD
    other = replace(zone, rows=(("2026-07-01 15:00:00",),))
    pair = (MYSQL, SideAnswer((zone, changed))), (TIDB, SideAnswer((other, changed)))
    assert judge(entry.probe, *pair)[0] is ProbeState.CHANGED


def test_changed_when_a_side_answers_otherwise() -> None:
    other = replace(REFUSED, errno=1235)
    state, reason = judged(OK, other)
    assert state is ProbeState.CHANGED
    assert reason.startswith("target: error 1064 expected, error 1235")
    state, reason = judged(other, REFUSED)
    assert state is ProbeState.CHANGED
    assert reason.startswith("source: ")


def test_not_run_when_there_is_no_answer() -> None:
    assert judged(OK, ProbeOutcome("x", failed="no answer within 1 s"))[0] is ProbeState.NOT_RUN
    answer = SideAnswer(reason="cannot connect")
    assert judge(probe(), (MYSQL, answer), (TIDB, SideAnswer((OK,))))[0] is ProbeState.NOT_RUN


def test_a_source_that_was_not_asked_is_believed() -> None:
    assert judged(ProbeOutcome("x", expected="ok"), REFUSED, taken=True)[0] is ProbeState.HOLDS


def test_mariadb_is_expected_to_answer_like_mysql() -> None:
    pair = (server("10.11.6-MariaDB"), SideAnswer((OK,))), (TIDB, SideAnswer((REFUSED,)))
    assert judge(probe(), *pair)[0] is ProbeState.HOLDS


def test_two_servers_of_one_kind_do_not_differ() -> None:
    pair = (MYSQL, SideAnswer((OK,))), (MYSQL, SideAnswer((OK,)))
    assert judge(probe(), *pair)[0] is ProbeState.DOES_NOT_HOLD


def result(state: ProbeState, kind: EntryClass = EntryClass.SILENT) -> ProbeResult:
    return ProbeResult(XA.model_copy(update={"kind": kind}), state, "", SideAnswer((OK,)), SideAnswer((OK,)))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], Verdict.INCONCLUSIVE),
        ([result(ProbeState.HOLDS)], Verdict.MATCH),
        ([result(ProbeState.DOES_NOT_HOLD, EntryClass.BLOCKER)], Verdict.MATCH),
        ([result(ProbeState.HOLDS, EntryClass.BLOCKER)], Verdict.MISMATCH),
        ([result(ProbeState.HOLDS), result(ProbeState.NOT_RUN)], Verdict.INCONCLUSIVE),
        ([result(ProbeState.HOLDS), result(ProbeState.CHANGED)], Verdict.INCONCLUSIVE),
        ([result(ProbeState.HOLDS, EntryClass.BLOCKER), result(ProbeState.NOT_RUN)], Verdict.MISMATCH),
    ],
)
def test_verdicts(results: list[ProbeResult], expected: Verdict) -> None:
    found, reasons = verdict(results)
    assert found is expected
    assert reasons


@pytest.mark.parametrize(
    ("expected", "got", "wrong"),
    [
        (Expected(), ProbeOutcome("x", errno=1), "success expected"),
        (Expected(errno=(1, 2)), ProbeOutcome("x", errno=2), ""),
        (Expected(errno=(1,)), ProbeOutcome("x"), "error 1 expected"),
        (Expected(rows=(("1", None),)), ProbeOutcome("x", rows=(("1", None),)), ""),
        (Expected(rows=(("1", None),)), ProbeOutcome("x", rows=(("1", ""),)), "rows"),
        (Expected(rows=(("~b",),)), ProbeOutcome("x", rows=(("abc",),)), ""),
        (Expected(rows=(("~d",),)), ProbeOutcome("x", rows=(("abc",),)), "rows"),
        (Expected(rows=()), ProbeOutcome("x", rows=(("1",),)), "rows"),
        (Expected(row_count=1), ProbeOutcome("x"), "row count"),
        (Expected(affected=1), ProbeOutcome("x", affected=2), "affected rows"),
        (Expected(insert_id=0), ProbeOutcome("x", insert_id=2), "insert id"),
        (Expected(warnings=()), ProbeOutcome("x", warnings=(1292,)), "warnings"),
        (Expected(warnings=(1, 2)), ProbeOutcome("x", warnings=(2, 1)), "warnings"),
        (Expected(columns=("a: int",)), ProbeOutcome("x", columns=("a: int(11)",)), ""),
        (Expected(columns=("a: int",)), ProbeOutcome("x", columns=("a: int", "b")), "columns"),
        (Expected(waits=True), ProbeOutcome("x"), "waiting"),
        (Expected(), ProbeOutcome("x", waited=True), "waiting"),
        (Expected(), ProbeOutcome("x", failed="lost"), "lost"),
    ],
)
def test_what_is_compared(expected: Expected, got: ProbeOutcome, wrong: str) -> None:
    found = expected.differences(got)
    assert found == [] if not wrong else wrong in found[0]


def test_expectations_of_versions_come_first() -> None:
    codes = {"mysql": 0, "tidb": 1, "tidb < 6.6": 2, "tidb >= 9": 3}
    found = expectations({server: (Expected(errno=(code,)),) for server, code in codes.items()})

    def errno(version: tuple[int, ...] | None) -> int:
        return next(one for one in found if one.fits(Flavor.TIDB, version)).outcomes[0].errno[0]

    assert [errno((6, 5, 9)), errno((6, 6)), errno((8, 5)), errno((9, 0, 1)), errno(None)] == [2, 1, 1, 3, 1]


@pytest.mark.parametrize(
    ("text", "flavor", "version"),
    [
        ("8.0.11-TiDB-v8.5.0-lab", Flavor.TIDB, (8, 5, 0)), ("5.7.25-TiDB-v6.1.0", Flavor.TIDB, (6, 1, 0)),
        ("8.0.11-TiDB-None", Flavor.TIDB, None), ("9.7.4-2", Flavor.MYSQL, (9, 7, 4)),
        ("10.11.6-MariaDB-1", Flavor.MARIADB, (10, 11, 6)), ("8.0.mysql_aurora.3.05", Flavor.MYSQL, (8, 0)),
    ],
)  # fmt: skip
def test_versions(text: str, flavor: Flavor, version: tuple[int, ...] | None) -> None:
    assert server(text).flavor is flavor
    assert server(text).version == version


def test_ranges_include_their_bounds() -> None:
    bounds = VersionRange(min="6.1", max="6.5")
    held = [bounds.holds(one) for one in ((6, 0, 9), (6, 1, 0), (6, 5, 11), (6, 6), None)]
    assert held == [False, True, True, False, True]


def test_a_run_is_kept_and_read_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    addresses = {Side.SOURCE: "db1:3306", Side.TARGET: "tidb1:4000"}
    run_id = start_probe(store, addresses, {Side.SOURCE: MYSQL, Side.TARGET: TIDB}, [XA.id, "gone-001"])
    assert store.load_run(run_id).verdict is Verdict.INCONCLUSIVE
    assert last_probe(store) is None
    add_probe(store, run_id, result(ProbeState.HOLDS, EntryClass.BLOCKER))
    finish_probe(store, run_id, Verdict.MISMATCH, ["x"], 1.0)
    assert probe_states(store, run_id) == {XA.id: ProbeState.HOLDS}
    last = last_probe(store)
    assert last is not None
    assert last.run_id == run_id
    assert probed_here(store, {"source": "db1:3306", "target": "tidb1:4000"}) == {XA.id: ProbeState.HOLDS}
    assert probed_here(store, {"source": "db1:3306", "target": "tidb2:4000"}) == {}
    assert [finding["key"] for _, finding in store.findings(run_id, f"probe:{XA.id}")] == [[XA.id]]
    store.close()


def test_the_list_needs_no_server() -> None:
    run = CliRunner().invoke(app, ["workload", "probe", "--list", "--class", "ordering", "--json"])
    assert run.exit_code == 0, run.output
    assert {one["class"] for one in json.loads(run.stdout)} == {"ordering"}


@pytest.mark.parametrize("arguments", [["--class", "fatal"], ["--only", "nothing-001"]])
def test_what_does_not_exist_is_a_usage_error(arguments: list[str]) -> None:
    run = CliRunner().invoke(app, ["workload", "probe", "--list", *arguments])
    assert isinstance(run.exception, UsageError)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ProbeSession, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    wire = ServerWire(Opened(ours, "9.7.4", Flavor.MYSQL, 7), Side.TARGET, Limits())
    monkeypatch.setattr(probe_run, "open_wire", lambda *_: wire)
    yield ProbeSession(ProbeSide(Side.TARGET, Endpoint("target", "h", 1, "u"), None)), theirs
    ours.close()
    theirs.close()


def test_a_session_gives_what_a_client_sees(session: tuple[ProbeSession, socket.socket]) -> None:
    probing, server = session
    probing.send("SELECT 1", warnings=True)
    assert server.recv(100)[5:] == b"SELECT 1"
    threading.Timer(0.05, server.sendall, [stream(packets_of(["a"], [(b"1",), (None,)], warnings=1))]).start()
    threading.Timer(0.1, server.sendall, [stream(packets_of(["l", "c"], [(b"Warning", b"1292")]))]).start()
    found = probing.wait(5)
    assert found is not None
    assert (found.rows, found.warnings, found.columns) == (
        (("1",), (None,)), (1292,), ("a: var_string(100,0) charset=255",)
    )  # fmt: skip
    server.sendall(stream([err(1064, "syntax")]))
    assert probing.run("NOT SQL", 5).text() == "error 1064 (42000): syntax"


def test_a_statement_that_does_not_end_cuts_its_session(session: tuple[ProbeSession, socket.socket]) -> None:
    probing, _ = session
    probing.send("DO SLEEP(9)")
    assert probing.wait(0.02) is None
    assert probing.cut(0.02).failed == "no answer within 0.02 s"
    assert probing.run("SELECT 1", 1).failed == "not sent: closed"


def test_warnings_that_the_server_does_not_give_are_no_answer(session: tuple[ProbeSession, socket.socket]) -> None:
    probing, server = session
    probing.send("SELECT 1", warnings=True)
    server.sendall(stream(packets_of(["a"], [], warnings=1)))
    found = probing.wait(0.05)
    assert found is not None
    assert found.failed
