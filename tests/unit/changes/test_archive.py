"""The archive: byte-identical, resumable at any point, and loud about what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes import archive as archive_module
from migverify.changes.archive import archive, check_archive
from migverify.changes.events import EventType, RawEvent
from migverify.changes.manifest import FileState, OpenXa, breaks, read_manifest
from migverify.changes.model import Position
from migverify.changes.storage import Storage
from migverify.errors import ChangeError, PurgedError, UsageError
from tests.binlog_files import SERVER, TIME, BinlogFile, FakeServer, history


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "archive"))


@pytest.fixture(params=["folder", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage(str(tmp_path / "archive"))
        return
    import fsspec

    yield Storage(f"memory://{tmp_path}/archive")
    memory = fsspec.filesystem("memory")
    if memory.exists(str(tmp_path)):
        memory.rm(str(tmp_path), recursive=True)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.changes.source.time.sleep", lambda _: None)


def content(storage: Storage, name: str) -> bytes:
    with storage.open(name) as stream:
        return stream.read()


def assert_same(storage: Storage, files: list[BinlogFile]) -> None:
    for file in files:
        assert content(storage, file.name) == bytes(file.data), file.name


def silent(_: str) -> None:
    return


@pytest.mark.parametrize("checksum", [True, False])
def test_files_are_kept_byte_for_byte(anywhere: Storage, checksum: bool) -> None:
    files = history([3, 0, 5], checksum=checksum)
    manifest = archive(anywhere, FakeServer(files))
    assert_same(anywhere, files)
    assert [file.state for file in manifest.files] == [FileState.COMPLETE, FileState.COMPLETE, FileState.GROWING]
    assert [file.gtids for file in manifest.files] == [f"{SERVER}:1-3", "", f"{SERVER}:4-8"]
    assert [file.gtids_before for file in manifest.files] == ["", f"{SERVER}:1-3", f"{SERVER}:1-3"]
    assert manifest.covered() == f"{SERVER}:1-8"
    assert [file.following for file in manifest.files] == ["binlog.000002", "binlog.000003", ""]
    assert {file.checksum for file in manifest.files} == {"crc32" if checksum else "none"}
    assert {file.server_version for file in manifest.files} == {"9.7.4"}
    assert [file.first_time for file in manifest.files] == [TIME, TIME + 100, TIME + 200]
    assert [file.in_use_cleared for file in manifest.files] == [False, False, True]
    assert not list(breaks(manifest))


def test_a_growing_file_goes_on_where_it_ended(anywhere: Storage) -> None:
    files = history([2, 3])
    archive(anywhere, FakeServer(files))
    files[1].transaction(6)
    files[1].ddl(7, "CREATE TABLE t (id INT)")
    files[1].rotate("binlog.000003")
    files.append(BinlogFile("binlog.000003").head(f"{SERVER}:1-7"))
    manifest = archive(anywhere, FakeServer(files))
    assert_same(anywhere, files)
    assert manifest.covered() == f"{SERVER}:1-7"


def test_a_server_that_was_stopped(storage: Storage) -> None:
    file = BinlogFile("binlog.000001").head()
    file.transaction(1)
    file.stop()
    archive(storage, FakeServer([file]))
    after = BinlogFile("binlog.000002").head(f"{SERVER}:1")
    manifest = archive(storage, FakeServer([file, after]))
    assert [one.state for one in manifest.files] == [FileState.COMPLETE, FileState.GROWING]
    assert_same(storage, [file, after])


@pytest.mark.parametrize("resend", [False, True])
def test_a_lost_connection_neither_loses_nor_repeats(storage: Storage, resend: bool) -> None:
    files = history([3, 4, 2])
    # Without resending, each connection gets a format description and four events further.
    server = FakeServer(files, lose_after=30 if resend else 5, resend_from_start=resend)
    archive(storage, server)
    assert server.connections > 1
    assert_same(storage, files)


def test_a_connection_that_stays_lost_is_an_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "RECONNECT_SECONDS", -1.0)
    files = history([3])
    with pytest.raises(ChangeError, match="stayed lost"):
        archive(storage, FakeServer(files, lose_after=4))
    # What came before is certain.
    (entry,) = read_manifest(storage).files
    assert content(storage, entry.name)[: entry.bytes] == bytes(files[0].data[: entry.bytes])
    assert entry.bytes > 4


class Killed(BaseException):
    """Like kill -9: nothing may clean up after it."""


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    kills=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), max_size=4),
)
def test_killed_anywhere_and_run_again(
    counts: list[int], kills: list[tuple[int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After a kill the file may be longer than the manifest says, end inside an event, or have no entry."""
    folder = tmp_path_factory.mktemp("killed")
    storage = Storage(str(folder))
    files = history(counts)
    for events, torn, published in kills:
        run_and_kill(storage, files, events, published=published)
        last = max((path for path in folder.glob("binlog.*")), default=None)
        entry = next((file for file in read_manifest(storage).files if last and file.name == last.name), None)
        if last is not None and (entry is None or entry.state is FileState.GROWING):
            kept = bytes(files[int(last.suffix[1:]) - 1].data[: entry.bytes if entry else 0])
            last.write_bytes(kept + b"\x07" * torn)
    manifest = archive(storage, FakeServer(files))
    assert_same(storage, files)
    assert not list(breaks(manifest))
    assert check_archive(storage, silent).findings == ()


