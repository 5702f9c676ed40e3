"""Logs that are still being written: what is not whole yet stays unread, and no rotation or kill loses or doubles."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from migverify.cli.main import app
from migverify.errors import MigverifyError, ReadError, UsageError
from migverify.workload.follow import STATE, Follower
from migverify.workload.formats import log_readers
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from migverify.workload.lines import open_bytes
from migverify.workload.private import write_private
from tests.unit.any_logs import Writer
from tests.unit.log_writers import FORGED, Sent, write_slow
from tests.waiting import wait_for

pytest.importorskip("pyarrow")
FORMS: dict[str, Any] = {"slow": SlowLog(), "general": GeneralLog(), "audit": Audit()}


def log_of(name: str, seed: int) -> bytes:
    writer = Writer(seed)
    return writer.audit_log() if name == "audit" else writer.log(getattr(writer, name))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(sorted(FORMS)), st.floats(0, 1))
def test_what_is_read_of_a_half_written_log_is_what_the_whole_log_holds(seed: int, name: str, share: float) -> None:
    data, form = log_of(name, seed), FORMS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "the.log"
        path.write_bytes(data)
        whole = list(form.part(str(path), 0, None, None))
        half = data[: int(len(data) * share)]
        path.write_bytes(half)
        part = form.part(str(path), 0, None, None, growing=True)
        found = list(part)
    # A half banner is one more piece of noise, with the rest of it behind.
    assert [one for one in found if type(one).__name__ != "Noise"] == [
        one for one in whole[: len(found)] if type(one).__name__ != "Noise"
    ]
    assert part.end <= len(half)


def sent(count: int, first: int = 0) -> list[Sent]:
    """Statements of three sessions, some of which hold what looks like a record."""
    return [
        Sent(b"select '%s %d'" % (FORGED if number % 5 == 0 else b"x", number), session=number % 3 + 1,
             end=1_767_323_045_000_000 + number * 1_000, database="shop")
        for number in range(first, first + count)
    ]  # fmt: skip


def records_of(count: int, first: int = 0) -> list[bytes]:
    return [write_slow([one]).split(b"Argument\n", 1)[1] for one in sent(count, first)]


class Server:
    """Writes to a log that is rotated; ``written`` is all of it in order. ``steps``: each write is a millisecond.

    ``begin`` writes the line that tells a file from all others of a server.
    """

    def __init__(self, folder: Path, *, steps: bool = True) -> None:
        self.steps = steps
        self.log = folder / "slow.log"
        self.log.touch()
        self.written = b""
        self.now = 1_767_000_000_000_000_000
        self._file = self.log.open("ab", buffering=0)
        self.touch()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.written += data
        self.touch()

    def begin(self) -> None:
        self.write(b"# Time: %d\n" % self.now)

    def touch(self) -> None:
        self.now += 1_000_000
        if self.steps:
            os.utime(self._file.fileno(), ns=(self.now, self.now))

    def shift(self) -> None:
        """Give every rotated log the next number; the one before stays unpacked."""
        numbers = sorted((int(one.name.split(".")[2]), one) for one in self.log.parent.glob("slow.log.*"))
        for number, path in reversed(numbers):
            at = path.stat().st_mtime_ns
            if number == 1:
                packed = self.log.with_name("slow.log.2.gz")
                packed.write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
                os.utime(packed, ns=(at, at))
            else:
                path.rename(self.log.with_name(f"slow.log.{number + 1}.gz"))

    def rename(self) -> None:
        self.shift()
        self.log.rename(self.log.with_name("slow.log.1"))

    def reopen(self) -> None:
        self._file.close()
        self._file = self.log.open("ab", buffering=0)

    def copy_and_truncate(self) -> None:
        self.shift()
        shutil.copyfile(self.log, self.log.with_name("slow.log.1"))
        self.now += 1_000_000
        os.utime(self.log.with_name("slow.log.1"), ns=(self.now, self.now))
        self._file.truncate(0)
        self.touch()


def copied(follower: Follower) -> bytes:
    return b"".join(path.read_bytes() for _, path, _ in follower.copies())


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(["write", "write", "poll", "rename", "truncate", "stop", "kill"]), max_size=25),
       st.integers(0, 1 << 32))  # fmt: skip
def test_no_rotation_or_kill_loses_or_doubles_a_byte(steps: list[str], seed: int) -> None:
    made = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "followed"
        server = Server(Path(name))
        server.begin()
        server.write(made.randbytes(made.choice([1, 100, 9_000])))
        follower = Follower(folder, [server.log], lambda _text: None)
        follower.poll()
        for step in [*steps, "poll"]:
            if step == "write":
                server.write(made.randbytes(made.choice([1, 100, 9_000])))
            elif step == "poll":
                follower.poll()
            elif step == "rename":
                server.rename()
                if made.random() < 0.5:
                    follower.poll()
                server.write(made.randbytes(50))  # the server goes on in the renamed file until its flush
                if made.random() < 0.5:
                    follower.poll()
                server.reopen()
                server.begin()
                server.write(made.randbytes(50))
            elif step == "truncate":
                server.copy_and_truncate()
                server.begin()
                server.write(made.randbytes(50))
            elif step == "stop":
                follower.__exit__(None, None, None)
                follower = Follower(folder, [server.log], lambda _text: None)
            else:  # a kill between the bytes and what is saved of them
                state = (folder / STATE).read_bytes()
                follower.poll()
                follower.__exit__(None, None, None)
                (folder / STATE).write_bytes(state)
                follower = Follower(folder, [server.log], lambda _text: None)
        follower.poll()
        assert copied(follower) == server.written
        losses = [loss for log in follower.logs for loss in log.losses]
        assert all("is in neither" in loss for loss in losses)
        assert len(losses) <= steps.count("truncate")
        follower.__exit__(None, None, None)


def test_what_is_gone_is_told_as_a_loss(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.write(b"a" * 5_000)
    said: list[str] = []
    with Follower(tmp_path / "followed", [server.log], said.append) as follower:
        follower.poll()
        server.log.write_bytes(b"")  # nobody kept a copy
        server.write(b"b" * 20)
        follower.poll()
        assert copied(follower) == b"a" * 5_000 + b"b" * 20
        (loss,) = follower.logs[0].losses
    assert "truncated behind byte 5,000" in loss
    assert said == [f"{server.log}: {loss}"]
    state = json.loads((tmp_path / "followed" / STATE).read_text())
    assert state["logs"][0]["losses"] == [loss]
    server.log.unlink()
    server.reopen()
    server.write(b"c")
    with Follower(tmp_path / "followed", [server.log], said.append) as follower:
        follower.poll()
        assert "is gone behind byte 20" in follower.logs[0].losses[1]


def test_a_folder_of_other_logs_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.write(b"x")
    folder = tmp_path / "followed"
    with Follower(folder, [server.log], print) as follower:
        follower.poll()
    with pytest.raises(UsageError, match="follows"):
        Follower(folder, [tmp_path / "other.log"], print)
    server.write(b"y")
    (folder / "00-00000-slow.log").write_bytes(b"")
    with pytest.raises(ReadError, match="shorter"), Follower(folder, [server.log], print) as follower:
        follower.poll()
    (folder / STATE).write_text('{"version": 1, "logs": [{}]}')
    with pytest.raises(ReadError, match="damaged"):
        Follower(folder, [server.log], print)
    assert (folder.stat().st_mode & 0o777, (folder / "00-00000-slow.log").stat().st_mode & 0o777) == (0o700, 0o600)


BANNER = write_slow([])


def log_file(path: Path, *texts: str) -> Path:
    """Write a log with a statement for each text behind the banner that all files of a server have."""
    path.write_bytes(BANNER + b"".join(
        b"# Time: 2026-01-01T00:00:0%d.000000Z\n# User@Host: a[a] @ localhost []  Id:     1\n# Query_time: 0.1"
        b"  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\nSET timestamp=176722560%d;\nselect '%s', %d;\n"
        % (number, number, text.encode(), number)
        for text in texts for number in (1, 2, 3)
    ))  # fmt: skip
    return path


def follow_once(log: Path, said: list[str] | None = None) -> tuple[bytes, list[str]]:
    """Follow a log through all that it has; return the bytes of its copies, and the losses."""
    with Follower(log.parent / "followed", [log], print if said is None else said.append) as follower:
        while follower.poll():
            pass
        return copied(follower), [loss for one in follower.logs for loss in one.losses]


@pytest.mark.attack("capture", "a folder of copies that another user made, with a link in it", "refused; exit code 2")
def test_a_folder_that_another_user_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_file(tmp_path / "slow.log", "A")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "out.followed"
    run: tuple[object, ...] = (log, "--format", "slow", "--follow", "--seconds", 0, "--out", tmp_path / "out")

    def refused() -> str:
        code, text = invoke(*run)
        assert code == 2, text
        assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", mode)
        return text

    mode = victim.stat().st_mode & 0o777
    folder.mkdir(mode=0o700)
    (folder / "00-00000-slow.log").symlink_to(victim)
    user = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: user + 1)
        assert "belongs to another user" in refused()
    folder.chmod(0o777)
    assert "may be written to by other users (mode 777)" in refused()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    assert "is a link" in refused()
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    code, text = invoke(*run)  # of this user: the link alone is removed
    assert code == 0, text
    assert victim.read_text() == "precious"


@pytest.mark.attack(
    "capture", "links, hard links and FIFOs where a private file is written", "refused, nothing changed"
)
def test_a_private_file_is_never_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("soft", "hard", "fifo", "foreign"):
        path = tmp_path / name
        if name == "soft":
            path.symlink_to(victim)
        elif name == "hard":
            path.hardlink_to(victim)
        elif name == "fifo":
            os.mkfifo(path)
        else:
            (tmp_path / "hard").unlink()
            path.write_text("precious")
            monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(UsageError, match="statements are not written there"):
            write_private(path, b"x")
    assert victim.read_text() == (tmp_path / "foreign").read_text() == "precious"


@pytest.mark.attack("capture", "a log of which only the banner was copied, rotated out", "a possible loss is told")
def test_a_banner_does_not_make_a_file_the_continuation(tmp_path: Path) -> None:
    log = log_file(tmp_path / "slow.log")
    assert follow_once(log) == (BANNER, [])
    assert follow_once(log) == (BANNER, [])  # the same file: nothing is lost
    log_file(log, "A")
    log.unlink()
    for text in "BC":  # the first of them gets the inode of the file that is gone, on many file systems
        log_file(log, text)
        if text == "B":
            log.rename(tmp_path / "slow.log.1")
    data, losses = follow_once(log)
    assert [data.count(b"select '%s'" % text) for text in (b"A", b"B", b"C")] == [0, 3, 3]
    (loss,) = losses
    assert "no file beside it goes on from there" in loss
    code, text = invoke(log, "--follow", "--seconds", 0, "--out", tmp_path / "out")
    assert code == 0, text


def test_a_renamed_file_of_which_only_the_banner_was_copied_is_gone_on_with(tmp_path: Path) -> None:
    log = log_file(tmp_path / "slow.log")
    assert follow_once(log) == (BANNER, [])
    log_file(log, "A")
    log.rename(tmp_path / "slow.log.1")
    log_file(log, "B")
    data, losses = follow_once(log)
    assert (data.count(b"select 'A'"), data.count(b"select 'B'"), losses) == (3, 3, [])


@pytest.mark.attack("capture", "a clock that was set back between rotations", "no rotated file is skipped")
def test_no_rotated_file_is_skipped_by_its_clock(tmp_path: Path) -> None:
    log_file(tmp_path / "slow.log.3", "0")
    (tmp_path / "slow.log.4.gz").write_bytes(gzip.compress(log_file(tmp_path / "x", "Z").read_bytes()))
    log = log_file(tmp_path / "slow.log", "A")
    follow_once(log)
    log.rename(tmp_path / "slow.log.2")
    (tmp_path / "slow.log.4.gz").write_bytes(gzip.compress((tmp_path / "slow.log.3").read_bytes()))
    os.utime(log_file(tmp_path / "slow.log.1", "B"), (0, 0))
    log_file(log, "C")
    data, losses = follow_once(log)
    assert [data.count(b"select '%s'" % text) for text in (b"Z", b"0", b"A", b"B", b"C")] == [0, 0, 3, 3, 3]
    assert losses == []
    assert follow_once(log) == (data, [])


@pytest.mark.attack("capture", "rotated files that are packed by xz, or damaged", "a possible loss is told, by name")
def test_a_rotated_file_that_cannot_be_read_is_a_loss(tmp_path: Path) -> None:
    log = log_file(tmp_path / "slow.log", "A")
    follow_once(log)
    log.rename(tmp_path / "slow.log.3")
    (tmp_path / "slow.log.1.xz").write_bytes(lzma.compress(log_file(tmp_path / "x", "B").read_bytes()))
    (tmp_path / "slow.log.2.gz").write_bytes(gzip.compress(log_file(tmp_path / "x", "D").read_bytes())[:-9])
    log_file(log, "C")
    data, losses = follow_once(log)
    assert (data.count(b"select 'A'"), data.count(b"select 'C'")) == (3, 3)
    packed, damaged = sorted(losses)
    assert f"{tmp_path}/slow.log.1.xz is packed by xz" in packed
    assert f"{tmp_path}/slow.log.2.gz is damaged gzip" in damaged
    assert follow_once(log) == (data, losses)


@pytest.mark.attack("capture", "a FIFO, a folder or an endless link where the log was", "an error at once; exit code 3")
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop"])
def test_what_is_no_file_ends_the_follower(tmp_path: Path, kind: str, is_open: bool) -> None:
    log = log_file(tmp_path / "slow.log", "A")
    reason = "Too many levels" if kind == "loop" else "is not a regular file"

    def replace() -> None:
        log.unlink()
        {"fifo": os.mkfifo, "folder": os.mkdir, "loop": lambda path: path.symlink_to(path)}[kind](log)

    if is_open:
        with Follower(tmp_path / "followed", [log], print) as follower:
            follower.poll()
            replace()
            with pytest.raises(ReadError, match=reason):
                follower.poll()
        return
    follow_once(log)
    replace()
    with pytest.raises(ReadError, match=reason):
        follow_once(log)
    shutil.rmtree(tmp_path / "followed")
    with pytest.raises(ReadError, match=reason):
        follow_once(log)


@pytest.mark.attack("capture", "a FIFO named as the log", "refused; exit code 2 or 3")
def test_a_fifo_is_never_opened_to_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow.log")
    assert invoke(tmp_path / "slow.log", "--out", tmp_path / "out")[0] == 2
    with pytest.raises(ReadError, match="is not a regular file"):
        open_bytes(str(tmp_path / "slow.log"))


@pytest.mark.attack("capture", "a log that is replaced by a link to another file", "the file that is read is named")
def test_a_link_is_followed_and_named(tmp_path: Path) -> None:
    real = log_file(tmp_path / "real", "A")
    (tmp_path / "slow.log").symlink_to(real)
    said: list[str] = []
    data, losses = follow_once(tmp_path / "slow.log", said)
    assert (data, losses) == (real.read_bytes(), [])
    (line,) = said
    assert f"is read from {real}, a file of {real.owner()}" in line


def rows(out: Path) -> list[tuple[object, ...]]:
    import pyarrow.parquet as pq

    found = pq.read_table(out, columns=["sql", "connection", "database", "partial"]).to_pylist()
    return [tuple(one.values()) for one in found]


def test_kills_and_rotations_of_a_followed_log_lose_no_statement(tmp_path: Path) -> None:
    """A server writes and rotates while the command is killed twice; then Ctrl-C, and the same command once more.

    The last whole statement stays unread each time: of the header behind it 70 bytes are written.
    """
    server = Server(tmp_path, steps=False)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "migverify", "workload", "capture", str(server.log), "--follow", "--out", str(out),
               "--jobs", "1", "--replace"]  # fmt: skip
    texts = records_of(900)

    def follow(begin: int, end: int, stop: signal.Signals) -> str:
        """Write statements while the command runs, rotating twice, the last of them in two halves; stop it."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        followed = tmp_path / "out.followed"
        wait_for((followed / STATE).exists, "the log is followed")
        before = len(server.written)
        for number in range(begin, end):
            half = len(texts[number]) // 2
            server.write(texts[number][:half])
            if number % 100 == 50:
                server.rename()
                wait_for(lambda: process.poll() is None, "the command runs")
            server.write(texts[number][half:])
            if number % 100 == 60:
                server.reopen()
        server.write(texts[end][:70])

        def saved() -> int:
            (log,) = json.loads((followed / STATE).read_text())["logs"]
            return sum(one["size"] for one in log["files"])

        wait_for(lambda: saved() > before, "bytes of this time are copied")
        if stop is signal.SIGINT:
            wait_for(lambda: saved() == len(server.written), "all that was written is copied")
        process.send_signal(stop)
        told, _ = process.communicate(timeout=120)
        server.write(texts[end][70:])
        return told

    follow(0, 250, signal.SIGKILL)
    follow(251, 400, signal.SIGKILL)
    told = follow(401, 700, signal.SIGINT)
    assert "left for a later run: " in told, told
    assert [sql for sql, *_ in sorted(rows(out))] == sorted(one.sql for one in sent(699))
    follow(701, 850, signal.SIGINT)
    found = rows(out)
    assert sorted(sql for sql, *_ in found) == sorted(one.sql for one in sent(849))
    assert {(database, partial) for _, _, database, partial in found} == {("shop", "")}
    summary = json.loads((out / "_summary.json").read_text())
    assert (summary["duplicates"], summary["rejected"]) == (0, 0)
    # A log that got the inode of one that was packed meanwhile looks like one that was truncated.
    assert all("is in neither" in loss for loss in summary["losses"])
    assert summary["unread"] > 0


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["workload", "capture", *map(str, arguments)])
    error = result.exception
    code = int(error.exit_code) if isinstance(error, MigverifyError) else result.exit_code
    return code, result.output + (str(error) if error else "")


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "slow.log"
    log.write_bytes(write_slow(sent(3)))
    packed = tmp_path / "slow.log.gz"
    packed.write_bytes(gzip.compress(random.Random(1).randbytes(9_000)))
    polled = tmp_path / "events.jsonl"
    polled.write_text('{"server":"db","thread":8,"event":4,"sql":"select 1","name":"statement/sql/select"}\n')
    out = tmp_path / "out"
    for arguments, reason in (
        (["memory://x/slow.log", "--follow"], "not URLs"),
        ([packed, "--follow", "--format", "slow"], "is gzip"),
        ([polled, "--follow", "--format", "polled"], "slow, general and audit"),
        ([tmp_path / "none.log", "--follow"], "no such file"),
        ([log, "--seconds", 3], "--seconds needs --follow"),
    ):
        code, text = invoke(*arguments, "--out", out)
        assert code == 2, text
        assert reason in text
        assert not out.exists()
        assert not (tmp_path / "out.followed").exists()


