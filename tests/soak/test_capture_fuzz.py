"""Every reader of captures on damaged files for ten minutes: no crash, every byte accounted for, no value made up.

What can be known of a damaged file: a record whose bytes are those of a record of the sound file says what that one
said, and the text of any other record that is not marked is in the bytes that it is made of.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats.audit import unescape
from migverify.workload.model import Command, Record
from migverify.workload.opening import readers
from tests.unit.any_logs import Writer
from tests.unit.workload.test_capture_pcap import simple

pytest.importorskip("pyarrow")

SECONDS = 600
TOGETHER = frozenset({"pcap"})
"""Formats that make a record of the bytes of several packets."""
ESCAPED = frozenset({"das", "polled"})
"""Formats that write a text with escapes of their own: of it only what is made of sound bytes is compared."""
TOKENS = [
    b"2026-13-45T99:99:99.999999Z", b"9" * 5_000, b"-1", b"\x00", b"\xff" * 9, b"'", b'"', b"\\", b"/*", b"*/", b"\n",
    b"{", b"}", b"[", b"]", b"null", b"NaN", b"1e999",
    b"\\U7fffffff", b"\\UFFFFFFFF", b"\\ud800", b",", b"0", b"18446744073709551616",
    b"# Time: ", b"# User@Host: ", b"QUERY", b"CONNECT", b"true", b"", b" ",
]  # fmt: skip


def sample(name: str, made: random.Random) -> bytes:
    """Return a file of a format as it is written."""
    writer = Writer(made.randrange(1 << 30))
    if name == "pcap":
        return simple().pcap()
    if name in ("slow", "general"):
        return writer.log(getattr(writer, name))
    if name == "audit":
        return writer.audit_log()
    texts = {
        "das": b'{"type":"DatabaseActivityMonitoringRecord","databaseActivityEventList":[{"type":"record",'
        b'"sessionId":"8","commandText":"select 1","logTime":"2026-01-02 03:04:05.678901+00",'
        b'"startTime":"2026-01-02 03:04:05.6+00",'
        b'"exitCode":"0","rowCount":"1","statementId":4,"command":"QUERY","dbUserName":"a"}]}\n',
        "polled": b'{"server":"db","thread":8,"event":4,"session":8,"sql":"select 1",'
        b'"name":"statement/sql/select","start":1767323044,"end":1767323045,"errno":0}\n',
    }  # fmt: skip
    return texts[name] * made.randrange(1, 8)


def damaged(data: bytes, made: random.Random) -> bytes:
    """Return bytes with some of them cut, doubled, replaced or new."""
    out = bytearray(data)
    for _ in range(made.randrange(1, 8)):
        at = made.randrange(len(out) + 1)
        end = min(len(out), at + made.choice([0, 1, 1, 4, 40]))
        out[at:end] = made.choice([made.choice(TOKENS), bytes(out[at:end]) * 2, made.randbytes(made.randrange(5))])
    return bytes(out)


@dataclass
class Checked:
    """What was compared: records whose bytes are sound, others that are not marked, and those that are."""

    sound: int = 0
    damaged: int = 0
    marked: int = 0


def said(record: Record) -> tuple[object, ...]:
    """Return what the bytes of a record say alone, whatever is before or behind them."""
    return record.command, record.sql, record.session, record.errno, record.rows_sent, record.duration


def no_value_is_made_up(name: str, sound: bytes, data: bytes, folder: Path, checked: Checked) -> None:
    """Compare the records of a damaged file with those of the sound one, and with its own bytes."""
    form = readers(3306)[name]

    def records(content: bytes) -> Iterator[tuple[bytes, Record]]:
        path = folder / "the.log"
        path.write_bytes(content)
        for piece in form.read(str(path)):
            if isinstance(piece, Record):
                at = piece.origin.offset
                yield content[at : at + piece.origin.length], piece

    truth: dict[bytes, set[tuple[object, ...]]] = {}
    for raw, record in records(sound):
        truth.setdefault(raw, set()).add(said(record))
    for raw, record in records(data):
        if record.partial or record.command is not Command.QUERY:
            checked.marked += 1
        elif raw in truth and name not in TOGETHER:
            checked.sound += 1
            assert said(record) in truth[raw], (raw, record)
        else:
            checked.damaged += 1
            own = data if name in TOGETHER else raw
            assert record.sql in own or record.sql in unescape(own)[0] or name in ESCAPED, (raw, record)


def attack(name: str, made: random.Random, folder: Path, checked: Checked) -> None:
    """Capture two damaged files of a format that overlap, in parts; every byte has to be accounted for."""
    folder.mkdir()
    sound = sample(name, made)
    data = damaged(sound, made).removeprefix(b"\x1f\x8b")
    no_value_is_made_up(name, sound, data, folder, checked)
    inputs = []
    for number, part in enumerate((data, data[: len(data) // 2])):
        path = folder / f"{number}.log"
        path.write_bytes(part)
        inputs.append(CaptureInput(path, readers(3306)[name]))
    summary = capture(inputs, CaptureOptions(folder / "out", part_bytes=2_000))
    assert summary.bytes == sum(Path(one.path).stat().st_size for one in inputs)
    assert summary.records + summary.rejected + len(summary.noise) > 0 or not summary.bytes


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)  # its last round and its machine may be slow
def test_readers_hold_for_ten_minutes(tmp_path: Path) -> None:
    checked: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    for seed in itertools.count(1_000):
        for name in readers(3306):
            folder = tmp_path / f"{seed}-{name}"
            found = Checked()
            attack(name, random.Random(seed), folder, found)
            shutil.rmtree(folder)
            for kind, count in asdict(found).items():
                checked[f"{name}: {kind}"] += count
        if time.monotonic() > until:
            break
    print(f"{seed - 999:,} rounds; records by format:", dict(sorted(checked.items())))  # noqa: T201
    for name in readers(3306):
        assert checked[f"{name}: sound"] + checked[f"{name}: damaged"] + checked[f"{name}: marked"] > 0, name