def run_and_kill(storage: Storage, files: list[BinlogFile], events: int, *, published: bool) -> None:
    class Dying(FakeServer):
        def events(self, start: Position, *, follow: bool = False) -> Iterator[RawEvent]:
            for place, event in enumerate(super().events(start, follow=follow)):
                if place == events:
                    raise Killed
                yield event

    with pytest.MonkeyPatch.context() as patch:
        real = archive_module._GrowingFile.publish

        def publish(self: archive_module._GrowingFile, *args: object) -> None:
            # A killed process publishes nothing at its end.
            if not isinstance(sys.exc_info()[1], Killed):
                real(self, *args)  # type: ignore[arg-type]

        patch.setattr(archive_module._GrowingFile, "publish", publish)
        with suppress(Killed):
            archive(storage, Dying(files), publish_seconds=0.0 if published else 1e9)


def test_a_damaged_prefix_is_read_from_the_server_again(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    files = history([5])
    archive(storage, FakeServer(files))
    path = tmp_path / "binlog.000001"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    files[0].transaction(6)
    archive(storage, FakeServer(files))
    assert_same(storage, files)


def test_a_purged_file_is_a_gap_and_an_error(anywhere: Storage) -> None:
    files = history([2, 2, 2, 2])
    archive(anywhere, FakeServer(files[:2]))
    with pytest.raises(PurgedError, match=r"deleted binlog\.000003") as caught:
        archive(anywhere, FakeServer(files[3:]))
    assert "--since binlog.000004" in caught.value.hint
    manifest = read_manifest(anywhere)
    assert [(gap.after, gap.bytes, gap.resumes) for gap in manifest.gaps] == [
        ("binlog.000002", manifest.files[1].bytes, "binlog.000004")
    ]
    # It stays an error until somebody decides to go on after the gap.
    with pytest.raises(PurgedError):
        archive(anywhere, FakeServer(files[3:]))
    manifest = archive(anywhere, FakeServer(files[3:]), since="binlog.000004")
    assert manifest.covered() == f"{SERVER}:1-4:7-8"
    assert [reason for reason in breaks(manifest) if "deleted" in reason]
    assert check_archive(anywhere, silent).findings
    assert archive(anywhere, FakeServer(files[3:])) == manifest


def test_a_hole_of_the_manifest_is_filled(anywhere: Storage) -> None:
    files = history([2, 2, 2, 2])
    archive(anywhere, FakeServer(files))
    without_entry(anywhere, "binlog.000002")
    without_entry(anywhere, "binlog.000003")
    manifest = archive(anywhere, FakeServer(files))
    assert len(manifest.files) == 4
    assert not list(breaks(manifest))
    assert_same(anywhere, files)


def without_entry(storage: Storage, name: str) -> None:
    if storage.is_local:
        (storage.folder / "manifest" / f"{name}.json").unlink()
    else:
        storage._fs.rm(f"{storage._root}/manifest/{name}.json")


def test_since_begins_a_new_archive_and_leaves_nothing_out(storage: Storage, tmp_path: Path) -> None:
    files = history([2, 2, 2])
    with pytest.raises(PurgedError, match=r"no binlog\.000009"):
        archive(storage, FakeServer(files), since="binlog.000009")
    manifest = archive(storage, FakeServer(files), since="binlog.000002")
    assert [file.name for file in manifest.files] == ["binlog.000002", "binlog.000003"]
    other = Storage(str(tmp_path / "other"))
    archive(other, FakeServer(files[:1]))
    with pytest.raises(UsageError, match="goes on with"):
        archive(other, FakeServer(files), since="binlog.000003")
    with other.lock(), pytest.raises(ChangeError, match="another process"):
        archive(Storage(str(tmp_path / "other")), FakeServer(files))


def test_another_server(storage: Storage) -> None:
    archive(storage, FakeServer(history([2])))
    with pytest.raises(ChangeError, match="holds binlogs of server"):
        archive(storage, FakeServer(history([2]), uuid=SERVER.replace("5", "6")))


def test_reset_binlogs(storage: Storage) -> None:
    archive(storage, FakeServer(history([2])))
    with pytest.raises(ChangeError, match="the server's file has"):
        archive(storage, FakeServer(history([1])))
    again = history([8])
    again[0].created = TIME + 7
    later = BinlogFile("binlog.000001", created=TIME + 7).head()
    for number in range(1, 9):
        later.transaction(number, payload=number % 50 + 1)
    with pytest.raises(ChangeError, match="began at another time"):
        archive(storage, FakeServer([later]))


def test_a_missing_event_is_noticed(storage: Storage) -> None:
    class Losing(FakeServer):
        def events(self, start: Position, *, follow: bool = False) -> Iterator[RawEvent]:
            for place, event in enumerate(super().events(start, follow=follow)):
                if place != 5:
                    yield event

    with pytest.raises(ChangeError, match="ends at"):
        archive(storage, Losing(history([3])))


def test_a_transaction_missing_between_files_is_a_break(storage: Storage) -> None:
    files = history([2])
    files[0].rotate("binlog.000002")
    files.append(BinlogFile("binlog.000002").head(f"{SERVER}:1-3"))
    manifest = archive(storage, FakeServer(files))
    assert [reason for reason in breaks(manifest) if f"{SERVER}:3" in reason]


def test_xa_over_files_is_in_the_manifest(storage: Storage) -> None:
    files = history([1])
    files[0].xa_prepare(2, b"one")
    start = files[0].ends[0]
    files[0].xa_prepare(3, b"two")
    files[0].xa_commit(4, b"two")
    files[0].rotate("binlog.000002")
    later = BinlogFile("binlog.000002").head(f"{SERVER}:1-4")
    later.xa_commit(5, b"one")
    later.xa_prepare_packed(6, b"packed", (1, "a"))
    manifest = archive(storage, FakeServer([files[0], later]))
    assert manifest.files[0].xa_open == (OpenXa("X'6f6e65',X'',1", start, files[0].ends[1]),)
    assert manifest.files[1].xa_closed == ("X'6f6e65',X'',1",)
    assert manifest.files[1].xa_open == (OpenXa("X'7061636b6564',X'',1", later.ends[0], later.ends[1]),)


def test_whole_is_the_end_of_the_last_whole_transaction(storage: Storage) -> None:
    file = history([2])[0]
    whole = len(file.data)
    file.gtid(3)
    file.query("BEGIN")
    file.event(EventType.ROWS_QUERY, b"abc")
    (entry,) = archive(storage, FakeServer([file])).files
    assert (entry.whole, entry.bytes) == (whole, len(file.data))


class TestCheck:
    @pytest.mark.parametrize("harm", ["head", "event", "end", "cut", "gone", "entry", "stray"])
    def test_what_is_harmed_is_found(self, tmp_path: Path, harm: str) -> None:
        storage, path = Storage(str(tmp_path)), tmp_path / "binlog.000002"
        archive(storage, FakeServer(history([3, 2, 2])))
        data = bytearray(path.read_bytes())
        if harm in ("head", "event", "end"):
            data[{"head": 30, "event": 150, "end": -3}[harm]] ^= 1
        path.write_bytes(data[:-10] if harm == "cut" else data)
        if harm in ("gone", "entry"):
            path.unlink()
        if harm == "entry":
            (tmp_path / "manifest" / "binlog.000002.json").unlink()
        if harm == "stray":
            (tmp_path / "binlog.000007").write_bytes(b"x")
        findings = check_archive(storage, silent).findings
        name = {"stray": "binlog.000007", "entry": "binlog.000003"}.get(harm, "binlog.000002")
        assert any(name in text for text in findings)

    def test_no_archive(self, storage: Storage) -> None:
        with pytest.raises(ChangeError, match="no archive"):
            check_archive(storage, silent)

    def test_a_good_archive(self, storage: Storage) -> None:
        archive(storage, FakeServer(history([3, 2])))
        found = check_archive(storage, silent)
        assert found.findings == ()
        assert found.events == 3 * 4 + 2 + 1 + 2 * 4 + 2
        assert found.gtids == f"{SERVER}:1-5"
