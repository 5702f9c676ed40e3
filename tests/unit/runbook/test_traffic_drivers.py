"""Drivers without their proxies: the include file of nginx, and commands."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.config.reference import json_schema, json_schema_text, known_keys, markdown
from migverify.config.yaml_text import read_yaml
from migverify.errors import ConfigError, TrafficError
from migverify.runbook.actions.action import Context
from migverify.runbook.traffic import files as traffic_files
from migverify.runbook.traffic.actions import driver_of
from migverify.runbook.traffic.change import abort, change, look
from migverify.runbook.traffic.command import CommandDriver
from migverify.runbook.traffic.document import TITLE, CommandPart, NginxPart, Traffic, load_traffic
from migverify.runbook.traffic.files import put_back, replace_text
from migverify.runbook.traffic.model import FULL, LADDER, Setting
from migverify.runbook.traffic.nginx import (
    NginxDriver,
    _draining,
    include_text,
    parse_include,
    snippets,
)
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]


def part_of(folder: Path = Path("x"), test: str = "true", reload_: str = "true", **more: Any) -> NginxPart:
    one = {
        "name": "a", "include": folder / "traffic.conf", "test": ["sh", "-c", test], "reload": ["sh", "-c", reload_],
        "status": "http://127.0.0.1:9/traffic", "access_log": folder / "access.log",
    }  # fmt: skip
    given = {"kind": "nginx", "key": "$arg_key", "variable": "pay", "old": {"value": "old"}, "new": {"value": "new"},
             "settle": "300ms", "instances": [one]} | more  # fmt: skip
    return NginxPart.model_validate(given)


SPLIT = part_of().model_copy(update={"held": "held"})  # held wants the pid of a real nginx


def context(timeout: float = 30.0) -> Context:
    return Context("run", "step", 1, 1, timeout, threading.Event())


settings = st.builds(
    Setting, st.integers(0, FULL), st.integers(1, 999).map(lambda n: f"{n}-0123abcd"), st.integers(0, FULL),
    st.sampled_from(["", "1-0123abcd"]), st.floats(0, 2e9), st.booleans(),
)  # fmt: skip


# --- nginx -----------------------------------------------------------------------------------------------------


@given(settings)
def test_an_include_file_says_what_was_set(setting: Setting) -> None:
    text = include_text(SPLIT, setting)
    assert parse_include(text, SPLIT) == setting
    sizes = [round(float(found) * 100) for found in re.findall(r"^ +([0-9.]+)%", text, flags=re.MULTILINE)]
    assert all(0 < size < FULL for size in sizes), "nginx refuses 0 %, and 100 % leaves one hash out"
    assert sum(sizes) <= FULL


@pytest.mark.parametrize(
    ("share", "was", "held", "lines"),
    [
        (0, 0, False, ["*  old;"]), (500, 0, False, ["5.00%  new;", "*  old;"]), (FULL, 5000, False, ["*  new;"]),
        (500, 100, True, ["1.00%  new;", "4.00%  held;", "*  old;"]),
        (100, 500, True, ["1.00%  new;", "4.00%  held;", "*  old;"]),
        (FULL, 5000, True, ["50.00%  new;", "50.00%  held;", "*  held;"]),
        (0, 1234, True, ["12.34%  held;", "*  old;"]), (FULL, 0, True, ["*  held;"]),
    ],
)  # fmt: skip
def test_the_split_has_these_parts(share: int, was: int, held: bool, lines: list[str]) -> None:
    text = include_text(SPLIT, Setting(share, "2-0123abcd", was, "1-0123abcd", 1.0, held))
    block = text.partition("split_clients")[2].partition("}")[0].splitlines()[1:]
    assert [line.strip() for line in block if line.strip()] == lines


@given(settings, st.integers(0, 2000), st.sampled_from(["x", "\n", "new", ""]))
def test_an_edited_file_is_refused(setting: Setting, at: int, what: str) -> None:
    text = include_text(SPLIT, setting)
    edited = text[:at] + what + text[at + 1 :]
    if edited == text:
        return
    with pytest.raises(TrafficError):
        parse_include(edited, SPLIT)


def test_a_file_of_another_key_is_refused() -> None:
    text = include_text(SPLIT, Setting(500, "2-0123abcd", 0, "", 1.0))
    with pytest.raises(TrafficError, match="edited"):
        parse_include(text, SPLIT.model_copy(update={"key": "$cookie_user"}))


FIRST = Setting(0, "1-00000000", 0, "", 1.0)
NEXT = Setting(100, "2-00000000", 0, "1-00000000", 2.0)


def nginx(folder: Path, test: str = "true", reload_: str = "true") -> NginxDriver:
    (folder / "traffic.conf").write_text(include_text(SPLIT, FIRST))
    return NginxDriver(part_of(folder, test, reload_).model_copy(update={"held": "held"}), context())


def test_a_file_that_fails_the_test_is_replaced_by_the_old_one(tmp_path: Path) -> None:
    driver = nginx(tmp_path, "echo '[emerg] no' >&2; exit 1")
    with pytest.raises(TrafficError, match=r"\[emerg\] no; the old file is there again"):
        driver.write("a", NEXT, FIRST)
    assert driver.configured("a") == FIRST


SHUTTING = "nginx: worker process is shutting down"


@pytest.mark.parametrize("loader", ["", "-c 'import time; time.sleep(600)'"], ids=["plain", "behind a loader"])
def test_a_worker_that_is_ending_is_counted_wherever_its_title_is(tmp_path: Path, loader: str) -> None:
    worker = f"{sys.executable} {loader} '{SHUTTING}'" if loader else f"bash -c \"exec -a '{SHUTTING}' sleep 600\""
    pid = tmp_path / "nginx.pid"
    assert _draining(pid) == 0
    master = subprocess.Popen(["bash", "-c", f"{worker} & wait"], start_new_session=True)
    try:
        pid.write_text(f"{master.pid}\n")
        wait_for(lambda: _draining(pid) == 1, "the worker is counted")
    finally:
        os.killpg(master.pid, signal.SIGKILL)
        master.wait()
    assert _draining(pid) == 0


def test_another_writer_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    driver = nginx(tmp_path)
    with pytest.raises(TrafficError, match="another writer"):
        driver.write("a", NEXT, NEXT)
    assert driver.configured("a") == FIRST


def test_nothing_answers_and_nothing_is_changed(tmp_path: Path) -> None:
    driver = nginx(tmp_path)
    found = change(driver, 100, 0, LADDER)
    assert found.outcome == "in doubt"
    assert "does not answer" in found.text
    assert driver.configured("a") == FIRST


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    driver = nginx(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    if fails == "write":
        usual = Path.open
        monkeypatch.setattr(
            Path, "open", lambda path, mode="r", **more: full() if "x" in mode else usual(path, mode, **more)
        )
    elif fails == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(TrafficError, match="No space left on device; the old file is untouched"):
        driver.write("a", NEXT, FIRST)
    monkeypatch.undo()
    assert driver.configured("a") == FIRST
    assert [one.name for one in tmp_path.iterdir() if "draft" in one.name] == []


def test_putting_back_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "traffic.conf"
    path.write_text("one")
    replace_text(path, "two")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(traffic_files, "replace_text", lambda *_: pytest.fail("a file was written"))
    put_back(path, "one")
    assert path.read_text() == "one"


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "traffic.conf"
    path.write_text("one")
    (tmp_path / ".traffic.conf.draft.1.2").write_text("torn")
    (tmp_path / ".traffic.conf.spare.1.2").write_text("torn")
    replace_text(path, "two")
    assert path.read_text() == "two"
    assert sorted(one.name for one in tmp_path.iterdir()) == [".traffic.conf.before", "traffic.conf"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_two_writers_at_once_are_kept_apart_by_the_lock(tmp_path: Path) -> None:
    one, other = nginx(tmp_path), nginx(tmp_path)
    with one.locked(), pytest.raises(TrafficError, match="under way"):
        change(other, 100, 0, LADDER)


# --- commands of one's own -------------------------------------------------------------------------------------

PROXY = """
import json, os, sys
path, what = sys.argv[1], sys.argv[2]
told = json.load(open(path))
given = os.environ["MIGVERIFY_TRAFFIC"]
if what == "set":
    told["configured"] = told["served"] = json.loads(given)["setting"]
    json.dump(told, open(path, "w"))
