"""The manifest: torn, edited and foreign entries are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.manifest import (
    VERSION,
    ArchiveGap,
    FileEntry,
    FileState,
    Manifest,
    OpenXa,
    breaks,
    decode,
    encode,
    number,
    read_manifest,
    require_unbroken,
    write_entry,
    write_gap,
)  # fmt: skip
from migverify.changes.storage import ByteWindow, Storage, without_password
from migverify.errors import ChangeError, ConfigError
from tests.binlog_files import SERVER

ENTRY = FileEntry(
    name="binlog.000007", state=FileState.GROWING, bytes=1234, sha256="ab" * 32, whole=1200, first_time=1, last_time=2,
    gtids_before=f"{SERVER}:1-5", gtids=f"{SERVER}:6-9", anonymous=0, server_uuid=SERVER, server_version="9.7.4",
    checksum="crc32", in_use_cleared=True, xa=True, xa_open=(OpenXa("X'61',X'',1", 200, 300),),
    xa_closed=("X'62',X'',1",),
    previous="binlog.000006", following="",
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_torn_entry_is_recognized(cut: int) -> None:
    data = encode(ENTRY)
    with pytest.raises(ChangeError, match="damaged manifest"):
        decode(FileEntry, data[: cut % len(data)], "here")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_recognized_or_means_nothing(place: int, change: int) -> None:
    data = bytearray(encode(ENTRY))
    data[place % len(data)] ^= change
    try:
        found = decode(FileEntry, bytes(data), "here")
    except ChangeError:
        return
    assert found == ENTRY  # white space


def test_another_version() -> None:
    content = json.loads(encode(ENTRY)) | {"version": VERSION + 1}
    with pytest.raises(ChangeError, match="version 2"):
        decode(FileEntry, json.dumps(content).encode(), "here")


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{}", b'{"version": 1}', b"\xff\xfe"])
def test_something_else(text: bytes) -> None:
    with pytest.raises(ChangeError, match="damaged manifest"):
        decode(FileEntry, text, "here")


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_files_come_in_the_order_of_their_numbers(kind: str, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path) if kind == "folder" else f"memory://manifest{tmp_path}")
    for name in ("binlog.1000000", "binlog.999999", "binlog.000002"):
        write_entry(storage, replace(ENTRY, name=name))
    write_gap(storage, ArchiveGap("binlog.000002", 7, "binlog.999999", 1))
    manifest = read_manifest(storage)
    assert [file.name for file in manifest.files] == ["binlog.000002", "binlog.999999", "binlog.1000000"]
    assert manifest.gaps == (ArchiveGap("binlog.000002", 7, "binlog.999999", 1),)


def test_a_half_written_entry_is_not_seen(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    write_entry(storage, ENTRY)
    (tmp_path / "manifest" / ".binlog.000008.json.x.part").write_bytes(b"{")
    assert read_manifest(storage).files == (ENTRY,)


def chain(*texts: str) -> list[FileEntry]:
    """Complete files; each text is what the file adds, ``1-5``."""
    files: list[FileEntry] = []
    for place, added in enumerate(texts):
        before = Manifest(tuple(files)).covered()
        files.append(replace(
            ENTRY, name=f"binlog.{place + 1:06d}", state=FileState.COMPLETE, following=f"binlog.{place + 2:06d}",
            previous=f"binlog.{place:06d}" if place else "", gtids_before=before,
            gtids=f"{SERVER}:{added}" if added else "",
        ))  # fmt: skip
    return files


def test_a_missing_file_is_a_break() -> None:
    files = chain("1-5", "6-7", "8")
    del files[1]
    found = list(breaks(Manifest(tuple(files))))
    assert any("is followed by" in text for text in found)
    assert any("6-7" in text for text in found)
    with pytest.raises(ChangeError, match="not complete"):
        require_unbroken(files, Manifest(tuple(files)))


def test_a_growing_file_in_the_middle_is_a_break() -> None:
    files = chain("1-5", "6-7")
    files[0] = replace(files[0], state=FileState.GROWING)
    assert any("never finished" in text for text in breaks(Manifest(tuple(files))))


def test_a_set_that_the_server_forgot_is_a_break() -> None:
    files = chain("1-5", "6-7")
    files[1] = replace(files[1], gtids_before="")
    assert any("does not count" in text for text in breaks(Manifest(tuple(files))))


def test_a_gap_is_a_break_until_the_range_begins_after_it() -> None:
    files = chain("1-5", "6-7", "8")
    gap = ArchiveGap(files[0].name, 3, files[2].name, 1)
    manifest = Manifest((files[0], files[2]), (gap,))
    with pytest.raises(ChangeError, match="deleted"):
        require_unbroken(manifest.files, manifest)
    require_unbroken(manifest.files[1:], manifest)


@pytest.mark.parametrize("name", ["binlog", "binlog.", "../binlog.000001x", "a/binlog.000001", ""])
def test_not_a_name_of_a_binlog(name: str) -> None:
    with pytest.raises(ChangeError, match="not a name"):
        number(name)


class TestStorage:
    def test_an_unknown_scheme(self) -> None:
        with pytest.raises(ConfigError, match="nowhere://"):
            Storage("nowhere://bucket/archive")

    def test_a_missing_package_is_one_clear_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import fsspec.core

        def missing(_: str) -> None:
            raise ImportError("Install s3fs to access S3")

        monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
        with pytest.raises(ConfigError, match="Install s3fs") as caught:
            Storage("s3://key:geheim@bucket/archive")
        assert "geheim" not in str(caught.value)

    def test_a_password_is_not_shown(self) -> None:
        assert without_password("ftp://me:geheim@host/a?token=geheim") == "ftp://host/a"

    def test_an_empty_place(self) -> None:
        with pytest.raises(ConfigError, match="empty"):
            Storage("")

    @pytest.mark.parametrize("kind", ["folder", "memory"])
    def test_a_failed_writer_leaves_nothing(self, kind: str, tmp_path: Path) -> None:
        storage = Storage(str(tmp_path) if kind == "folder" else f"memory://storage{tmp_path}")

        def fail() -> None:
            with storage.create("a/b") as file:
                file.write(b"half")
                raise ValueError

        with pytest.raises(ValueError):  # noqa: PT011
            fail()
        assert storage.read("a/b") is None
        assert storage.tree() == []

    def test_a_full_disk_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ChangeError, match=r"Not a directory|exists"):
            Storage(str(tmp_path / "file" / "archive")).write("a", b"b")

    @settings(max_examples=40, deadline=None)
    @given(st.binary(max_size=60), st.integers(0, 80), st.lists(st.integers(0, 30), max_size=8))
    def test_a_window_is_the_beginning(self, data: bytes, size: int, reads: list[int]) -> None:
        import io

        window = ByteWindow(io.BytesIO(data), size)
        window.seek(0)
        assert b"".join(window.read(count) for count in reads) == data[:size][: sum(reads)]
