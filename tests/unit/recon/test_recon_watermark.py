"""Watermarks: what is told, what is a guess, what cannot be told; never a time out of a table."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import PrivilegeError, ReadError
from migverify.model import Flavor
from migverify.recon.watermark import (
    LIST_SECONDS,
    AppliedTime,
    ClockReading,
    SourceWatermark,
    applied_mark,
    archive_mark,
    files_mark,
    read_clock,
    replica_mark,
    settled_mark,
    spread,
    static_mark,
    writer_mark,
)
from migverify.watch import applied as applied_module
from migverify.watch.applied import CheckpointTable, Marker, SyncPoints

CLOCK = ClockReading(1000.0, 0.5, 0.1)


class Server:
    """Answers statements from a table; an exception is raised."""

    def __init__(self, flavor: Flavor = Flavor.MYSQL, **answers: Any) -> None:
        self.flavor = flavor
        self.answers = {"SELECT UNIX_TIMESTAMP": [("1000.000000",)], "STATUS": [], "innodb_read_only": [("0",)],
                        "INNODB_TRX": [(None,)], "TIDB_TRX": [(None,)], **answers}  # fmt: skip
        self.ran: list[str] = []
        self.endpoint = type("E", (), {"name": "orders"})()

    def query(self, sql: str) -> Any:
        self.ran.append(sql)
        for part, answer in self.answers.items():
            if part in sql:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        raise AssertionError(sql)

    query_named = query

    def execute(self, sql: str) -> int:
        self.ran.append(sql)
        return 1


def test_the_clock_is_read_between_asking_and_hearing() -> None:
    moments = iter([100.0, 104.0])
    clock = read_clock(Server(), lambda: next(moments))  # type: ignore[arg-type]
    assert clock == ClockReading(1000.0, 898.0, 2.0)


def test_a_writer_is_complete_up_to_its_clock_less_the_age_of_its_list() -> None:
    mark = writer_mark(Server(), "orders")  # type: ignore[arg-type]
    assert (mark.at, mark.how, mark.proof) == (1000.0 - LIST_SECONDS, "server clock", True)


def test_an_open_write_holds_a_writer_back() -> None:
    assert writer_mark(Server(INNODB_TRX=[("40",)]), "orders").at == 1000.0 - 41  # type: ignore[arg-type]
    tso = (900_500 << 18) + 7
    mark = writer_mark(Server(Flavor.TIDB, TIDB_TRX=[(str(tso),)]), "target")  # type: ignore[arg-type]
    assert mark.at == 900.5


def test_without_process_a_writer_is_no_proof() -> None:
    mark = writer_mark(Server(INNODB_TRX=PrivilegeError("no")), "orders")  # type: ignore[arg-type]
    assert mark.at == 1000.0
    assert not mark.proof
    assert "PROCESS" in mark.how


def test_who_may_be_a_replica_and_does_not_say_so_is_unknown() -> None:
    mark = writer_mark(Server(STATUS=PrivilegeError("no", hint="Grant it.")), "orders")  # type: ignore[arg-type]
    assert mark.at is None
    assert "REPLICATION CLIENT" in mark.reason
    reader = writer_mark(Server(innodb_read_only=[("1",)]), "orders")  # type: ignore[arg-type]
    assert reader.at is None
    assert "read from the writer" in reader.reason


RUNNING = {"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes"}


@pytest.mark.parametrize(
    ("channels", "at", "reason"),
    [
        ([{**RUNNING, "Seconds_Behind_Source": "7"}], 992.0, ""),
        ([{**RUNNING, "Seconds_Behind_Source": "7"}, {**RUNNING, "Seconds_Behind_Source": "30"}], 969.0, ""),
        ([{**RUNNING, "Seconds_Behind_Source": None}], None, "replication does not tell how far it is behind"),
        (
            [{**RUNNING, "Replica_IO_Running": "Connecting", "Seconds_Behind_Source": "0"}],
            None,
            "replication is stopped: IO thread Connecting",
        ),
        ([{"Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes", "Seconds_Behind_Master": "0"}], 999.0, ""),
    ],
)
def test_a_replica(channels: list[dict[str, str | None]], at: float | None, reason: str) -> None:
    mark = replica_mark("orders", CLOCK, channels)
    assert (mark.at, mark.reason) == (at, reason)


def test_a_settle_time_is_a_guess() -> None:
    mark = settled_mark(Server(), "target", 3.0)  # type: ignore[arg-type]
    assert (mark.at, mark.proof) == (997.0, False)


def test_a_target_is_as_far_as_the_last_of_its_sources() -> None:
    class Way:
        def __init__(self, at: float | None) -> None:
            self.at, self.samples = at, 0

        def sample(self, _source: object) -> None:
            self.samples += 1

        def reached(self, _target: object) -> tuple[float | None, str]:
            return self.at, "" if self.at else "nothing yet"

    ways = {"source.a": Way(900.0), "source.b": Way(800.0)}
    servers: Any = {name: Server() for name in ways}
    assert applied_mark(Server(), "target", "x", ways, servers).at == 800.0  # type: ignore[arg-type]
    ways["source.a"].at = None
    mark = applied_mark(Server(), "target", "x", ways, servers)  # type: ignore[arg-type]
    assert (mark.at, mark.reason) == (None, "source.a: nothing yet")
    assert ways["source.b"].samples == 2
    assert applied_mark(Server(), "target", "x", {}, {}).at is None  # type: ignore[arg-type]


def test_a_checkpoint_gives_the_time_at_which_the_source_stood_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table(CheckpointTable):
        at: int | None = None

        def reached(self, _target: object) -> tuple[int | None, str]:
            return self.at, "checkpoint table dm.ck is empty"

    table = Table("dm.ck")
    way = AppliedTime(table)
    assert way.reached(Server())[0] is None  # type: ignore[arg-type]
    monkeypatch.setattr(applied_module, "source_state", lambda s: type("S", (), {"end": s.end}))
    monkeypatch.setattr(applied_module, "ordinal_of", lambda end: end)
    for now, end in ((100, 10), (101, 20), (102, 20), (103, 40)):
        server: Any = Server(**{"SELECT UNIX_TIMESTAMP": [(str(now),)]})
        server.end = end
        way.sample(server)
    for at, wanted in ((9, None), (10, 100.0), (30, 102.0), (30, 102.0), (41, 103.0), (12, 103.0)):
        table.at = at
        assert way.reached(Server())[0] == wanted  # type: ignore[arg-type]


def test_a_marker_gives_the_time_at_which_it_was_written() -> None:
    way = AppliedTime(Marker("a.m", "b.m", "w"))
    source = Server(number=[("7",)])
    for now in (100, 105):
        source.answers["SELECT UNIX_TIMESTAMP"] = [(str(now),)]
        way.sample(source)  # type: ignore[arg-type]
    assert source.ran[-2].startswith("REPLACE INTO `a`.`m`")
    assert source.ran[-1] == "SET SESSION TRANSACTION READ ONLY"
    for seen, wanted in (("7", None), ("8", 100.0), ("9", 105.0)):
        assert way.reached(Server(number=[(seen,)]))[0] == wanted  # type: ignore[arg-type]


def test_a_sync_point_is_a_time() -> None:
    way = AppliedTime(SyncPoints("tidb_cdc.syncpoint_v1"))
    assert way.reached(Server(primary_ts=[(str(900_250 << 18),)])) == (900.25, "")  # type: ignore[arg-type]
    assert way.reached(Server(primary_ts=[(None,)]))[0] is None  # type: ignore[arg-type]


def test_files_say_themselves_up_to_when_they_are_complete(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/day=*/part.parquet"
    assert files_mark(pattern).at is None
    assert "_WATERMARK" in files_mark(pattern).reason
    (tmp_path / "_SUCCESS").touch()
    os.utime(tmp_path / "_SUCCESS", (5000, 5000))
    assert (files_mark(pattern).at, files_mark(pattern).proof) == (5000.0, False)
    (tmp_path / "_WATERMARK").write_text("1970-01-01T01:00:00\n")
    assert (files_mark(pattern).at, files_mark(pattern).proof) == (3600.0, True)
    (tmp_path / "_WATERMARK").write_text("soon")
    assert files_mark(f"{tmp_path}/x.parquet").at is None


def test_binlog_files_without_a_manifest_say_nothing(tmp_path: Path) -> None:
    assert archive_mark(str(tmp_path)).at is None


def test_the_clocks_of_two_servers_and_how_well_they_are_known() -> None:
    marks = {"a": SourceWatermark("a", 1, "", offset=1.0, error=0.1),
             "b": SourceWatermark("b", 1, "", offset=-2.0, error=0.2), "c": static_mark("c")}  # fmt: skip
    assert math.isclose(spread(marks), 3.3)
    assert spread({"a": marks["a"], "c": marks["c"]}) == 0.0


def test_a_server_without_a_clock_is_an_error() -> None:
    with pytest.raises(ReadError):
        read_clock(Server(**{"SELECT UNIX_TIMESTAMP": [(None,)]}))  # type: ignore[arg-type]
