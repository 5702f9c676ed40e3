"""Opening and closing: what is refused, what is left behind, what is visible."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ConfigError
from migverify.spark.session import class_archive, find_java
from migverify.spark.settings import build_pyfiles, package_root
from tests.waiting import PATIENCE

from .conftest import HERE, SECRET, Sessions

DRIVER = """
import json, os, sys, time
from migverify.spark.engine import SparkEngine
from migverify.spark.session import open_session
from pyspark import SparkContext
session = open_session("local", "t", {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}, 2)
engine = SparkEngine(session, {"source": "x"}, 2, "toy_runners:wait_for")
future = engine.submit(json.dumps({"folder": sys.argv[1], "name": "n"}))
while not any(name.startswith("started") for name in os.listdir(sys.argv[1])):
    time.sleep(0.05)
try:
    print(SparkContext._gateway.proc.pid, flush=True)
    future.result()
except KeyboardInterrupt:
    engine.cancel()
    engine.close()
    print("interrupted", flush=True)
"""


def _start(folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(package_root()), str(HERE)])
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_driver_leaves_no_process(
    how: signal.Signals, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    driver = _start(tmp_path)
    assert driver.stdout is not None
    java = int(driver.stdout.readline())
    worker = json.loads(next(tmp_path.glob("started-*")).read_text())["pid"]
    assert _alive(java)
    assert _alive(worker)
    driver.send_signal(how)
    said, noise = driver.communicate(timeout=PATIENCE)
    if how == signal.SIGINT:
        assert said == "interrupted\n"
        assert noise == ""
        assert not _alive(java)  # close waited for it
    eventually(lambda: not _alive(java) and not _alive(worker))


def test_one_session_from_open_to_close(sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's settings win, no secret is visible, nothing is left behind, and the class archive is made and used."""
    from pyspark import SparkContext

    from migverify.spark import session as opened
    from migverify.spark.engine import SparkEngine

    sessions.close()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    marker, odd, log = "Zq7secretZq7", "a b\\c:d=e#f!é\U0001f600 '\" ", tmp_path / "events"
    log.mkdir()
    session = sessions.get(conf={
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri(), "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false", "spark.migverify.odd": odd, "spark.sql.shuffle.partitions": "3",
    })  # fmt: skip
    conf = session.sparkContext.getConf()
    assert conf.get("spark.migverify.odd") == odd.strip()  # Spark trims values
    assert conf.get("spark.sql.shuffle.partitions") == "3"
    assert conf.get("spark.master") == "local[3,4]"
    assert conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable

    engine = SparkEngine(session, {"source": marker}, 2, "toy_runners:length_of_secret", owns_session=False)
    assert engine.submit("source").result() == str(len(marker))
    visible = [repr(conf.getAll()), repr(dict(session.sparkContext._jvm.System.getenv())), _every_command_line()]
    engine.close()
    assert opened._driver is not None
    process, scratch = opened._driver.process, Path(opened._driver.scratch.name)
    assert opened._driver.archive.path
    assert (scratch / "spark.properties").stat().st_mode & 0o077 == 0
    sessions.close()
    assert process.poll() is not None
    assert not scratch.exists()
    assert SparkContext._gateway is None
    events = "".join(p.read_text() for p in log.rglob("*") if p.is_file())
    assert "SparkListenerEnvironmentUpdate" in events  # the log does hold what it should not hold it in
    assert "SparkListenerJobEnd" in events
    assert not [text for text in (events, *visible) if marker in text]

    (archive,) = (tmp_path / "cache" / "migverify").iterdir()
    assert archive.suffix == ".jsa"
    assert sessions.get().range(3).count() == 3  # a new session opens in the same process
    assert opened._driver.archive.path is None
    assert str(archive) in Path(f"/proc/{opened._driver.process.pid}/maps").read_text()


def _every_command_line() -> str:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_an_unknown_master_is_one_clear_error(sessions: Sessions) -> None:
    from migverify.spark.session import open_session

    sessions.close()
    with pytest.raises(ConfigError) as caught:
        open_session("mesos://nowhere", "t", {}, 1)
    assert "mesos://nowhere" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1", "spark://127.0.0.1:1,127.0.0.1:2", "spark://nowhere.invalid"]
)
def test_a_master_that_does_not_answer_is_said_at_once(sessions: Sessions, master: str) -> None:
    from migverify.spark import session as room

    sessions.close()
    with pytest.raises(ConfigError, match="does not answer"):
        room.open_session(master, "t", {}, 1)
    assert room._driver is None  # no JVM was started for it


def test_a_jvm_that_does_not_start_is_one_clear_error(sessions: Sessions) -> None:
    from migverify.spark import session as room

    sessions.close()
    with pytest.raises(ConfigError) as caught:
        room.open_session("local", "t", {"spark.driver.extraJavaOptions": "-Xms9g -Xmx1g"}, 1)
    assert "Initial heap size" in caught.value.message or "rror" in caught.value.message
    assert "\n" not in caught.value.message
    assert room._driver is None


def test_a_cache_that_cannot_be_written_means_no_archive(tmp_path: Path, monkeypatch: Any) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    archive = class_archive(find_java(), tmp_path)
    assert (archive.path, archive.option) == (None, "")


def test_pyfiles_hold_what_a_bare_python_needs(tmp_path: Path) -> None:
    path = build_pyfiles(tmp_path)
    first = path.read_bytes()
    assert build_pyfiles(tmp_path).read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".pyc")]
    modules = ["migverify.spark.engine", "migverify.tables.engine", "migverify.errors", "pymysql"]
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import {', '.join(modules)}; print(pymysql.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(path))


def test_a_url_of_connect_is_shown_without_its_token() -> None:
    # In a process of its own, where a module that is None cannot be imported.
    program = f"""
import sys
sys.modules["grpc"] = None
from migverify.errors import ConfigError
from migverify.spark.session import open_session
try:
    open_session("sc://h:1/;token=" + {SECRET!r}, "t", {{}}, 1)
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(package_root())},
    )  # fmt: skip
    assert "grpcio" in done.stdout
    assert "sc://h:1/" in done.stdout
    assert SECRET not in done.stdout + done.stderr
