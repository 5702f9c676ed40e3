"""The parts of a shadow replay: folders of finished pieces, budgets, counts that add up, connections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.workload.formats.general import GeneralLog
from migverify.workload.model import Record
from migverify.workload.replay.assumed import SessionFacts
from migverify.workload.replay.model import Difference, DifferenceSeverity, JudgedCall, Judgement
from migverify.workload.replay.tally import DigestTally
from migverify.workload.sessions import CapturedSession
from migverify.workload.shadow.budget import RateLimit, TargetGovernor
from migverify.workload.shadow.file import ShadowFile
from migverify.workload.shadow.objects import ObjectFolder, ObjectPosition
from migverify.workload.shadow.reads import OF_SERVER, KnownKeys, ReadChooser
from migverify.workload.shadow.watch import OwnSpans
from tests.unit.capture_logs import record
from tests.unit.log_writers import Sent, write_general
from tests.unit.shadow_fakes import START, Clock


def put(folder: Path, name: str, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    sent = [Sent(b"SELECT %d" % one, end=START + one * 1_000) for one in numbers]
    (folder / name).write_bytes(write_general(sent))


def texts(folder: ObjectFolder, most: int = 100) -> list[str]:
    found = []
    for piece in folder.pieces():
        if isinstance(piece, str):
            found.append(piece)
        elif isinstance(piece, Record):
            found.append(piece.sql.decode())
        if len(found) >= most:
            break
    folder.settle()
    return found


def resumed(place: Path, folder: ObjectFolder) -> ObjectFolder:
    """Go on in another process."""
    return ObjectFolder(str(place), GeneralLog(), ObjectPosition.from_json(folder.settle().as_json()))


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_objects_are_read_once_in_the_order_of_their_names(tmp_path: Path, most: int) -> None:
    place = tmp_path / "bucket"
    put(place, "b.log", 3, 4)
    put(place, "a.log", 1, 2)
    folder, found = ObjectFolder(str(place), GeneralLog()), list[str]()
    while some := texts(folder, most):
        found += some
        folder = resumed(place, folder)
    put(place, "c.log", 5)
    assert [*found, *texts(folder)] == [f"SELECT {one}" for one in range(1, 6)]
    assert folder.is_quiet


def test_an_object_that_comes_late_is_named_once(tmp_path: Path) -> None:
    place = tmp_path / "bucket"
    put(place, "b.log", 1)
    folder = ObjectFolder(str(place), GeneralLog())
    assert texts(folder) == ["SELECT 1"]
    put(place, "a.log", 2)
    assert texts(folder) == ["object a.log appeared after b.log was read: it is not asked"]
    assert texts(resumed(place, folder)) == []


def test_a_rate_allows_a_second_of_reads_at_most() -> None:
    clock = Clock(0.0)
    rate = RateLimit(10.0, clock)
    assert rate.allowance(100) == 10
    rate.spend(10)
    clock.now = 0.5
    assert rate.allowance(100) == 5
    clock.now = 60.0
    assert (rate.allowance(100), rate.allowance(3)) == (10, 3)
    assert RateLimit(None, clock).allowance(7) == 7


def test_a_slow_target_is_asked_less_and_then_not_for_a_while() -> None:
    clock = Clock(0.0)
    governor = TargetGovernor(4, 0.1, clock)
    allowed = []
    for _ in range(3):
        governor.note([200_000] * 20)
        allowed.append(governor.allowed)
    assert (allowed, governor.is_paused) == ([2, 1, 1], True)
    clock.now = 1.0
    assert not governor.is_paused
    governor.note([200_000])
    clock.now = 2.5
    assert governor.is_paused, "the second pause is twice as long"
    clock.now = 3.0
    for _ in range(5):
        governor.note([1_000])
    assert (governor.allowed, governor.is_holding) == (4, False)


STATES = st.sampled_from(list(Judgement))


def outcome(place: int, state: Judgement) -> JudgedCall:
    differences = (Difference("value", DifferenceSeverity.BLOCKER, "1", "2", "v"),) * (state is Judgement.DIFFERENT)
    details = {"kind": "read", "text": "SELECT ?", "at": str(place), "user": f"u{place % 3}", "sql": f"SELECT {place}"}
    return JudgedCall(
        "s", place, "d", state, differences, "why" if state is Judgement.UNJUDGED else "",
        source_latency=place, target_latency=2 * place, details=details,
    )  # fmt: skip


@given(st.lists(st.tuples(STATES, st.booleans()), max_size=30))
def test_tallies_that_are_added_are_the_tally_of_all(calls: Sequence[tuple[Judgement, bool]]) -> None:
    whole, first, second = DigestTally("d"), DigestTally("d"), DigestTally("d")
    for place, (state, is_first) in enumerate(calls):
        whole.add(outcome(place, state))
        (first if is_first else second).add(outcome(place, state))
    first.merge(second)
    assert first.as_json() == whole.as_json()


def test_a_session_goes_on_in_another_process() -> None:
    one = CapturedSession(record("SET sql_mode = 'ANSI_QUOTES'"), 1, connects=True)
    for text in (
        "SET sql_mode = 'ANSI_QUOTES'", "USE shop", "SET NAMES latin1", "SET @a = 7", "SET time_zone = '+01:00'",
        "CREATE TEMPORARY TABLE x (a INT)", "SET SESSION sort_buffer_size = 9",
    ):  # fmt: skip
        one.place(record(text))
    other = CapturedSession.from_json(one.as_json())
    for text in ("SELECT 1", "BEGIN", "SELECT 2", "DROP TEMPORARY TABLE x", "SELECT 3"):
        ours, theirs = one.place(record(text)), other.place(record(text))
        assert (ours.state.as_json(), ours.state.transaction, ours.partial, ours.position) == (
            theirs.state.as_json(), theirs.state.transaction, theirs.partial, theirs.position,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "is_asked"),
    [
        ("SELECT TABLE_NAME FROM information_schema.TABLES", False),
        ("SELECT T.x FROM `INFORMATION_SCHEMA`.`COLUMNS` `T` JOIN `information_schema`.`CHECK_CONSTRAINTS` `C`"
         " ON C.a = T.a", False),
        ("SHOW BINARY LOG STATUS", False), ("show grants", False), ("SELECT * FROM mysql.user", False),
        ("SELECT v FROM app.t WHERE id = 1", True), ("SELECT 1", True), ("SELECT v FROM sys_log", True),
    ],
)  # fmt: skip
def test_what_a_server_tells_of_itself_is_counted_and_not_asked(sql: str, is_asked: bool) -> None:
    """Monitoring reads it all the time, and two servers answer it differently."""
    chooser = ReadChooser(SessionFacts(), KnownKeys(lambda _: {}), unseen=False)
    session = CapturedSession(record(sql), 1, connects=True)
    call = chooser.choose(session.place(record(sql)), START)
    assert (call is not None) is is_asked
    assert chooser.left == ({} if is_asked else {OF_SERVER: 1})


def test_connections_of_the_replay_are_its_own_while_they_are_open(tmp_path: Path) -> None:
    file = ShadowFile(tmp_path / "run", create=True)
    begun = START / 1e6
    file.opened(8, begun)
    file.opened(9, begun)
    file.closed(begun + 10, 8)
    own = OwnSpans(file.own())
    at = {moment: record("SELECT 1", session=8, start=START + moment * 1_000_000) for moment in (1, 11, 60)}
    assert [own.has(at[moment], begun) for moment in (1, 11, 60)] == [True, True, False]
    assert own.has(record("SELECT 1", session=9, start=START + 60_000_000), begun)
    assert not own.has(record("SELECT 1", session=10, start=START), begun)
    file.closed(begun + 20)
    assert {closed for _, _, closed in file.own()} == {begun + 10, begun + 20}
