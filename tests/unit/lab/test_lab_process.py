"""Locks, installs and processes that are certainly ours."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from migverify.errors import LabError
from migverify_lab import cache, process
from tests.waiting import wait_for


def test_an_install_appears_whole_or_not_at_all(tmp_path):
    final = tmp_path / "made"

    def half():
        with cache.install_into(final) as staging:
            (staging / "half").touch()
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        half()
    assert list(tmp_path.iterdir()) == []
    with cache.install_into(final) as staging:
        (staging / "whole").touch()
        assert not final.exists()
    assert [path.name for path in final.iterdir()] == ["whole"]


def test_the_cache_folder_can_be_chosen_and_a_bad_one_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("MIGVERIFY_CACHE", str(tmp_path / "a" / "b"))
    assert cache.cache_directory() == tmp_path / "a" / "b"
    (tmp_path / "file").touch()
    monkeypatch.setenv("MIGVERIFY_CACHE", str(tmp_path / "file" / "x"))
    with pytest.raises(LabError, match="cannot create the folder"):
        cache.cache_directory()


def test_a_lock_lets_one_in_and_tells_the_one_who_waits(tmp_path):
    told = []
    inside = threading.Event()
    with cache.file_lock(tmp_path / "lock"):

        def second():
            with cache.file_lock(tmp_path / "lock", told.append):
                inside.set()

        other = threading.Thread(target=second)
        other.start()
        assert not inside.wait(0.5)
    other.join(10)
    assert inside.is_set()
    assert len(told) == 1


def test_a_lock_that_stays_taken_is_an_error(tmp_path):
    with (
        cache.file_lock(tmp_path / "lock"),
        pytest.raises(LabError, match="another process has held"),
        cache.file_lock(tmp_path / "lock", seconds=0.2),
    ):
        pass


def test_identity_needs_the_start_time_too():
    own = process.identify(os.getpid())
    assert process.is_alive(own)
    assert not process.is_alive(process.ProcessId(own.pid, own.ticks + 1, own.boot))
    assert not process.is_alive(process.ProcessId(own.pid, own.ticks, "another boot"))


def test_a_zombie_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.identify(child.pid) is None
    child.wait()


def test_a_spawned_process_is_found_by_its_argument_and_stopped(tmp_path):
    mark = f"--mark={tmp_path}"
    ignoring = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    log = tmp_path / "log"
    started = process.spawn([sys.executable, "-c", ignoring, mark], log, tmp_path)
    assert os.getsid(started.pid) == started.pid
    while "up" not in log.read_text():
        pass
    assert process.find_by_argument(mark) == [started]
    assert process.find_by_argument(mark[:-1]) == []
    assert process.stop(started, seconds=0.3)
    assert not process.stop(started)
    assert process.find_by_argument(mark) == []


def test_a_stranger_in_the_folder_is_not_found_by_the_title(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    titled = ["bash", "-c", "exec -a 'fake: worker' sleep 60"]
    started = []
    for folder, command in ((here, titled), (here, ["sleep", "60"]), (elsewhere, titled)):
        folder.mkdir(exist_ok=True)
        started.append(process.spawn(command, tmp_path / "log", folder))
    wait_for(lambda: process.find_by_title("fake: ", here), "the shell has become the titled process")
    assert process.find_by_title("fake: ", here) == started[:1]
    for one in started:
        process.stop(one)


def test_a_title_behind_the_arguments_of_a_loader_is_found(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)", "fake: worker process"]
    started = process.spawn(command, tmp_path / "log", tmp_path)
    wait_for(lambda: process.find_by_title("fake: ", tmp_path) == [started], "it is found")
    assert process.find_by_title("worker", tmp_path) == []
    process.stop(started)


def test_a_process_is_found_by_the_variables_it_was_started_with(tmp_path, monkeypatch):
    mark = f"run-{os.getpid()}"
    monkeypatch.setenv("MIGVERIFY_RUN", mark)
    monkeypatch.setenv("MIGVERIFY_STEP", "freeze")
    started = process.spawn(["sleep", "60"], tmp_path / "log", tmp_path)
    freeze = {"MIGVERIFY_RUN": mark, "MIGVERIFY_STEP": "freeze"}
    wait_for(lambda: process.find_by_environment(**freeze) == [started], "it is found")
    assert process.find_by_environment(**freeze | {"MIGVERIFY_STEP": "open"}) == []
    process.stop(started)


def test_a_program_that_is_missing_is_named(tmp_path):
    with pytest.raises(LabError, match="cannot start /nowhere/mysqld"):
        process.spawn(["/nowhere/mysqld"], tmp_path / "log", tmp_path)


def test_the_tail_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert "no log" in process.tail(log)
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert process.tail(log, 2) == "line 98\nline 99"
