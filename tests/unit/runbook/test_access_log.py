"""The access log: every line exactly once, over rotations and torn ends, in bounded memory."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.runbook.traffic import access_log
from migverify.runbook.traffic.access_log import LogLine, SplitSides, parse_line, read_tally
from migverify.runbook.traffic.model import goes_to_new
from migverify.runbook.traffic.tally import KeySample, LatencyTally, TrafficTally, merged
from tests.unit.traffic_fakes import line

G = "2-aaaaaaaa"
SIDES = SplitSides("old", "new", frozenset({"127.0.0.1:1"}), frozenset({"127.0.0.1:2"}))


def tally(path: Path, since: float = 0.0, generation: str = G, **more: object) -> TrafficTally:
    return read_tally(path, [generation], since, SIDES, **more)[generation]  # type: ignore[arg-type]


@given(st.binary(max_size=60), st.sampled_from(["old", "new"]), st.integers(100, 599), st.integers(0, 10**6))
def test_a_line_says_what_was_written(key: bytes, side: str, status: int, ms: int) -> None:
    raw = line(1_700_000_000.25, key, side, status=status, seconds=ms / 1000)
    assert raw.count(b"\n") == 1
    found = parse_line(raw[:-1])
    assert found is not None
    assert found.key == key
    assert (found.side, found.status, found.generation, found.end) == (side, status, G, 1_700_000_000.25)
    assert found.seconds == pytest.approx(ms / 1000)


@given(st.binary(max_size=200))
def test_foreign_bytes_never_raise(raw: bytes) -> None:
    parse_line(raw)


@given(st.integers(0, 200))
def test_a_line_that_is_cut_is_not_read_as_another_request(cut: int) -> None:
    raw = line(1_700_000_000.25, "user-1")[:-1]
    found = parse_line(raw[:cut])
    assert found is None or raw[:cut].count(b"\t") == 7


def test_addresses_of_retries_are_all_seen() -> None:
    found = parse_line(line(1.0, "k", address="127.0.0.1:1, 127.0.0.1:2 : unix:/x")[:-1])
    assert found is not None
    assert found.addresses == ("127.0.0.1:1", "127.0.0.1:2", "unix:/x")


def test_a_last_line_without_its_end_waits(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(1, "a") + line(2, "b")[:-5])
    assert tally(path).requests == 1
    with path.open("ab") as file:
        file.write(line(2, "b")[-5:])
    assert tally(path).requests == 2


def test_rotation_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(1000, "a"))
    path.rename(tmp_path / "access.log.1")
    with (tmp_path / "access.log.1").open("ab") as file:
        file.write(line(1001, "b"))  # nginx goes on with the old file until it is told
    path.write_bytes(line(1002, "c"))
    (tmp_path / "other.log.1").write_bytes(line(1002, "d"))
    assert (tally(path).requests, tally(path).lost) == (3, "")
    with pytest.raises(ReadError, match="cannot be read"):
        tally(tmp_path / "none.log")


def test_a_log_that_is_cut_while_it_is_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(1, "a") * 10)

    def cut(_key: bytes, _generation: str) -> bool:
        path.write_bytes(b"")
        return False

    assert "cut" in tally(path, foreseen=cut).lost


def test_a_packed_rotation_since_the_moment_is_told(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(5000, "b"))
    packed = tmp_path / "access.log.1.gz"
    packed.write_bytes(gzip.compress(line(4999, "a")))
    os.utime(packed, (4999, 4999))
    assert "packed" in tally(path, 4990.0).lost
    assert tally(path, 5000.0).lost == ""


def test_lines_before_the_moment_and_of_other_generations_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(10, "a") + line(20, "b") + line(30, "c", generation="1-bbbbbbbb") + line(40, "d", "new"))
    found = tally(path, 15.0)
    assert (found.old.requests, found.new.requests, found.damaged) == (1, 1, 0)


def test_a_moment_in_a_large_log_is_found_without_reading_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.log"
    with path.open("wb") as file:
        for n in range(100_000):
            file.write(line(1_000_000 + n / 10, f"user-{n % 5000}", "new" if n % 4 == 0 else "old"))
    read = 0
    parsed = access_log.parse_line

    def counted(raw: bytes) -> LogLine | None:
        nonlocal read
        read += 1
        return parsed(raw)

    monkeypatch.setattr(access_log, "parse_line", counted)
    found = tally(path, 1_000_000 + 9_000)
    assert found.requests == 10_000
    assert 10_000 <= read < 30_000 + 20 * 5_000


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(1, "a") + b"nonsense\n" + b"x" * 200_000 + b"\n" + line(2, "b") + b"mv1\t\xff\n")
    found = tally(path)
    assert (found.requests, found.damaged) == (2, 3)


def test_a_request_that_reached_the_other_side_is_astray(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(line(1, "a") + line(2, "b", "new") + line(3, "c", address="127.0.0.1:1, 127.0.0.1:2"))
    assert tally(path).astray == 2


def test_a_key_on_the_side_that_its_hash_does_not_say_is_unforeseen(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    keys = [f"user-{n}" for n in range(200)]
    lines = [line(1, key, "new" if goes_to_new(key.encode(), 2500) else "old") for key in keys]
    path.write_bytes(b"".join(lines) + line(1, "", "new"))
    found = tally(path, foreseen=lambda key, _: goes_to_new(key, 2500))
    assert (found.unforeseen, found.keyless) == (1, 1)


def test_errors_are_500_and_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"".join(line(1, "a", status=status) for status in (200, 302, 404, 499, 500, 503)))
    with path.open("ab") as file:
        file.write(line(1, "a").replace(b"\t200\t", b"\t-\t"))
    found = tally(path)
    assert (found.old.requests, found.old.errors) == (7, 3)


def test_a_file_that_nobody_may_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError):
        tally(tmp_path)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.sampled_from([50.0, 90.0, 99.0]))
def test_a_quantile_is_within_a_hundredth(seconds: list[float], percent: float) -> None:
    times = LatencyTally()
    for one in seconds:
        times.add(one)
    found = times.quantile(percent)
    ranked = sorted(seconds)[max(0, -(-int(percent * len(seconds)) // 100) - 1)] * 1000
    assert found is not None
    assert ranked - 1e-3 <= found <= max(ranked + 1.001, ranked * 1.0125)


def test_a_sample_of_keys_stays_small_and_fair() -> None:
    sample = KeySample(kept=1000)
    for n in range(30_000):
        sample.add(f"user-{n}".encode(), new=n % 10 == 0, begin=0, end=1)
    assert len(sample.keys) <= 1000
    assert 0.06 < sample.on_new() / len(sample.keys) < 0.14


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=200), st.integers(0, 200))
def test_tallies_of_two_instances_add_up(requests: list[tuple[int, bool]], cut: int) -> None:
    def counted(part: list[tuple[int, bool]]) -> TrafficTally:
        found = TrafficTally(keys=KeySample(kept=50))
        for key, new in part:
            found.side("new" if new else "old").add(200, 0.01)
            if found.keys is not None:
                found.keys.add(str(key).encode(), new=new, begin=key, end=key + 1)
        return found

    whole, parts = counted(requests), merged([counted(requests[:cut]), counted(requests[cut:])])
    assert (whole.requests, whole.new.requests) == (parts.requests, parts.new.requests)
    assert whole.keys is not None
    assert parts.keys is not None
    bar = min(whole.keys.bar, parts.keys.bar)
    assert {m: s for m, s in whole.keys.keys.items() if m < bar} == {
        m: s for m, s in parts.keys.keys.items() if m < bar
    }