elif what == "read":
    print(json.dumps({"configured": told["configured"], "served": told["served"]}))
else:
    asked = json.loads(given)["generations"]
    side = {"requests": 100, "errors": 2, "ms": {"3": 99, "250": 1}}
    print(json.dumps({"generations": {asked[0]: {"old": side, "new": {"requests": 5}}}}))
"""


def commands(tmp_path: Path, script: str = PROXY) -> CommandDriver:
    (tmp_path / "proxy.py").write_text(script)
    first = {"share": 0, "generation": "1-00000000", "was": 0, "previous": "", "at": 1.0, "held": False}
    (tmp_path / "state.json").write_text(json.dumps({"configured": first, "served": first}))
    argv = (sys.executable, str(tmp_path / "proxy.py"), str(tmp_path / "state.json"))
    one = {"name": "p"} | {word: [*argv, word] for word in ("set", "read", "measure")}
    given = {"kind": "command", "sticky": True, "instances": [one], "state": tmp_path, "settle": "1s"}
    return CommandDriver("pay", CommandPart.model_validate(given), context())


def test_commands_set_read_and_measure(tmp_path: Path) -> None:
    driver = commands(tmp_path)
    assert change(driver, 100, 0, LADDER).outcome == "done"
    assert look(driver).share == 100
    generation = driver.configured("p").generation
    found = driver.measure("p", [generation], 0.0)[generation]
    assert (found.old.requests, found.old.errors, found.new.requests) == (100, 2, 5)
    assert found.old.times.quantile(99) == 3
    assert found.unmeasured == {"keys", "errors", "latency"}
    assert abort(driver, 0).outcome == "done"


@pytest.mark.parametrize(
    "script",
    [
        "print('[]')", "import sys; sys.exit(3)", "print('{\"configured\": {\"share\": NaN}}')", "print('x' * 100000)",
        """print('{"configured": {"share": 101, "generation": "1-00000000", "was": 0, "previous": "", "at": 0}}')""",
    ],
)  # fmt: skip
def test_a_command_that_answers_otherwise_is_no_answer(tmp_path: Path, script: str) -> None:
    driver = commands(tmp_path, script)
    state = look(driver)
    assert state.share is None
    assert state.why
    assert change(driver, 100, 0, LADDER).outcome == "in doubt"


@pytest.mark.parametrize(
    "side", [{"requests": -1}, {"requests": 1, "errors": 2}, {}, {"requests": 1, "ms": {"a": 1}}, {"requests": 1.5}]
)
def test_counts_that_cannot_be_are_refused(tmp_path: Path, side: dict[str, Any]) -> None:
    told = {"generations": {"1-00000000": {"old": side, "new": {"requests": 1}}}}
    driver = commands(tmp_path, f"print({json.dumps(json.dumps(told))})")
    with pytest.raises(TrafficError):
        driver.measure("p", ["1-00000000"], 0.0)


# --- the file --------------------------------------------------------------------------------------------------

NGINX = """\
version: traffic/v1
id: pay
carries: writes
driver:
  kind: nginx
  key: $arg_key
  variable: pay
  held: held
  old: {value: old}
  new: {value: new}
  instances:
    - {name: a, include: traffic.conf, test: nginx -t, reload: nginx -s reload, status: "http://127.0.0.1:8081/traffic",
       access_log: access.log, pid: nginx.pid}
