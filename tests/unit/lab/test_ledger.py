"""The ledger of acknowledged writes: what it proves, and that it never proves more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import LabError
from migverify_lab.ledger import (
    ACKED,
    REFUSED,
    TRIED,
    UNKNOWN,
    LedgerWriter,
    WriteAttempt,
    compare_with_ledger,
    parse_ledger,
    read_ledger,
    recovery,
    steadiness,
)

ENDS = st.sampled_from((ACKED, REFUSED, UNKNOWN))


def attempt(token: int, since: float, until: float | None, end: str = ACKED, code: int = 0) -> WriteAttempt:
    return WriteAttempt(str(token), since, until, end, code)


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    writer = LedgerWriter(path)
    for token, (kind, code, text) in enumerate([(ACKED, 0, ""), (REFUSED, 1040, "Too many\nconnections"),
                                                 (UNKNOWN, 2013, "Lost")]):  # fmt: skip
        writer.note(TRIED, str(token))
        writer.note(kind, str(token), code, text)
    writer.note(TRIED, "9")
    writer.close()
    found = read_ledger(path)
    assert [(one.token, one.end, one.code) for one in found] == [
        ("0", ACKED, 0), ("1", REFUSED, 1040), ("2", UNKNOWN, 2013), ("9", UNKNOWN, 0),
    ]  # fmt: skip
    assert found[1].text == "Too many connections"
    assert found[3].until is None


@given(st.lists(st.tuples(ENDS, st.booleans()), max_size=30), st.integers(0, 10_000))
def test_a_ledger_that_is_cut_anywhere_never_acknowledges_more(events: list[tuple[str, bool]], cut: int) -> None:
    lines = []
    for token, (end, ended) in enumerate(events):
        lines.append(f"T {token} {token}.0\n")
        if ended:
            lines.append(f"{end} {token} {token}.5{'' if end == ACKED else ' 2013 lost'}\n")
    text = "".join(lines)
    whole = {one.token for one in parse_ledger(text) if one.end == ACKED}
    for one in parse_ledger(text[: cut % (len(text) + 1)]):
        assert one.end != ACKED or one.token in whole


@pytest.mark.parametrize(
    "text",
    ["A 1 2.0\n", "T 1 1.0\nT 1 2.0\n", "T 1 1.0\nA 1 2.0\nA 1 3.0\n", "T 1 x\n", "T 1\n", "X 1 1.0\n", "\n",
     "T 1 1.0\nN 1 2.0\n"],
)  # fmt: skip
def test_a_damaged_ledger_proves_nothing(text: str) -> None:
    with pytest.raises(LabError, match="not a line of a ledger"):
        parse_ledger(text)


def test_no_ledger_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="there is no ledger"):
        read_ledger(tmp_path / "none")


@given(st.dictionaries(st.integers(0, 40), ENDS, max_size=40), st.data())
def test_every_row_that_is_not_as_told_is_found(ends: dict[int, str], data: st.DataObject) -> None:
    attempts = [attempt(token, 0.0, 1.0, end) for token, end in ends.items()]
    good = {
        str(token): [""] for token, end in ends.items() if end == ACKED or (end == UNKNOWN and data.draw(st.booleans()))
    }
    assert not compare_with_ledger(attempts, good).wrong
    if not ends:
        assert compare_with_ledger(attempts, {"7": [""]}).never_tried == ("7",)
        return
    token = data.draw(st.sampled_from(sorted(ends)))
    bad = dict(good)
    if ends[token] == ACKED and data.draw(st.booleans()):
        bad.pop(str(token))
        assert compare_with_ledger(attempts, bad).lost == (str(token),)
    elif ends[token] == REFUSED:
        bad[str(token)] = [""]
        assert compare_with_ledger(attempts, bad).there_though_refused == (str(token),)
    else:
        bad[str(token)] = ["", ""]
        assert compare_with_ledger(attempts, bad).twice == (str(token),)
    assert compare_with_ledger(attempts, bad).wrong
    assert str(token) in compare_with_ledger(attempts, bad).describe()


@pytest.mark.parametrize(
    ("side", "good"), [(["source"], True), (["target"], False), ([], False), (["source", "target"], False)]
)
def test_a_write_is_on_the_side_that_acknowledged_it(side: list[str], good: bool) -> None:
    found = compare_with_ledger([WriteAttempt("1", 0.0, 1.0, ACKED, where="source")], {"1": side})
    assert found.good is good
    assert found.written == {"source": 1}
    assert (found.elsewhere == ("1",)) is (side == ["target"])


def test_nothing_acknowledged_is_not_good() -> None:
    assert not compare_with_ledger([attempt(1, 0.0, 1.0, REFUSED)], {}).good


def test_writes_that_were_tried_after_the_reading_are_known() -> None:
    assert compare_with_ledger([attempt(1, 0.0, 1.0)], {"1": [""], "2": [""]}, {"1", "2"}).good
    assert compare_with_ledger([attempt(1, 0.0, 1.0)], {"1": [""], "2": [""]}).never_tried == ("2",)


def test_steady_needs_acknowledged_writes_and_no_failure() -> None:
    acked = [attempt(n, 9.0 + n / 10, 9.05 + n / 10) for n in range(10)]
    found = steadiness(acked, 10.0, 1.0)
    assert (found.acked, found.failed) == (10, 0)
    assert steadiness([*acked, attempt(99, 9.5, 9.6, REFUSED, 1040)], 10.0, 1.0).codes == (1040,)
    assert steadiness([*acked, attempt(99, 8.0, None, UNKNOWN)], 10.0, 1.0).failed == 1, "it hangs"
    assert steadiness([*acked, attempt(99, 9.9, None, UNKNOWN)], 10.0, 1.0).failed == 0, "it is under way"
    assert steadiness([], 10.0, 1.0).rate == 0


def test_recovery_is_measured_to_the_first_write_behind_the_last_failure() -> None:
    before = [attempt(n, n / 10, n / 10 + 0.05) for n in range(10)]
    failed = [attempt(100 + n, 1.0 + n / 5, 1.1 + n / 5, REFUSED, 2003) for n in range(10)]
    after = [attempt(200 + n, 3.5 + n / 10, 3.6 + n / 10) for n in range(10)]
    found = recovery([*before, *failed, *after], injected=1.0, removed=3.0, until=4.6)
    assert (found.failed, found.codes) == (10, (2003,))
    assert found.from_inject == pytest.approx(2.6)
    assert found.from_remove == pytest.approx(0.6)
    assert found.stall == pytest.approx(2.6)


def test_a_stall_without_an_error_hurts_too() -> None:
    acked = [attempt(1, 0.9, 1.2), attempt(2, 1.3, 6.0), attempt(3, 6.1, 6.2)]
    found = recovery(acked, injected=1.0, removed=5.0, until=6.5)
    assert found.failed == 0
    assert found.from_inject == pytest.approx(5.0)
    assert found.stall == pytest.approx(4.8)


def test_writing_that_never_came_back_has_no_recovery() -> None:
    failed = [attempt(1, 1.5, 1.6, REFUSED, 2003), attempt(2, 2.0, None, UNKNOWN)]
    found = recovery(failed, injected=1.0, removed=2.0, until=9.0)
    assert found.from_inject is None
    assert found.from_remove is None


def test_a_fault_that_nobody_felt_takes_no_time() -> None:
    acked = [attempt(n, n / 10, n / 10 + 0.05) for n in range(30)]
    found = recovery(acked, injected=1.0, removed=2.0, until=3.0)
    assert (found.failed, found.from_inject, found.from_remove) == (0, 0.0, 0.0)
