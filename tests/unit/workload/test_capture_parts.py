"""Files read in parts give what one reader gives: on any bytes, however small the parts are."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.workload import capture as capture_module
from migverify.workload import parts
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats import reading
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.pcap import Pcap
from migverify.workload.formats.slow import SlowLog
from migverify.workload.mask import mask_statement, mask_text
from migverify.workload.parts import ReadTask
from migverify.workload.runs import RunWriter, merged
from migverify.workload.tasks import Processes
from tests.unit.any_logs import Writer
from tests.unit.capture_logs import record
from tests.unit.log_writers import FORGED, FORGED_GENERAL, Sent, write_general, write_slow
from tests.unit.workload.test_capture_pcap import simple

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def written(out: Path) -> Any:
    """Return everything that a capture wrote."""
    told = json.loads((out / "_summary.json").read_text())
    del told["out"]
    rejects = sorted((out / "_rejects.jsonl").read_text().splitlines())
    tables = []
    for place in (out, out / "_events"):
        files = sorted(place.glob("*.parquet"))
        assert [path.name for path in files] == [f"statements-{number:05d}.parquet" for number in range(len(files))]
        tables.append(pa.concat_tables([pq.read_table(path) for path in files]).combine_chunks())
    left = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert left == ["_events"]
    return told, rejects, tables


def outcome(folder: Path, data: Sequence[bytes], form: Any, tasks: Any = None, **options: Any) -> Any:
    """Capture; returns everything that was written, or the error."""
    inputs = []
    for number, one in enumerate(data):
        path = folder / f"{number}.log"
        path.write_bytes(one)
        inputs.append(CaptureInput(path, form, "db1"))
    out = folder / "out"
    try:
        capture(inputs, CaptureOptions(out, **options), tasks)
    except ReadError as error:
        return str(error)
    found = written(out)
    shutil.rmtree(out)
    return found


class Counting(Processes):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def map(self, work: Any, arguments: Any) -> Any:
        self.asked += arguments
        return super().map(work, arguments)


def same(data: Sequence[bytes], form: Any, part_bytes: int, *, mask: bool = False) -> tuple[list[Any], Any]:
    """Check that parts and small shares give what a file as a whole gives; returns the tasks and what was written."""
    tasks = Counting()
    masks: Any = {"mask": mask_statement, "text_mask": mask_text} if mask else {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        expected = outcome(Path(folder), data, form, part_bytes=1 << 40, **masks)
        patch.setattr(parts, "_MOST_PARTS", 1 << 40)
        patch.setattr(capture_module, "_MOST_SHARES", 1 << 40)
        found = outcome(
            Path(folder), data, form, tasks, part_bytes=part_bytes, run_bytes=20_000, share_bytes=5_000, **masks
        )
    for told in (expected, found):
        for one in told[0]["files"]:  # counted by part
            del one["disordered"], one["disorder_s"]
    assert found == expected
    return [one for one in tasks.asked if isinstance(one, ReadTask)], found


@pytest.mark.parametrize(("name", "header_bytes"), [("slow", 600), ("general", 300), ("audit", 600)])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1 << 32), part_bytes=st.sampled_from([500, 3_000]))
def test_any_log(name: str, header_bytes: int, seed: int, part_bytes: int) -> None:
    writer = Writer(seed)
    log = writer.audit_log if name == "audit" else lambda: writer.log(getattr(writer, name))
    form = {"slow": SlowLog, "general": GeneralLog, "audit": Audit}[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "HEADER_BYTES", header_bytes)
        same([log() for _ in range(seed % 2 + 1)], form(), part_bytes, mask=seed % 5 == 0)


def forged(statement: bytes) -> list[Sent]:
    return [
        Sent(b"insert into t values ('" + statement * 3 + b"')" if number % 3 == 1 else b"select %d" % number,
             session=number % 4 + 1, end=1_767_323_045_678_901 + number, database="shop" if number % 7 else "other")
        for number in range(40)
    ]  # fmt: skip


@pytest.mark.parametrize("part_bytes", [211, 1_000])
def test_a_forged_header_at_a_border_is_found_out(part_bytes: int) -> None:
    for form, log in ((SlowLog(), write_slow(forged(FORGED))), (GeneralLog(), write_general(forged(FORGED_GENERAL)))):
        tasks, found = same([log], form, part_bytes)
        again = [task for task in tasks if task.segments[0].carry is not None]
        assert again or part_bytes < 1_000  # a part began inside a literal; small ones belong to it as a whole
        assert found[2][0].num_rows == 40
        assert found[0]["rejected"] == 0


def test_a_quote_left_open_before_a_border() -> None:
    sent = [Sent(b"select 'it" if number == 5 else b"select '%d'" % number, end=1_767_323_045_678_901 + number)
            for number in range(60)]  # fmt: skip
    for form, log in ((SlowLog(), write_slow(sent)), (GeneralLog(), write_general(sent))):
        same([log], form, 300)


def test_what_the_part_before_says_holds_behind_the_border() -> None:
    made = [b"prepare s from 'select 1'", b"select 2"]
    times = [b"260102  3:04:05", b"\t", b"\t", b"260102  3:04:07", b"\t"]
    log = b"".join(
        times[number % 5] + b"\t%5d Query\t" % (number % 3 + 1) + made[number % 2] + b"\n"
        + (b"\t\t%5d Prepare\tselect 1\n" % (number % 3 + 1) if number % 2 == 0 else b"")
        for number in range(60)
    )  # fmt: skip
    same([log], GeneralLog(), 60)
    clock = b"SET timestamp=%d"
    slow = b"".join(
        b"# User@Host: a[a] @ h []  Id: %5d\n# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\n"
        b"SET timestamp=%d;\n%s;\n"
        % (number % 3, 1_767_323_045 + number, clock % (number * 100) if number % 6 == 0 else b"select 1")
        for number in range(60)
    )
    same([slow], SlowLog(), 130)


def test_a_part_without_a_time_hands_on_the_time_before_it() -> None:
    figures = b"# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\n"
    head = b"# Time: %s\n# User@Host: a[a] @ h []  Id: 3\n" + figures
    usual, none = head % b"2026-01-02T03:04:05.678901Z", head % b"0000-00-00T00:00:00.000000Z"
    _, found = same([usual + b"select 1;\n" + usual + b";\n" + none + b"select 2;\n" + usual + b"x;\n"], SlowLog(), 50)
    assert (found[0]["rejected"], found[0]["untimed"]) == (1, 0)


def test_the_borders_of_sessions_do_not_show() -> None:
    sent = [
        Sent(sql, session=number % 9 + 1, end=1_767_323_045_678_901 + number)
        for number, sql in enumerate([b"set autocommit=0", b"select 1", b"commit", b"set names latin1"] * 15)
    ]
    _, found = same([write_slow(sent)], SlowLog(), 500)
    sessions = found[2][0]["session"].to_pylist()
    assert len({*sessions}) == 9
    assert sessions == sorted(sessions)


def test_a_file_that_is_truncated_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_bytes(write_slow([Sent(b"select %d" % number) for number in range(100)]))

    class Truncating(Processes):
        def map(self, work: Any, arguments: Any) -> Any:
            for number, one in enumerate(arguments):
                yield number, work(one)
                path.write_bytes(b"")

    with pytest.raises(ReadError, match="accounts for bytes"):
        capture([CaptureInput(path, SlowLog())], CaptureOptions(tmp_path / "out", part_bytes=1_000),
                Truncating())  # fmt: skip
    assert not (tmp_path / "out").exists()


def audit_lines() -> bytes:
    return b"".join(
        b"%d,db-1,app,10.0.0.9,%d,%d,%s\n" % (
            1_767_323_045_678_901 + number, number % 3 + 1, number,
            b"CONNECT,shop,,0" if number < 3 else b"QUERY,shop,'select \\'%d\\\\n\\'',0" % number,
        )
        for number in range(80)
    )  # fmt: skip


def test_parts_of_audit_logs_begin_at_lines() -> None:
    _, found = same([audit_lines(), audit_lines().replace(b"db-1", b"db-2")], Audit(), 300)
    assert found[2][0].num_rows == 154


def test_packets_are_read_by_file() -> None:
    data = simple().pcap()
    for mask in (False, True):
        tasks, found = same([data, data[:-40]], Pcap(), 50, mask=mask)
        assert len(tasks) == 2
        assert found[2][0].num_rows > 2
        assert found[0]["duplicates"] > 4


def test_processes_write_what_one_process_writes(tmp_path: Path) -> None:
    data = [write_slow(forged(FORGED)), write_slow(forged(FORGED))[:-300]]
    masks: Any = {"mask": mask_statement, "text_mask": mask_text}
    expected = outcome(tmp_path, data, SlowLog(), part_bytes=2_000, share_bytes=5_000, **masks)
    with Processes(2) as tasks:
        assert outcome(tmp_path, data, SlowLog(), tasks, part_bytes=2_000, share_bytes=5_000, **masks) == expected
        damaged = gzip.compress(data[0])[:-20]
        assert "damaged gzip" in outcome(tmp_path, [damaged, damaged], SlowLog(), tasks, part_bytes=10)


def test_a_run_that_another_wrote_is_not_decoded(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", b"one secret")
    writer.add(record("select 1"), 1, 0)
    run = writer.close()
    assert len(list(merged([run], b"one secret"))) == 1
    with pytest.raises(ReadError, match="was changed while the capture ran"):
        list(merged([run], b"another"))