"""
COMMAND = """\
version: traffic/v1
id: pay
carries: reads
driver:
  kind: command
  sticky: false
  state: state
  instances: [{name: p, set: share set, read: share read, measure: share measure}]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pay.traffic.yaml"
    path.write_text(text)
    return path


def test_paths_of_a_traffic_file_start_at_its_folder(tmp_path: Path) -> None:
    found = load_traffic(write(tmp_path, NGINX))
    assert found.rungs == LADDER
    assert found.least_seconds == 30
    with pytest.raises(TrafficError, match=re.escape(str(tmp_path / "traffic.conf"))):
        driver_of(found, context()).configured("a")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  held: held\n", "", "writes without `held`"), ("$arg_key", "arg_key", "variables of nginx"),
        ("$arg_key", "'$arg_key\"; }'", "variables of nginx"), ("variable: pay", "variable: Pay-x", "variable has"),
        ("pid: nginx.pid", "", "held needs the pid"), ("{value: new}", "{value: old}", "the same"),
        ("id: pay", "id: pay\nladder: [5, 1, 100]", "ladder"), ("id: pay", "id: pay\nladder: [0.001, 100]", "finer"),
        ("id: pay", "id: pay\nnonsense: 1", "nonsense"), ("kind: nginx", "kind: apache", "kind"),
        ("{value: old}", "{value: old, addresses: [a:1]}", "both sides"),
        ("http://127.0.0.1:8081", "https://127.0.0.1:8081", "http://"),
    ],
)  # fmt: skip
def test_a_traffic_file_that_cannot_work_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in NGINX
    path = write(tmp_path, NGINX.replace(old, new))
    with pytest.raises(ConfigError if says != "finer" else Exception, match=says):
        load_traffic(path)


def test_writes_without_a_side_for_each_key_move_all_at_once_or_not(tmp_path: Path) -> None:
    load_traffic(write(tmp_path, COMMAND))
    with pytest.raises(ConfigError, match="no key one side"):
        load_traffic(write(tmp_path, COMMAND.replace("reads", "writes")))
    load_traffic(write(tmp_path, COMMAND.replace("reads", "writes\nladder: [100]")))


def test_the_examples_of_the_page_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "traffic.md").read_text()
    whole = page.partition("```yaml\n")[2].partition("```")[0]
    loaded = load_traffic(write(tmp_path, whole))
    part = loaded.driver
    assert isinstance(part, NginxPart)
    (only,) = part.instances
    shown = page.partition("```nginx\n")[2].partition("```")[0]
    assert snippets(part, only) == shown
    driver = page.partition("## Another proxy?")[2].partition("```yaml\n")[2].partition("```")[0]
    load_traffic(write(tmp_path, f"version: traffic/v1\nid: pay\ncarries: reads\n{driver}"))


def test_the_schema_on_disk_is_current_and_examples_fit_it() -> None:
    path = ROOT / "migverify" / "schemas" / "traffic.schema.json"
    if os.environ.get("REGEN") == "1":
        path.write_text(json_schema_text(Traffic, TITLE))
    assert path.read_text() == json_schema_text(Traffic, TITLE), "run once with REGEN=1 and look at the change"
    for text in (NGINX, COMMAND):
        jsonschema.Draft202012Validator(json_schema(Traffic, TITLE)).validate(read_yaml(text).data)
    assert [key.path for key in known_keys(Traffic) if not key.description] == []
    page = (ROOT / "docs" / "traffic.md").read_text()
    assert markdown(Traffic) in page, "put markdown(Traffic) into the page"
