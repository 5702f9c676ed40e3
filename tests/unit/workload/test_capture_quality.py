"""What a capture is worth, and the commands around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.errors import UsageError
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.quality import gaps, judge, quality_text
from tests.unit.capture_logs import Lines, write_lines
from tests.unit.capture_packets import Trace, result

pytest.importorskip("pyarrow")

SECOND = 1_000_000


def test_gaps() -> None:
    active = [*range(100), *range(700, 800)]
    assert gaps(active) == ([(99, 700)], 1)
    assert gaps([]) == ([], 0)
    assert gaps([5]) == ([], 0)
    assert gaps([0, 600]) == ([], 600)
    assert gaps(list(range(0, 6000, 60))) == ([], 60)
    assert gaps([0, 1, 2, 3, 300]) == ([(3, 300)], 1)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=200))
def test_usual_silences_are_no_gaps(silences: list[int]) -> None:
    active = [sum(silences[:n]) for n in range(len(silences) + 1)]
    assert gaps(active)[0] == []


def test_judgment(tmp_path: Path) -> None:
    told: list[dict[str, object] | str] = [{"command": "connect", "session": 1, "start": 0}]
    told += [{"sql": "x", "session": 1, "start": n * SECOND, "end": n * SECOND, "errno": 0} for n in [*range(60), 900]]
    told += [
        "rejected", {"sql": "cut", "session": 2, "end": 30 * SECOND, "partial": "truncated", "errno": 5},
        {"sql": "BEGIN", "session": 1, "start": 901 * SECOND, "end": 903 * SECOND, "duration": 9},
    ]  # fmt: skip
    capture(
        [CaptureInput(write_lines(tmp_path / "a.log", told), Lines(), "db1")],
        CaptureOptions(tmp_path / "out"),
    )
    quality = judge(tmp_path / "out")
    assert (quality.statements, quality.sessions, quality.whole, quality.partial_sessions) == (63, 2, 61, 2)
    assert (quality.rejected, quality.cut_statements, quality.edge_statements, quality.errors) == (1, 1, 1, 1)
    assert (quality.joined_statements, quality.joined_sessions) == (1, 1)
    assert any("--sessions" in finding for finding in quality.findings)
    assert quality.outcome_known == pytest.approx(62 / 63)
    assert (quality.clock_off, quality.overlapping, quality.disordered) == (1, 0, 1)
    (server,) = quality.servers
    assert (server.gaps, server.gap_seconds, server.seconds) == (1, 840, 902)
    assert [(gap.server, gap.seconds) for gap in quality.gaps] == [("db1", 841)]
    text = quality_text(quality)
    for finding in quality.findings:
        assert finding in text
    assert len(quality.findings) == 7


@pytest.mark.parametrize(("bad", "beyond"), [(1, True), (0, False)])
def test_a_capture_whose_lines_were_rejected_tells_no_rates(tmp_path: Path, bad: int, beyond: bool) -> None:
    pieces: list[dict[str, object] | str] = [
        *["rejected"] * bad,
        {"sql": "x", "session": 1, "start": SECOND, "end": SECOND},
    ]
    file = CaptureInput(write_lines(tmp_path / "a.log", pieces), Lines(), "db1")
    capture([file], CaptureOptions(tmp_path / "out"))
    assert any("its rates are not known" in finding for finding in judge(tmp_path / "out").findings) is beyond


def trace(folder: Path) -> Path:
    packets = Trace()
    packets.connect()
    packets.ask(b"\x03select 'Qz'", result([b"1"]))
    (folder / "a.pcap").write_bytes(packets.pcap())
    return folder / "a.pcap"


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert (
        run(["workload", "capture", str(trace(tmp_path)), "--out", str(out), "--json", "--mask", "--server", "db1"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["statements"], told["sessions"], told["formats"], told["partial"]) == (1, 1, ["pcap"], {})
    assert told["bytes"] == (tmp_path / "a.pcap").stat().st_size
    assert run(["workload", "capture", str(tmp_path / "a.pcap"), "--out", str(out)]) == 2
    assert "--replace" in capsys.readouterr().err
    assert run(["workload", "capture", str(tmp_path / "a.pcap"), "--out", str(out), "--replace", "--port", "3307"]) == 3
    assert "no statement" in capsys.readouterr().err
    assert run(["workload", "capture", "--quality", str(out)]) == 3
    assert "no statement was captured" in capsys.readouterr().out
    assert run(["workload", "capture", str(tmp_path / "a.pcap"), "--out", str(out), "--replace"]) == 0
    assert "1 statement in 1 session" in capsys.readouterr().out
    assert run(["workload", "capture", "--quality", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["usable"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.log"], "no such file"),
        (["text.log"], "cannot tell its format"),
        (["text.log", "--server", "a", "--by-folder"], "contradict"),
    ],
)
def test_usage(tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.log").write_text("anything\n")
    files = [str(tmp_path / one) if one.endswith(".log") else one for one in arguments]
    assert run(["workload", "capture", *files, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_no_capture(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no capture"):
        judge(tmp_path)
