"""Files read in parts give what one reader gives: on any bytes, however small the parts are."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import ReadError, UsageError
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats import reading
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.pcap import Pcap
from migverify.workload.formats.slow import SlowLog
from migverify.workload.formats.tiproxy import TiProxy
from migverify.workload.mask import mask_statement, mask_text
from tests.unit.capture_packets import counted
from tests.unit.log_writers import FORGED, FORGED_GENERAL, Sent, write_general, write_slow
from tests.unit.test_capture_columns import Writer
from tests.unit.test_capture_pcap import simple
from tests.unit.test_capture_tidb import native

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


class Alone:
    """Workers that are this process."""

    shares = 3

    def __init__(self, block: int) -> None:
        self.block = block
        self.asked: list[Any] = []

    def survey(self, asks: Sequence[Any]) -> list[Any]:
        from migverify.spark.capture_parts import survey

        self.asked += asks
        return [survey(one, self.block) for one in asks]

    def exchange(
        self, reads: Sequence[Any], cuts: Any, gathering: Any, folder: Path, progress: Callable[[int, int], None]
    ) -> Any:
        from migverify.spark.capture_exchange import gather, read_part
        from migverify.spark.capture_parallel import new_account

        accounts, packets = [], []
        for one in reads:
            accounts.append(new_account(one))
            packets += list(read_part(one, cuts, accounts[-1], self.block))
        shares = []
        for share in range(len(cuts) + 1):
            # in any order
            mine = [packet for number, packet in packets if number == share][::-1]
            shares.append((folder / f"s{share}", gather(mine, gathering, folder / f"s{share}")))
        progress(1, 1)
        return accounts, shares


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


def outcome(folder: Path, data: Sequence[bytes], form: Any, road: Any, *, mask: bool = False) -> Any:
    """Capture; returns everything that was written, or the error."""
    from migverify.spark.statements import StatementFiles

    inputs = []
    for number, one in enumerate(data):
        path = folder / f"{number}.log"
        path.write_bytes(one)
        inputs.append(CaptureInput(path, form, "db1"))
    out = folder / "out"
    masks = {"mask": mask_statement, "text_mask": mask_text} if mask else {}
    try:
        capture(inputs, CaptureOptions(out, **masks), StatementFiles, road)
    except ReadError as error:
        return str(error)
    found = written(out)
    shutil.rmtree(out)
    return found


def same(
    data: Sequence[bytes], form: Any, part_bytes: int, block: int = 4 << 20, *, mask: bool = False
) -> tuple[Alone, Any]:
    """Check that parts give what the road of objects gives; returns the workers and what was written."""
    from migverify.spark.capture_parallel import ParallelColumns

    workers = Alone(block)
    with tempfile.TemporaryDirectory() as folder:
        expected = outcome(Path(folder), data, form, None, mask=mask)
        found = outcome(Path(folder), data, form, ParallelColumns(workers, part_bytes=part_bytes), mask=mask)
    assert found == expected
    return workers, found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([50, 500, 3_000]), st.sampled_from([700, 4 << 20]))
def test_any_slow_log(seed: int, part_bytes: int, block: int) -> None:
    writer = Writer(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "HEADER_BYTES", 600)
        logs = [writer.log(writer.slow) for _ in range(seed % 2 + 1)]
        same(logs, SlowLog(), part_bytes, block, mask=seed % 5 == 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([50, 500, 3_000]), st.sampled_from([300, 4 << 20]))
def test_any_general_log(seed: int, part_bytes: int, block: int) -> None:
    writer = Writer(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "HEADER_BYTES", 300)
        logs = [writer.log(writer.general) for _ in range(seed % 2 + 1)]
        same(logs, GeneralLog(), part_bytes, block, mask=seed % 5 == 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([50, 500, 3_000]), st.sampled_from([300, 4 << 20]))
def test_any_audit_log(seed: int, part_bytes: int, block: int) -> None:
    writer = Writer(seed)
    logs = [writer.audit_log() for _ in range(seed % 2 + 1)]
    same(logs, Audit(), part_bytes, block, mask=seed % 5 == 0)


def forged(statement: bytes) -> list[Sent]:
    return [
        Sent(b"insert into t values ('" + statement * 3 + b"')" if number % 3 == 1 else b"select %d" % number,
             session=number % 4 + 1, end=1_767_323_045_678_901 + number, database="shop" if number % 7 else "other")
        for number in range(40)
    ]  # fmt: skip


@pytest.mark.parametrize("part_bytes", [37, 211, 1_000])
def test_a_forged_header_at_a_border_is_found_out(part_bytes: int) -> None:
    for form, log in ((SlowLog(), write_slow(forged(FORGED))), (GeneralLog(), write_general(forged(FORGED_GENERAL)))):
        workers, found = same([log], form, part_bytes)
        again = [ask for ask in workers.asked if ask.part.start and ask.begin is not None]
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
    for part_bytes in (25, 60, 200):
        same([log], GeneralLog(), part_bytes)
    clock = b"SET timestamp=%d"
    slow = b"".join(
        b"# User@Host: a[a] @ h []  Id: %5d\n# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\n"
        b"SET timestamp=%d;\n%s;\n"
        % (number % 3, 1_767_323_045 + number, clock % (number * 100) if number % 6 == 0 else b"select 1")
        for number in range(60)
    )
    for part_bytes in (130, 400):
        same([slow], SlowLog(), part_bytes)


def test_the_borders_of_sessions_do_not_show() -> None:
    sent = [
        Sent(sql, session=number % 9 + 1, end=1_767_323_045_678_901 + number)
        for number, sql in enumerate([b"set autocommit=0", b"select 1", b"commit", b"set names latin1"] * 50)
    ]
    _, found = same([write_slow(sent)], SlowLog(), 500)
    sessions = found[2][0]["session"].to_pylist()
    assert len({*sessions}) == 9
    assert sessions == sorted(sessions)


def test_a_file_that_changed_between_the_passes_is_an_error(tmp_path: Path) -> None:
    from migverify.spark.capture_parallel import ParallelColumns
    from migverify.spark.statements import StatementFiles

    path = tmp_path / "slow.log"
    path.write_bytes(write_slow([Sent(b"select %d" % number) for number in range(100)]))

    class Changing(Alone):
        def exchange(self, *told: Any) -> Any:
            path.write_bytes(write_slow([Sent(b"select %d, 2" % number) for number in range(100)]))
            return super().exchange(*told)

    with pytest.raises(ReadError):
        capture(
            [CaptureInput(path, SlowLog())], CaptureOptions(tmp_path / "out"), StatementFiles,
            ParallelColumns(Changing(4 << 20), part_bytes=1_000),
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_mask_of_ones_own_is_refused(tmp_path: Path) -> None:
    from migverify.spark.capture_parallel import ParallelColumns

    with pytest.raises(UsageError):
        ParallelColumns(Alone(1)).takes([], CaptureOptions(tmp_path, mask=lambda one: one))


def audit_lines() -> bytes:
    return b"".join(
        b"%d,db-1,app,10.0.0.9,%d,%d,%s\n" % (
            1_767_323_045_678_901 + number, number % 3 + 1, number,
            b"CONNECT,shop,,0" if number < 3 else b"QUERY,shop,'select \\'%d\\\\n\\'',0" % number,
        )
        for number in range(80)
    )  # fmt: skip


def test_parts_of_audit_logs_begin_at_lines() -> None:
    for size in (100, 1_000):
        _, found = same([audit_lines(), audit_lines().replace(b"shop", b"other")], Audit(), size)
        assert found[2][0].num_rows == 154


def traffic() -> bytes:
    values = struct.pack("<IBI", 4, 0, 1) + b"\x00\x01\xfd\x00" + counted(b"a\n# Time: b")
    return (
        native(b"select 'a'") + native(b"nope", Success="false") + native(b"pay", "Init DB")
        + native(b"select ?", "Prepare", Captured_ps_id="4") + native(values, "Execute")
        + native(struct.pack("<I", 4), "Close stmt") + native(values, "Execute") + native(b"set @a = 'x'")
        + native(b"select 2") + native(b"", "Quit") + b"junk\n"
    )  # fmt: skip


@pytest.mark.parametrize("mask", [False, True])
def test_packets_and_traffic_files_are_read_by_file(mask: bool) -> None:
    for form, data in ((Pcap(), simple().pcap()), (TiProxy(), traffic())):
        workers, found = same([data, data[:-40]], form, 50, mask=mask)
        assert len(workers.asked) == 2
        assert found[2][0].num_rows > 4
    parameters = found[2][0]["parameters"].to_pylist()
    assert [{"kind": "text", "value": b"x" * 8 if mask else b"a\n# Time: b"}] in parameters


def test_processes_write_what_one_process_writes(tmp_path: Path) -> None:
    from migverify.spark.capture_columns import Columns
    from migverify.spark.capture_parallel import ParallelColumns, Processes
    from migverify.spark.capture_parts import Ask, Part

    data = [write_slow(forged(FORGED)), write_slow(forged(FORGED))[:-300]]
    expected = outcome(tmp_path, data, SlowLog(), Columns())
    with Processes(2) as workers:
        assert outcome(tmp_path, data, SlowLog(), ParallelColumns(workers, part_bytes=2_000)) == expected
        damaged = tmp_path / "damaged.gz"
        damaged.write_bytes(gzip.compress(data[0])[:-20])
        with pytest.raises(ReadError, match="damaged gzip"):
            workers.survey([Ask(Part(CaptureInput(damaged, SlowLog()), 0, 0, 0, None), 0)])
