"""Every format is told by its first bytes, or refused with its name asked for; local times by their zone."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.errors import ExitCode, UsageError
from migverify.workload.opening import open_format, read_head, readers, zone_of
from tests.unit.capture_packets import Trace
from tests.unit.log_writers import BANNER, Sent, write_general, write_slow
from tests.unit.workload.test_capture_audit import AURORA, MARIADB, RDS
from tests.unit.workload.test_capture_das import document, event

POLLED = (
    b'{"migverify_poll": 1, "server": "db:3306", "table": "events_statements_history_long"}\n'
    b'{"event": 4, "thread": 9, "session": 3, "user": "app", "host": "h", "name": "statement/sql/select",'
    b' "sql": "select 1",'
    b' "cut": false, "database": "d", "start": 1767323045000000, "end": 1767323045000100, "errno": 0, "warnings": 1,'
    b' "rows_affected": null, "rows_sent": 1, "digest": "ab"}\n'
)


def packets() -> bytes:
    trace = Trace()
    trace.syn()
    return trace.pcap()


SENT = [Sent(b"select 1"), Sent(b"select 'a\nb'")]
SAMPLES: dict[str, tuple[str, bytes]] = {
    "slow": ("slow", write_slow(SENT)),
    "slow without a banner": ("slow", write_slow(SENT)[len(BANNER) :]),
    "slow from mid-record": ("slow", b"-- rest of a text\n where a = 'x';\n" + write_slow(SENT)[len(BANNER) :]),
    "general": ("general", write_general(SENT)),
    "general from mid-record": ("general", b"rest of a text'\n" + write_general(SENT)[len(BANNER) :]),
    "audit of Aurora": ("audit", AURORA % (1, b"select 1", 0)),
    "audit of RDS": ("audit", RDS % (1, b"select 1", 0)),
    "audit of MariaDB": ("audit", MARIADB % (1, b"select 1", 0)),
    "audit from mid-record": ("audit", b"a\\'',0\n" + MARIADB % (1, b"select 1", 0) * 3),
    "events, a line each": ("das", (json.dumps(event()) + "\n").encode() * 2),
    "documents": ("das", json.dumps(document(event())).encode()),
    "events from mid-record": ("das", json.dumps(event())[40:].encode() + b"\n" + json.dumps(event()).encode()),
    "packets": ("pcap", packets()),
    "polled": ("polled", POLLED),
    "a general log with a slow log in a text": (
        "general", write_general([Sent(b"select 1"), Sent(b"x'" + write_slow(SENT) + b"'")]),
    ),
    "a slow log with an audit log in a text": (
        "slow", write_slow([Sent(b"select '\n" + MARIADB % (1, b"x", 0) * 3 + b"'")]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_format_is_told_by_its_first_bytes(sample: str, packed: bool, tmp_path: Path) -> None:
    name, data = SAMPLES[sample]
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert open_format("auto", str(path), 3306).name == name


@pytest.mark.parametrize("data", [b"", b"hello\n", b"{}", BANNER, b"select 1;\nselect 2;\n", bytes(range(256))])
def test_what_cannot_be_told_is_asked_for(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="cannot tell its format") as caught:
        open_format("auto", str(path), 3306)
    assert "--format slow|general|audit|das|pcap|polled" in caught.value.hint
    assert open_format("audit", str(path), 3306).name == "audit"


def test_names() -> None:
    assert list(readers(3306)) == [
        "slow",
        "general",
        "audit",
        "das",
        "pcap",
        "polled",
    ]


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8b" + b"nonsense")
    with pytest.raises(UsageError, match="damaged gzip"):
        read_head(str(path))


def test_zones() -> None:
    moment = datetime(2026, 7, 1, tzinfo=UTC)
    for name, hours in (("+08:00", 8), ("-03:30", -3.5), ("Europe/Berlin", 2), ("UTC", 0), ("+00:00", 0)):
        assert zone_of(name).utcoffset(moment) == timedelta(hours=hours)
    for name in ("Nowhere/Land", "", "+8", "+25:00", "../etc/passwd", "/etc/passwd"):
        with pytest.raises(UsageError, match="no time zone"):
            zone_of(name)


def capture(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = run(["workload", "capture", *arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_the_command_takes_the_zone_of_local_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "audit.log"
    path.write_bytes(MARIADB % (1, b"select 1", 0))
    code, told, _ = capture(capsys, str(path), "--out", str(tmp_path / "a"), "--time-zone", "+08:00")
    assert (code, told["first"], told["statements"]) == (0, "2026-01-01T19:04:05.000000Z", 1)
    code, _, err = capture(capsys, str(path), "--out", str(tmp_path / "b"), "--time-zone", "Moon")
    assert code == ExitCode.USAGE
    assert "no time zone 'Moon'" in err


@pytest.mark.parametrize(
    "sample", [name for name, (form, _) in SAMPLES.items() if form in {"slow", "general", "audit", "das", "polled"}]
)
def test_samples_are_captured_whole(sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "the.log"
    path.write_bytes(SAMPLES[sample][1])
    code, told, _ = capture(capsys, str(path), "--out", str(tmp_path / "out"))
    assert code == 0
    assert told["bytes"] == len(SAMPLES[sample][1])
    assert told["statements"] >= 1
    assert bool(told["rejected"]) == ("mid-record" in sample)