def test_masked_copies_are_removed(tmp_path: Path) -> None:
    log = tmp_path / "slow.log"
    log.write_bytes(write_slow(sent(3)))
    code, text = invoke(log, "--follow", "--seconds", 0, "--mask", "--jobs", 1, "--out", tmp_path / "out")
    assert code == 0, text
    assert not (tmp_path / "out.followed").exists()
    assert len(rows(tmp_path / "out")) == 2  # nothing behind the third shows that it is whole
    assert invoke(log, "--follow", "--seconds", 0, "--out", tmp_path / "out")[0] == 2  # a capture is there


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_log_in_an_object_store_is_read_as_a_file_is(tmp_path: Path, protocol: str) -> None:
    import fsspec

    log = write_slow(sent(40))
    parts = {"slow.log": log[len(log) // 2 :], "slow.log.1.gz": gzip.compress(log[: len(log) // 2])}
    base = f"{protocol}://{tmp_path}/logs"
    for name, data in parts.items():
        fsspec.filesystem(protocol).makedirs(f"{tmp_path}/logs", exist_ok=True)
        fsspec.filesystem(protocol).pipe_file(f"{tmp_path}/logs/{name}", data)
        (tmp_path / name).write_bytes(data)
    local = [tmp_path / name for name in parts]
    assert invoke(*local, "--jobs", 1, "--out", tmp_path / "local")[0] == 0
    code, text = invoke(*(f"{base}/{name}" for name in parts), "--jobs", 1, "--by-folder", "--out", tmp_path / "remote")
    assert code == 0, text
    assert rows(tmp_path / "remote") == rows(tmp_path / "local")
    summary = json.loads((tmp_path / "remote" / "_summary.json").read_text())
    assert {one["file"] for one in summary["files"]} == {f"{base}/{name}" for name in parts}
    assert summary["servers"] == ["logs"]
    code, text = invoke(f"{base}/none.log", "--out", tmp_path / "none")
    assert (code, "no such file" in text) == (2, True)


@pytest.mark.attack("capture", "a password in the URL of a log", "is in no message and no row")
def test_a_password_in_a_url_is_never_shown(tmp_path: Path) -> None:
    for url in ("s3://key:hunter2@bucket/slow.log", "memory://key:hunter2@bucket/slow.log?sig=hunter2",
                "nothing://key:hunter2@x/y.log", "https://u:hun/hunter2@127.0.0.1:1/slow.log",
                "s3://us%3Aer:hunter2#@b/x.log", "s3://u:hunter2?@b/x.log"):  # fmt: skip
        code, text = invoke(url, "--out", tmp_path / "out")
        assert code != 0
        assert "hunter2" not in text


def test_every_format_that_can_be_followed_is_a_log() -> None:
    from datetime import UTC

    assert {"slow", "general", "audit"} <= {reader.name for reader in log_readers(UTC)}
