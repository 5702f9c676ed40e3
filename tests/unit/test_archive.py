"""The archive: byte-identical, resumable at any point, and loud about whatever is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes import archive as archive_module
from migverify.changes.archive import archive
from migverify.changes.archive_check import check_archive
from migverify.changes.events import EventType, RawEvent
from migverify.changes.manifest import FileState, OpenXa, breaks, read_manifest
from migverify.changes.storage import Storage, open_storage
from migverify.errors import ChangeError, PurgedError, UsageError
from tests.binlog_files import SERVER, TIME, BinlogFile, FakeServer, history


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "folder":
        yield open_storage(str(tmp_path / "archive"))
        return
    import fsspec

    yield open_storage(f"memory://{tmp_path}/archive")
    memory = fsspec.filesystem("memory")
    if memory.exists(str(tmp_path)):
        memory.rm(str(tmp_path), recursive=True)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module.time, "sleep", lambda _: None)


def content(storage: Storage, name: str) -> bytes:
    with storage.open(name) as stream:
        return stream.read()


def assert_same(storage: Storage, files: list[BinlogFile]) -> None:
    for file in files:
        assert content(storage, file.name) == bytes(file.data), file.name


def silent(_: str) -> None:
    return


@pytest.mark.parametrize("checksum", [True, False])
def test_files_are_kept_byte_for_byte(storage: Storage, checksum: bool) -> None:
    files = history([3, 0, 5], checksum=checksum)
    manifest = archive(storage, FakeServer(files))
    assert_same(storage, files)
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


def test_a_second_run_changes_nothing(storage: Storage) -> None:
    files = history([3, 4])
    first = archive(storage, FakeServer(files))
    assert archive(storage, FakeServer(files)) == first
    assert_same(storage, files)


def test_a_growing_file_goes_on_where_it_ended(storage: Storage) -> None:
    files = history([2, 3])
    archive(storage, FakeServer(files))
    files[1].transaction(6)
    files[1].ddl(7, "CREATE TABLE t (id INT)")
    files[1].rotate("binlog.000003")
    files.append(BinlogFile("binlog.000003").head(f"{SERVER}:1-7"))
    manifest = archive(storage, FakeServer(files))
    assert_same(storage, files)
    assert manifest.covered() == f"{SERVER}:1-7"


def test_a_server_that_died_wrote_no_end_mark(storage: Storage) -> None:
    files = [BinlogFile("binlog.000001").head(), BinlogFile("binlog.000002").head(f"{SERVER}:1")]
    files[0].transaction(1)
    manifest = archive(storage, FakeServer(files))
    assert manifest.files[0].state is FileState.COMPLETE
    assert manifest.files[0].following == "binlog.000002"


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
    """Stands for kill -9: nothing may clean up after it."""


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    kills=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), max_size=4),
)
def test_killed_anywhere_and_run_again(
    counts: list[int], kills: list[tuple[int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After a kill the file may be longer than the manifest says, end inside an event, or have no entry."""
    folder = tmp_path_factory.mktemp("killed")
    storage = open_storage(str(folder))
    files = history(counts)
    for events, torn, published in kills:
        run_and_kill(storage, files, events, published=published)
        last = max((path for path in folder.glob("binlog.*")), default=None)
        entry = read_manifest(storage).entry(last.name) if last else None
        if last is not None and (entry is None or entry.state is FileState.GROWING):
            kept = bytes(files[int(last.suffix[1:]) - 1].data[: entry.bytes if entry else 0])
            last.write_bytes(kept + b"\x07" * torn)
    manifest = archive(storage, FakeServer(files))
    assert_same(storage, files)
    assert not list(breaks(manifest))
    assert check_archive(storage, silent).findings == ()


