"""A shadow replay on servers that are functions: verdicts by digest and hour, bounds, budgets, and kill -9."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.model import Side, Verdict
from migverify.workload.formats.holes import GLUED
from migverify.workload.replay.model import Answer, Call
from migverify.workload.shadow.again import MOST_OF_DIGEST
from migverify.workload.shadow.file import ShadowChanges, ShadowFile
from migverify.workload.shadow.status import ShadowStatus
from tests.unit.replay_fakes import FakeServers, value
from tests.unit.shadow_fakes import FakeApplied, Shadow

HOUR = 3_600_000_000


def differs(when: Callable[[Call, int], bool]) -> FakeServers:
    """Return servers of which the target answers otherwise when a call, and how often it was asked, say so."""

    def answer(side: Side, call: Call, times: int) -> Answer | None:
        found = value("2" if side is Side.TARGET and when(call, times) else "1")
        return replace(found, unordered=0, ordered=b"")  # as a reader leaves them of rows that it keeps

    return FakeServers(answer)


def digests(status: ShadowStatus) -> dict[str, Any]:
    return {one.text: one for one in status.digests}


def test_reads_are_asked_on_both_sides_and_writes_are_counted(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1", "UPDATE t SET v = 2", "SELECT v FROM t WHERE id = 2", "SET @a = 1")
    status = shadow.run()
    assert (status.verdict, status.reasons) == (Verdict.MATCH, ())
    assert status.counts == {"reads": 2, "same": 2, "different": 0, "undecided": 0, "unasked": 0}
    assert dict(status.hours[0].left) == {"write": 1, "session": 1}
    texts = {sql for _, _, _, sql in shadow.servers.sent}
    assert not any(sql.startswith("UPDATE") for sql in texts)


def test_a_difference_that_stands_still_is_a_mismatch_of_its_digest_and_hour(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, differs(lambda call, _: b"bad" in call.sql))
    shadow.connect()
    shadow.write("SELECT v FROM good WHERE id = 1", "SELECT v FROM bad WHERE id = 1")
    status = shadow.run()
    found = digests(status)
    assert status.verdict is Verdict.MISMATCH
    assert found["SELECT `v` FROM `good` WHERE `id` = ?"].verdict is Verdict.MATCH
    bad = found["SELECT `v` FROM `bad` WHERE `id` = ?"]
    assert (bad.verdict, bad.different, bad.mismatch_hours) == (Verdict.MISMATCH, 1, ("2026-01-02T03Z",))
    assert [hour.verdict for hour in status.hours] == [Verdict.MISMATCH]


def test_a_difference_that_the_target_makes_good_is_none(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, differs(lambda _, times: times < 2))
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    status = shadow.run()
    assert (status.verdict, status.counts["same"]) == (Verdict.MATCH, 1)


def test_a_target_that_is_behind_is_no_mismatch(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, differs(lambda *_: True), FakeApplied(behind=1_000))
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    status = shadow.run(turns=60)
    assert (status.verdict, status.counts["undecided"]) == (Verdict.INCONCLUSIVE, 1)
    assert "replication lag" in status.digests[0].reasons[0]


def test_rows_that_are_written_all_the_time_are_not_decided(tmp_path: Path) -> None:
    servers = FakeServers(lambda side, _, times: value(f"{times} {side}"))
    shadow = Shadow(tmp_path, servers)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    status = shadow.run(turns=60)
    assert (status.verdict, status.counts["undecided"]) == (Verdict.INCONCLUSIVE, 1)
    assert "the rows were being written" in status.digests[0].reasons[0]


def test_a_target_that_answers_as_the_source_did_before_is_behind_and_equal(tmp_path: Path) -> None:
    servers = FakeServers(lambda side, _, times: value(str(times - (side is Side.TARGET))))
    shadow = Shadow(tmp_path, servers)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    assert shadow.run().verdict is Verdict.MATCH


@pytest.mark.parametrize("moves", [False, True])
def test_by_time_alone_a_difference_counts_only_where_nothing_moves(tmp_path: Path, moves: bool) -> None:
    def answer(side: Side, call: Call, times: int) -> Answer | None:
        if b"moving" in call.sql:
            return value(str(times if moves else 0) + side.value)
        return value(side.value)

    shadow = Shadow(tmp_path, FakeServers(answer), FakeApplied(proof=False), more={"patience": 6.0})
    shadow.connect()
    shadow.write("SELECT v FROM still WHERE id = 1", "SELECT v FROM moving WHERE id = 1")
    status = shadow.run(turns=60)
    still = digests(status)["SELECT `v` FROM `still` WHERE `id` = ?"]
    assert still.verdict is (Verdict.INCONCLUSIVE if moves else Verdict.MISMATCH)


def test_a_witness_makes_time_a_proof(tmp_path: Path) -> None:
    def answer(side: Side, call: Call, times: int) -> Answer | None:
        if b"moving" in call.sql:  # changes on the source after the first read, and on the target later
            late = 3 if side is Side.SOURCE else 5
            return value("old" if times < late else "new") if times > 1 else value(side.value)
        return value(side.value)

    shadow = Shadow(tmp_path, FakeServers(answer), FakeApplied(proof=False), more={"patience": 1_000.0})
    shadow.connect()
    shadow.write("SELECT v FROM still WHERE id = 1", "SELECT v FROM moving WHERE id = 1")
    status = shadow.run(turns=60)
    assert digests(status)["SELECT `v` FROM `still` WHERE `id` = ?"].verdict is Verdict.MISMATCH


def test_a_server_that_is_away_leaves_reads_unasked_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migverify.workload.replay.session._OPEN_PAUSE", 0.001)
    shadow = Shadow(tmp_path, FakeServers(refuse=[Side.TARGET]))
    shadow.connect()
    shadow.write(*(f"SELECT v FROM t WHERE id = {one}" for one in range(20)))
    status = shadow.run(turns=3)
    assert (status.verdict, status.counts["unasked"]) == (Verdict.INCONCLUSIVE, 20)
    assert "no connection: target refuses" in status.reasons
    shadow.servers._refuse = ()
    shadow.write(*(f"SELECT v FROM t WHERE id = {one}" for one in range(7)), at=HOUR)
    shadow.clock.now += 3_600
    assert shadow.run().counts == {"reads": 27, "same": 7, "different": 0, "undecided": 0, "unasked": 20}


def test_a_connection_that_is_lost_is_opened_again(tmp_path: Path) -> None:
    servers = FakeServers(lambda side, _, times: None if side is Side.SOURCE and times == 1 else value("1"))
    shadow = Shadow(tmp_path, servers)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    assert shadow.run().verdict is Verdict.MATCH
    assert servers.opened == 4


def test_a_rate_holds_reads_back_and_what_falls_behind_is_not_asked(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, more={"rate": 5.0})
    shadow.connect()
    shadow.write(*(f"SELECT v FROM t WHERE id = {one}" for one in range(50)))
    began = shadow.clock.now
    assert shadow.run().counts["same"] == 50
    assert shadow.clock.now - began >= 9


def test_many_differences_of_one_digest_are_bounded_and_said(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, differs(lambda *_: True))
    shadow.connect()
    shadow.write(*(f"SELECT v FROM t WHERE id = {one}" for one in range(60)), "SET @over = 1")
    status = shadow.run()
    assert (status.counts["different"], status.counts["undecided"]) == (MOST_OF_DIGEST, 60 - MOST_OF_DIGEST)
    assert status.verdict is Verdict.MISMATCH


def test_hours_have_verdicts_of_their_own_and_old_ones_are_summed_up(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, differs(lambda call, _: b"id = 0" in call.sql), more={"keep": 2})
    shadow.connect()
    for hour in range(4):
        shadow.write(f"SELECT v FROM t WHERE id = {hour}", at=hour * HOUR)
        shadow.clock.now += 3_600
        status = shadow.run()
    assert [(one.hour, one.verdict) for one in status.hours] == [
        ("2026-01-02T06Z", Verdict.MATCH), ("2026-01-02T05Z", Verdict.MATCH),
    ]  # fmt: skip
    assert status.verdict is Verdict.MATCH
    assert status.earlier == {"digests": 1, "reads": 2, "mismatch_digests": 1, "different": 1}


def test_what_cannot_be_read_keeps_the_verdict_from_match(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    text = shadow.log.read_bytes()
    shadow.log.write_bytes(b"\x00\x01 no record\n" + text)
    status = shadow.run()
    assert (status.verdict, status.hours[0].unreadable) == (Verdict.INCONCLUSIVE, 1)


def test_two_records_in_one_keep_the_verdict_from_match_and_are_named(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    begin = shadow.log.stat().st_size
    shadow.write("SELECT v FROM t WHERE id = 2", "SELECT v FROM t WHERE id = 3")
    text = shadow.log.read_bytes()
    at = text.index(b"\n", begin) + 1
    shadow.log.write_bytes(text[:at] + text[at:].replace(b"Query\t", b"Quer?\t", 1))
    status = shadow.run()
    assert (status.verdict, status.hours[0].unreadable) == (Verdict.INCONCLUSIVE, 1)
    assert f"general.log, byte {begin:,}: {GLUED}" in status.reasons[0]


def test_a_record_that_breaks_off_at_the_end_keeps_the_verdict_from_match(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path)
    shadow.connect()
    shadow.write("SELECT v FROM t WHERE id = 1")
    end = shadow.log.stat().st_size
    shadow.write("SELECT v FROM t WHERE id = 2")
    shadow.log.write_bytes(shadow.log.read_bytes()[:-4])
    status = shadow.run()
    assert (status.verdict, status.counts["same"]) == (Verdict.INCONCLUSIVE, 1)
    assert status.reasons == (f"the log breaks off within a record, which was not read: general.log, byte {end:,}",)


def test_nothing_asked_is_not_match(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path)
    shadow.connect()
    shadow.write("UPDATE t SET v = 1")
    status = shadow.run()
    assert (status.verdict, status.reasons) == (Verdict.INCONCLUSIVE, ("no read was asked and answered",))


class KilledError(BaseException):
    """The process is gone."""


class MortalFile(ShadowFile):
    """A shadow file whose process dies at one of its commits, before or behind it."""

    left = 0
    behind = False

    def commit(self, changes: ShadowChanges) -> None:
        type(self).left -= 1
        dies = type(self).left == 0
        if not dies or self.behind:
            super().commit(changes)
        if dies:
            raise KilledError


@given(deaths=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=5), turn=st.integers(1, 7))
@settings(max_examples=12)
def test_killed_at_any_commit_it_counts_each_read_once(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]], turn: int
) -> None:
    monkeypatch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("killed")
    servers = differs(lambda call, times: b"bad" in call.sql or (b"late" in call.sql and times < 2))
    shadow = Shadow(folder, servers)
    shadow.connect()
    names = ["good", "bad", "late"]
    for number in range(30):
        shadow.write(f"SELECT v FROM {names[number % 3]} WHERE id = {number}", f"USE d{number}", at=number * 10_000)
    monkeypatch.setattr("migverify.workload.shadow.watch.MOST_RECORDS", turn)
    try:
        for left, behind in deaths:
            MortalFile.left, MortalFile.behind = left, behind
            monkeypatch.setattr("tests.unit.shadow_fakes.ShadowFile", MortalFile)
            try:
                shadow.run(turns=10)
            except KilledError:
                shadow.clock.now += 1
        monkeypatch.setattr("tests.unit.shadow_fakes.ShadowFile", ShadowFile)
        status = shadow.run(turns=300)
    finally:
        monkeypatch.undo()
    assert status.counts == {"reads": 30, "same": 20, "different": 10, "undecided": 0, "unasked": 0}
    assert dict(status.hours[0].left) == {"session": 30}
