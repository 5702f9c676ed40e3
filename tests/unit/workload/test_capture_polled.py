"""The file of a poll becomes records; what the poll missed becomes rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from migverify.workload.formats.audit import NO_VALUES
from migverify.workload.formats.polled import LOST, MARK, NO_TEXT, NOT_POLLED, TRUNCATED, Polled
from migverify.workload.model import Command
from tests.unit.log_writers import noises, read, records, rejects

AT = 1_767_323_045_000_000


def line(**told: Any) -> bytes:
    base = {
        "event": 4, "thread": 9, "session": 3, "user": "app", "host": "h", "name": "statement/sql/select",
        "sql": "select 'a\nb'", "cut": False, "database": "d", "start": AT, "end": AT + 100, "errno": 0, "warnings": 2,
        "rows_affected": None, "rows_sent": 1, "digest": "ab",
    }  # fmt: skip
    return json.dumps(base | told).encode() + b"\n"


def test_an_event(tmp_path: Path) -> None:
    data = json.dumps({MARK: 1}).encode() + b"\n" + line()
    pieces = read(Polled(), data, tmp_path)
    (one,) = records(pieces)
    assert noises(pieces) == ["beginning of a poll"]
    assert (one.sql, one.session, one.user, one.host, one.database) == (b"select 'a\nb'", 3, "app", "h", "d")
    assert (one.start, one.end, one.duration, one.errno, one.rows_sent) == (AT, AT + 100, 100, 0, 1)
    assert one.details == {"warnings": "2", "digest": "ab", "thread": "9"}
    assert (one.partial, one.number) == ("", 4)


def test_what_an_event_lacks(tmp_path: Path) -> None:
    for told, command, partial in (
        ({"cut": True}, Command.QUERY, TRUNCATED),
        ({"sql": None}, Command.QUERY, NO_TEXT),
        ({"name": "statement/com/Execute", "sql": "select ?"}, Command.EXECUTE, NO_VALUES),
        ({"name": "statement/com/Execute", "sql": "select 1"}, Command.EXECUTE, ""),
        ({"name": "statement/com/Prepare", "sql": "select ?"}, Command.PREPARE, ""),
        ({"name": "statement/com/Quit", "sql": None}, Command.QUIT, ""),
        ({"name": "statement/com/Ping", "sql": None}, Command.OTHER, ""),
    ):
        (one,) = records(read(Polled(), line(**told), tmp_path))
        assert (one.command, one.partial) == (command, partial), told


def test_losses_and_damage_are_rejects(tmp_path: Path) -> None:
    data = b'{"lost": 7, "thread": 9}\n' + line() + line()[:-9] + b"\n[1]\n{}\n"
    pieces = read(Polled(), data, tmp_path)
    assert rejects(pieces) == [LOST, NOT_POLLED, NOT_POLLED, NOT_POLLED]
    assert len(records(pieces)) == 1