def run_and_kill(storage: Storage, files: list[BinlogFile], events: int, *, published: bool) -> None:
    class Dying(FakeServer):
        def events(self, file: str, offset: int, *, follow: bool) -> Iterator[RawEvent]:
            for place, event in enumerate(super().events(file, offset, follow=follow)):
                if place == events:
                    raise Killed
                yield event

    with pytest.MonkeyPatch.context() as patch:
        real = archive_module._Keeper.publish

        def publish(self: archive_module._Keeper, *args: object) -> None:
            # A killed process publishes nothing at its end.
            if not isinstance(sys.exc_info()[1], Killed):
                real(self, *args)  # type: ignore[arg-type]

        patch.setattr(archive_module._Keeper, "publish", publish)
        with suppress(Killed):
            archive(storage, Dying(files), publish_seconds=0.0 if published else 1e9)


def test_a_damaged_prefix_is_read_from_the_server_again(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    files = history([5])
    archive(storage, FakeServer(files))
    path = tmp_path / "binlog.000001"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    files[0].transaction(6)
    archive(storage, FakeServer(files))
    assert_same(storage, files)


def test_since_begins_a_new_archive_later(storage: Storage) -> None:
    files = history([2, 2, 2])
    manifest = archive(storage, FakeServer(files), since="binlog.000002")
    assert [file.name for file in manifest.files] == ["binlog.000002", "binlog.000003"]


def test_since_that_the_server_does_not_have(storage: Storage) -> None:
    with pytest.raises(PurgedError, match=r"no binlog\.000009"):
        archive(storage, FakeServer(history([2])), since="binlog.000009")


def test_since_may_not_leave_out_what_the_server_has(storage: Storage) -> None:
    files = history([2, 2, 2])
    archive(storage, FakeServer(files[:1]))
    with pytest.raises(UsageError, match="goes on with"):
        archive(storage, FakeServer(files), since="binlog.000003")


def test_a_purged_file_is_a_gap_and_an_error(storage: Storage) -> None:
    files = history([2, 2, 2, 2])
    archive(storage, FakeServer(files[:2]))
    with pytest.raises(PurgedError, match=r"deleted binlog\.000003") as caught:
        archive(storage, FakeServer(files[3:]))
    assert "--since binlog.000004" in caught.value.hint
    manifest = read_manifest(storage)
    assert [(gap.after, gap.bytes, gap.resumes) for gap in manifest.gaps] == [
        ("binlog.000002", manifest.files[1].bytes, "binlog.000004")
    ]
    # It stays an error until somebody decides to go on after the gap.
    with pytest.raises(PurgedError):
        archive(storage, FakeServer(files[3:]))
    manifest = archive(storage, FakeServer(files[3:]), since="binlog.000004")
    assert manifest.covered() == f"{SERVER}:1-4:7-8"
    assert [reason for reason in breaks(manifest) if "deleted" in reason]
    assert check_archive(storage, silent).findings
    assert archive(storage, FakeServer(files[3:])) == manifest


def test_a_hole_of_the_manifest_is_filled(storage: Storage) -> None:
    files = history([2, 2, 2, 2])
    archive(storage, FakeServer(files))
    without_entry(storage, "binlog.000002")
    without_entry(storage, "binlog.000003")
    manifest = archive(storage, FakeServer(files))
    assert len(manifest.files) == 4
    assert not list(breaks(manifest))
    assert_same(storage, files)


def without_entry(storage: Storage, name: str) -> None:
    if hasattr(storage, "folder"):
        (storage.folder / "manifest" / f"{name}.json").unlink()
    else:
        storage._fs.rm(f"{storage._root}/manifest/{name}.json")  # type: ignore[attr-defined]


def test_another_server(storage: Storage) -> None:
    archive(storage, FakeServer(history([2])))
    with pytest.raises(ChangeError, match="holds binlogs of server"):
        archive(storage, FakeServer(history([2]), uuid=SERVER.replace("5", "6")))


def test_reset_binlogs_of_other_sizes(storage: Storage) -> None:
    archive(storage, FakeServer(history([3, 3])))
    with pytest.raises(ChangeError, match="the server's file has"):
        archive(storage, FakeServer(history([2, 3])))


def test_reset_binlogs_that_grew_past_the_archive(storage: Storage) -> None:
    archive(storage, FakeServer(history([2])))
    again = history([8])
    again[0].created = TIME + 7
    later = BinlogFile("binlog.000001", created=TIME + 7).head()
    for number in range(1, 9):
        later.transaction(number, payload=number % 50 + 1)
    with pytest.raises(ChangeError, match="began at another time"):
        archive(storage, FakeServer([later]))


def test_a_missing_event_is_noticed(storage: Storage) -> None:
    class Losing(FakeServer):
        def events(self, file: str, offset: int, *, follow: bool) -> Iterator[RawEvent]:
            for place, event in enumerate(super().events(file, offset, follow=follow)):
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
    manifest = archive(storage, FakeServer([files[0], later]))
    assert manifest.files[0].xa_open == (OpenXa("X'6f6e65',X'',1", start, files[0].ends[1]),)
    assert manifest.files[1].xa_closed == ("X'6f6e65',X'',1",)
    assert manifest.files[1].xa_open == ()


def test_a_compressed_xa_transaction_is_in_the_manifest(storage: Storage) -> None:
    file = history([1])[0]
    file.xa_prepare_packed(2, b"one", (1, "a"))
    (entry,) = archive(storage, FakeServer([file])).files
    assert entry.xa_open == (OpenXa("X'6f6e65',X'',1", file.ends[0], file.ends[1]),)


def test_whole_is_the_end_of_the_last_whole_transaction(storage: Storage) -> None:
    file = history([2])[0]
    whole = len(file.data)
    file.gtid(3)
    file.query("BEGIN")
    file.event(EventType.ROWS_QUERY, b"abc")
    (entry,) = archive(storage, FakeServer([file])).files
    assert (entry.whole, entry.bytes) == (whole, len(file.data))


def test_two_writers_of_one_folder(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with storage.lock(), pytest.raises(ChangeError, match="another process"):
        archive(open_storage(str(tmp_path)), FakeServer(history([1])))


class TestCheck:
    def test_a_good_archive(self, storage: Storage) -> None:
        archive(storage, FakeServer(history([3, 2])))
        found = check_archive(storage, silent)
        assert found.findings == ()
        assert found.events == 3 * 4 + 2 + 1 + 2 * 4 + 2
        assert found.gtids == f"{SERVER}:1-5"

    @pytest.mark.parametrize("at", [30, 150, 250, -3])
    def test_a_flipped_bit(self, tmp_path: Path, at: int) -> None:
        storage = open_storage(str(tmp_path))
        archive(storage, FakeServer(history([3, 2])))
        path = tmp_path / "binlog.000001"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert any("binlog.000001" in text for text in check_archive(storage, silent).findings)

    def test_a_cut_file(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        archive(storage, FakeServer(history([3, 2])))
        path = tmp_path / "binlog.000001"
        path.write_bytes(path.read_bytes()[:-10])
        assert check_archive(storage, silent).findings

    def test_a_file_that_is_gone(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        archive(storage, FakeServer(history([3, 2])))
        (tmp_path / "binlog.000001").unlink()
        assert check_archive(storage, silent).findings

    def test_a_file_and_its_entry_that_are_gone(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        archive(storage, FakeServer(history([3, 2, 2])))
        (tmp_path / "binlog.000002").unlink()
        (tmp_path / "manifest" / "binlog.000002.json").unlink()
        found = check_archive(storage, silent)
        assert len([text for text in found.findings if "binlog.000003" in text]) >= 1

    def test_a_file_that_nobody_knows(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        archive(storage, FakeServer(history([1])))
        (tmp_path / "binlog.000007").write_bytes(b"x")
        assert any("does not know" in text for text in check_archive(storage, silent).findings)

    def test_no_archive(self, storage: Storage) -> None:
        with pytest.raises(ChangeError, match="no archive"):
            check_archive(storage, silent)


def test_the_manifest_is_readable_json(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    archive(storage, FakeServer(history([1])))
    content = json.loads((tmp_path / "manifest" / "binlog.000001.json").read_text())
    assert content["version"] == 1
    assert content["name"] == "binlog.000001"
