"""A capture on Spark holds what a local one holds: row for row, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ReadError
from migverify.spark.capture_tasks import SparkTasks, capture_on_spark
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from migverify.workload.mask import mask_statement, mask_text
from migverify.workload.parts import FileSpan, ReadTask, read_part
from tests.spark.cluster import Cluster
from tests.unit.any_logs import Writer
from tests.unit.log_writers import FORGED, FORGED_GENERAL, write_general, write_slow
from tests.unit.workload.test_capture_parts import audit_lines, forged, written

pytestmark = pytest.mark.spark

LOGS: list[tuple[str, Any, Any]] = [
    ("slow", SlowLog(), lambda writer: [write_slow(forged(FORGED)), *(writer.log(writer.slow) for _ in range(2))]),
    ("general", GeneralLog(), lambda w: [write_general(forged(FORGED_GENERAL)), *(w.log(w.general) for _ in range(2))]),
    ("audit", Audit(), lambda _: [audit_lines(), audit_lines().replace(b"17673", b"17674")]),
]


@pytest.mark.parametrize(("name", "form", "make"), LOGS, ids=[name for name, *_ in LOGS])
@pytest.mark.parametrize(("part_bytes", "mask"), [(700, False), (5_000, True)])
def test_spark_writes_what_a_local_run_writes(
    sessions: Any, tmp_path: Path, name: str, form: Any, make: Any, part_bytes: int, mask: bool
) -> None:
    inputs = []
    for number, data in enumerate(make(Writer(11))):
        path = tmp_path / f"{name}-{number}.log"
        path.write_bytes(data)
        inputs.append(CaptureInput(path, form, "db1"))
    masks: Any = {"mask": mask_statement, "text_mask": mask_text} if mask else {}
    out = tmp_path / "out"
    options = CaptureOptions(out, part_bytes=part_bytes, share_bytes=20_000, **masks)
    capture(inputs, options)
    expected = written(out)
    shutil.rmtree(out)
    summary = capture_on_spark(inputs, options, session=sessions.get(slots=3), slots=3)
    assert written(out) == expected
    assert summary.statements == expected[2][0].num_rows > 40


def test_a_file_that_no_executor_sees_is_one_clear_error(sessions: Any, tmp_path: Path) -> None:
    task = ReadTask((FileSpan(CaptureInput(tmp_path / "slow.log", SlowLog()), 0),), tmp_path / "run", b"secret")
    with pytest.raises(ReadError, match=r"a task of Spark cannot use .*slow\.log") as error:
        list(SparkTasks(sessions.get(slots=3)).map(read_part, [task]))
    assert "executor" in error.value.hint


def test_executors_that_know_nothing_of_migverify_read_parts(sessions: Any, cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_bytes(write_slow(forged(FORGED)))
    inputs = [CaptureInput(path, SlowLog())]
    capture(inputs, CaptureOptions(tmp_path / "local", part_bytes=3_000))
    session = sessions.get(cluster.url, slots=2)
    capture_on_spark(inputs, CaptureOptions(tmp_path / "spark", part_bytes=3_000), session=session, slots=2)
    assert written(tmp_path / "spark") == written(tmp_path / "local")
