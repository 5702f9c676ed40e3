"""Activity streams of Aurora MySQL, in every wrapping they are kept in."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload.formats import das
from migverify.workload.formats.audit import BAD_TIME, NO_VALUES
from migverify.workload.formats.das import (
    CUT_EVENT,
    ENCRYPTED,
    NO_EVENT,
    NOT_JSON,
    UNKNOWN_SHAPE,
    ActivityStream,
    plain,
)
from migverify.workload.lines import GZIP, LogWindow
from migverify.workload.model import Command, Piece, Record
from tests.unit.log_writers import contiguous, noises, read, records, rejects
from tests.unit.workload.test_capture_audit import escaped

START = 1_590_172_197_986_364
HEARTBEAT = {"type": "heartbeat", "instant": "2020-05-22T18:29:57Z"}


def event(sql: str = "select 1", **told: Any) -> dict[str, Any]:
    """Return an event as Aurora MySQL tells it."""
    return {
        "logTime": "2020-05-22 18:29:57.990000+00", "type": "record", "clientApplication": None, "pid": 2830,
        "dbUserName": "master", "databaseName": "test", "remoteHost": "10.0.0.9", "remotePort": "11053",
        "command": "QUERY", "commandText": sql, "paramList": None, "objectType": "TABLE", "objectName": "",
        "statementId": 65, "substatementId": 1, "exitCode": "0", "sessionId": "725121", "rowCount": 3,
        "serverHost": "node-1", "serverType": "MySQL", "serviceName": "Amazon Aurora MySQL",
        "serverVersion": "MySQL 5.7.12", "startTime": "2020-05-22 18:29:57.986364+00",
        "endTime": "2020-05-22 18:29:57.986467+00", "transactionId": "0", "dbProtocol": "MySQL", "netProtocol": "TCP",
        "errorMessage": "", "class": "MAIN",
    } | told  # fmt: skip


def document(*events: dict[str, Any], wrap: int = 1) -> dict[str, Any]:
    told: dict[str, Any] = {
        "type": "DatabaseActivityMonitoringRecord", "clusterId": "c", "instanceId": "i",
        "databaseActivityEventList": list(events),
    }  # fmt: skip
    if wrap > 1:
        told = {"type": "DatabaseActivityMonitoringRecords", "version": "1.1", "databaseActivityEvents": told}
    return told


def found(text: str | bytes, folder: Path) -> list[Record]:
    return records(read(ActivityStream(), text.encode() if isinstance(text, str) else text, folder))


EVENTS = [event(), event('select \'{"a": [1, "}"]}\'', statementId=66), HEARTBEAT, event(statementId=67)]
SHAPES = {
    "an event a line": "".join(json.dumps(one) + "\n" for one in EVENTS),
    "an event a line, indented": "".join(json.dumps(one, indent=2) + "\n" for one in EVENTS),
    "an array": json.dumps(EVENTS),
    "a document": json.dumps(document(*EVENTS)),
    "a document in its envelope, indented": json.dumps(document(*EVENTS, wrap=2), indent=1),
    "documents, a line each": "".join(json.dumps(document(one, wrap=2)) + "\n" for one in EVENTS),
    "documents without a break": "".join(json.dumps(document(one)) for one in EVENTS),
    "an array of documents": json.dumps([document(EVENTS[0], EVENTS[1]), document(*EVENTS[2:])]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_wrappings(shape: str, tmp_path: Path) -> None:
    pieces = read(ActivityStream(), SHAPES[shape].encode(), tmp_path)
    assert [one.sql for one in records(pieces)] == [b"select 1", b'select \'{"a": [1, "}"]}\'', b"select 1"]
    assert [one.number for one in records(pieces)] == [65, 66, 67]
    assert noises(pieces).count("heartbeat") == 1
    assert set(noises(pieces)) <= {"heartbeat", "structure of the document"}
    assert not rejects(pieces)
    assert ActivityStream().sniff(SHAPES[shape].encode()) > 0.5


def test_an_event(tmp_path: Path) -> None:
    (one,) = found(json.dumps(event()), tmp_path)
    assert (one.session, one.user, one.host, one.database) == (725121, "master", "10.0.0.9", "test")
    assert (one.start, one.end, one.duration, one.errno) == (START, START + 103, 103, 0)
    assert (one.rows_sent, one.rows_affected, one.server, one.details) == (3, None, "node-1", {})
    (one,) = found(json.dumps(event("update t set a = 1")), tmp_path)
    assert (one.rows_sent, one.rows_affected) == (None, 3)


def test_errors(tmp_path: Path) -> None:
    (one,) = found(json.dumps(event("select nope", exitCode="1054", errorMessage="Unknown column")), tmp_path)
    assert (one.errno, one.details) == (1054, {"error": "Unknown column"})


def test_older_versions_of_the_stream(tmp_path: Path) -> None:
    told = event()
    del told["endTime"]
    (one,) = found(json.dumps(told), tmp_path)
    assert (one.start, one.end, one.duration) == (START, 1_590_172_197_990_000, None)
    assert one.details == {"time": "when the event was written"}
    del told["startTime"], told["logTime"]
    assert rejects(read(ActivityStream(), json.dumps(told).encode(), tmp_path)) == [BAD_TIME]


def test_logins(tmp_path: Path) -> None:
    for command, want in (
        ("CONNECT", Command.CONNECT),
        ("DISCONNECT", Command.QUIT),
        ("FAILED_CONNECT", Command.FAILED_CONNECT),
    ):
        (one,) = found(json.dumps(event("", command=command)), tmp_path)
        assert (one.command, one.sql) == (want, b"")
    (one,) = found(json.dumps(event("", command="INIT DB")), tmp_path)
    assert (one.command, one.details) == (Command.OTHER, {"command": "init db"})


def test_what_is_no_statement(tmp_path: Path) -> None:
    pieces = read(ActivityStream(), json.dumps(event(**{"class": "AUX"})).encode(), tmp_path)
    assert noises(pieces) == ["auxiliary event"]
    sealed = {
        "type": "DatabaseActivityMonitoringRecords",
        "version": "1.1",
        "databaseActivityEvents": "AYAD",
        "key": "x",
    }
    pieces = read(ActivityStream(), (json.dumps(sealed) + "\n" + json.dumps({"a": 1})).encode(), tmp_path)
    assert rejects(pieces) == [ENCRYPTED, NO_EVENT]


def test_an_event_with_an_object_inside_is_not_lost_silently(tmp_path: Path) -> None:
    pieces = read(ActivityStream(), json.dumps(event(extra={"a": 1})).encode(), tmp_path)
    assert UNKNOWN_SHAPE in rejects(pieces)
    assert not records(pieces)


def test_values_are_missing(tmp_path: Path) -> None:
    (one,) = found(json.dumps(event("select * from t where id = ?")), tmp_path)
    assert (one.command, one.partial) == (Command.EXECUTE, NO_VALUES)
    (one,) = found(json.dumps(event("select nope from t where id = ?", exitCode="1054")), tmp_path)
    assert (one.command, one.partial) == (Command.PREPARE, "")
    (one,) = found(json.dumps(event("select 'abc")), tmp_path)
    assert one.partial


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        (b"show status like \\'x%\\'", b"show status like 'x%'"),
        (b"select \\'it\\\\\\'s\\n\\'", b"select 'it\\'s\n'"),
        (b"select 'it\\'s'", b"select 'it\\'s'"),
        (b'select "a\\\\"', b'select "a\\\\"'),
        (b"select 1", b"select 1"),
        (b"select \\d", b"select \\d"),
    ],
)
def test_the_second_escape(told: bytes, sent: bytes) -> None:
    assert plain(told) == sent


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    raw = json.dumps(event("select 'X'")).encode().replace(b"X", b"\xff\xfe")
    assert found(raw, tmp_path)[0].sql == b"select '\xff\xfe'"


def test_cut_files(tmp_path: Path) -> None:
    whole = (json.dumps(event()) + "\n").encode()
    for cut in range(1, len(whole) - 1, 7):
        pieces = read(ActivityStream(), whole + whole[:-cut] if cut > 1 else whole, tmp_path)
        assert len(records(pieces)) == 1
        if cut > 1:
            assert rejects(pieces)[-1] in (CUT_EVENT, NOT_JSON)
        pieces = read(ActivityStream(), whole[cut:] + whole, tmp_path)
        assert records(pieces)[-1].sql == b"select 1"
        assert len(records(pieces)) == 1
        assert rejects(pieces) or cut > whole.index(b'"class"')


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=60))
def test_texts_come_back(text: str) -> None:
    sql = "select '" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    told = escaped(sql.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        (one,) = found(json.dumps(event(told)), Path(folder))
    assert one.sql == sql.encode("utf-8", "surrogatepass") or "\ud800" <= max(text) <= "\udfff"


PARTS = [json.dumps(event()).encode(), json.dumps(HEARTBEAT).encode(), b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"\n",
         b'{"databaseActivityEventList": [', b'"commandText"']  # fmt: skip
CHUNKS = st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(PARTS)), max_size=20).map(b"".join)
CHUNKS = CHUNKS.filter(lambda data: not data.startswith(GZIP))


@settings(max_examples=25, deadline=None)
@given(CHUNKS, st.integers(1, 300))
def test_blocks_do_not_matter(data: bytes, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "x"
        path.write_bytes(data)
        want = list(ActivityStream().read(str(path)))
        patch.setattr(das, "LogWindow", lambda path, file: LogWindow(path, file, block))
        pieces: list[Piece] = list(ActivityStream().read(str(path)))
        contiguous(pieces, data)
        assert pieces == want
