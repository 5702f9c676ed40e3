"""The engine on a local master: answers, errors, death of a worker, cancel, close."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ConfigError, PrivilegeError, ReadError, RetryableReadError, UsageError

from .conftest import HEAVY_OF_SPARK, SECRET, Sessions

Make = Callable[..., Any]


def test_each_task_gets_its_own_answer(engine_on: Make) -> None:
    engine = engine_on("toy_runners:echo")
    tasks = [f'{{"n": {n}, "text": "é\\n%"}}' for n in range(20)]
    futures = [engine.submit(task) for task in tasks]
    assert [future.result() for future in futures] == [f"{task}|source,target" for task in tasks]
    assert (engine.name, engine.slots) == ("spark", 3)


def test_a_large_task_and_answer_pass(engine_on: Make) -> None:
    task = "x" * 3_000_000
    assert engine_on("toy_runners:echo").submit(task).result() == f"{task}|source,target"


def test_workers_are_light(engine_on: Make) -> None:
    assert json.loads(engine_on("toy_runners:where_am_i").submit("").result())["heavy"] == HEAVY_OF_SPARK


def test_slots_tasks_wait_at_the_same_time_on_any_number_of_cores(
    engine_on: Make, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    engine = engine_on("toy_runners:wait_for")
    futures = [engine.submit(json.dumps({"folder": str(tmp_path), "name": n})) for n in range(4)]
    eventually(lambda: len(list(tmp_path.glob("started-*"))) == 3)
    (tmp_path / "go").touch()
    assert [future.result() for future in futures] == [f"done:{n}" for n in range(4)]


def test_an_answer_is_there_while_other_tasks_run(engine_on: Make, tmp_path: Path) -> None:
    slow = engine_on("toy_runners:wait_for")
    waiting = slow.submit(json.dumps({"folder": str(tmp_path), "name": "slow"}))
    assert engine_on("toy_runners:echo").submit("quick").result() == "quick|source,target"
    assert not waiting.done()
    (tmp_path / "go").touch()
    assert waiting.result() == "done:slow"


def test_an_error_of_ours_arrives_as_the_same_class_without_the_secret(engine_on: Make) -> None:
    with pytest.raises(PrivilegeError) as caught:
        engine_on("toy_runners:refuse").submit("shop.orders").result()
    assert caught.value.message == "user lacks SELECT on shop.orders, password ***"
    assert caught.value.hint == "GRANT SELECT ON ..."


def test_another_error_arrives_as_one_line(engine_on: Make) -> None:
    with pytest.raises(ReadError) as caught:
        engine_on("toy_runners:stumble").submit("it").result()
    assert caught.value.message == "ValueError: cannot do it with ***"
    assert type(caught.value) is ReadError


def test_an_answer_that_is_not_text_is_an_error(engine_on: Make) -> None:
    with pytest.raises(ReadError, match="answered with int"):
        engine_on("toy_runners:number").submit("").result()


@pytest.mark.parametrize("runner", ["no_such_module:run", "toy_runners:no_such_function"])
def test_a_runner_that_the_worker_cannot_import_is_said(engine_on: Make, runner: str) -> None:
    with pytest.raises((ConfigError, ReadError), match="no_such") as caught:
        engine_on(runner).submit("").result()
    assert "\n" not in caught.value.message


def test_a_task_whose_worker_is_killed_is_repeated(engine_on: Make, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    said = engine_on("toy_runners:die_once").submit(str(mark)).result()
    assert said == f"killed {mark.read_text()}"


def test_a_task_that_kills_every_worker_ends_with_one_line(engine_on: Make) -> None:
    with pytest.raises(RetryableReadError) as caught:
        engine_on("toy_runners:die_always").submit("").result()
    assert "failed 4 times" in caught.value.message
    assert "\n" not in caught.value.message
    assert ".scala" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_cancel_ends_running_and_waiting_tasks(engine_on: Make, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    engine = engine_on("toy_runners:wait_for")
    futures = [engine.submit(json.dumps({"folder": str(tmp_path), "name": n})) for n in range(5)]
    started = eventually(lambda: [p for p in tmp_path.glob("started-*") if p.stat().st_size])
    eventually(lambda: len(list(tmp_path.glob("started-*"))) == 3)
    engine.cancel()
    engine.cancel()
    for future in futures:
        with pytest.raises(ReadError, match="canceled"):
            future.result(timeout=30)
    pid = json.loads(started[0].read_text())["pid"]
    eventually(lambda: not Path(f"/proc/{pid}").exists())  # the worker, and so its connections, are gone
    with pytest.raises(ReadError, match="canceled before"):
        engine.submit("{}").result(timeout=30)


def test_cancel_of_one_engine_leaves_another_alone(engine_on: Make, tmp_path: Path) -> None:
    idle, busy = engine_on("toy_runners:echo"), engine_on("toy_runners:wait_for")
    future = busy.submit(json.dumps({"folder": str(tmp_path), "name": "kept"}))
    idle.cancel()
    (tmp_path / "go").touch()
    assert future.result() == "done:kept"


def test_a_closed_engine_refuses_and_can_be_closed_again(engine_on: Make) -> None:
    engine = engine_on("toy_runners:echo")
    engine.close()
    engine.close()
    with pytest.raises(ReadError, match="closed"):
        engine.submit("late")


def test_no_slots_are_refused(sessions: Sessions) -> None:
    from migverify.spark.engine import SparkEngine

    with pytest.raises(UsageError, match="at least 1 slot"):
        SparkEngine(sessions.get(), {}, 0)


def test_a_second_session_in_one_process_is_refused(sessions: Sessions) -> None:
    from migverify.spark.session import open_session

    session = sessions.get()
    with pytest.raises(UsageError, match="open in this process"):
        open_session("local", "second", {}, 1)
    assert session.sparkContext.parallelize([1], 1).collect() == [1]
