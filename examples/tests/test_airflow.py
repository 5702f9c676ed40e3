"""Operator, sensor and DAG in Airflow itself: what becomes of each exit code, and that no password shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "airflow"
PASSWORD = "correct-horse-battery"

# `migverify` as the examples see it: its answers are files of the test, and it says its password, which it never does.
FAKE = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps({{"words": sys.argv[1:], "password": os.environ.get("SOURCE_PASSWORD")}}) + "\\n")
answers = json.loads((folder / "answers").read_text())
code, document = answers["status" if "status" in sys.argv else "verify"]
print("the password is", os.environ.get("SOURCE_PASSWORD"), file=sys.stderr)
print(json.dumps(document))
sys.exit(code)
"""


@pytest.fixture(scope="session", autouse=True)
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow with a database of its own; the connection of the passwords comes from a variable."""
    home = tmp_path_factory.mktemp("airflow")
    dags = home / "dags"
    shutil.copytree(FOLDER, dags, ignore=shutil.ignore_patterns("__pycache__"))
    os.environ.update(
        AIRFLOW_HOME=str(home), AIRFLOW__CORE__LOAD_EXAMPLES="False", AIRFLOW__CORE__DAGS_FOLDER=str(dags),
        AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(home / "logs"),
        AIRFLOW_CONN_PAYMENTS_MYSQL=f"mysql://app:{PASSWORD}@db1:3306", AIRFLOW_CONN_EMPTY="mysql://app@db1:3306",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sys.path.insert(0, str(dags))
    return home


class Command:
    """The fake command, and what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "migverify"
        self.path.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(0o755)

    def answers(self, verify: int = 0, verdict: str = "MATCH", status: object = None, code: int = 0) -> None:
        document = {"run_id": "20260131T120000-0a1b2c", "verdict": verdict}
        (self.folder / "answers").write_text(json.dumps({"verify": [verify, document], "status": [code, status]}))

    @property
    def calls(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    made = Command(tmp_path)
    made.answers()
    return made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)


def watch(verdict: str, state: str = "alive") -> dict[str, object]:
    forward = {"run": "w1", "verdict": verdict, "as_of": "binlog.000001:4", "reason": "", "state": state}
    return {"directions": {"forward": forward, "reverse": None}}


DAG_FILE = """
from datetime import timedelta
from airflow.sdk import DAG
from migverify_airflow import VerifyTablesOperator

with DAG({name!r}, schedule=None) as dag:
    VerifyTablesOperator(
        task_id="verify", config="/etc/migverify.yaml", executable={executable!r}, retry_delay=timedelta(0),
        passwords={{"SOURCE_PASSWORD": "payments_mysql"}}, **{arguments!r},
    )

if __name__ == "__main__":
    run = dag.test()
    print("states", *[task.state for task in run.get_task_instances()], run.state)
"""


def run_task(name: str, command: Command, **arguments: object) -> tuple[str, str]:
    """Return the states of the operator and of its DAG, and all that Airflow shows while it tests the DAG."""
    file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / f"{name}.py"
    file.write_text(DAG_FILE.format(name=name, executable=str(command.path), arguments=arguments))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    shown = done.stdout + done.stderr
    states = [line for line in done.stdout.splitlines() if line.startswith("states ")]
    assert len(states) == 1, shown
    return states[0].removeprefix("states "), shown


def test_the_dag_is_imported_without_an_error() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(FOLDER / "migverify_dag.py"))
    assert bag.import_errors == {}
    dag = bag.dags["migverify_payments"]
    assert dag.task_dict["watch_says_match"].downstream_task_ids == {"verify_tables"}


def test_a_match_succeeds_in_a_dag_that_airflow_tests(name: str, command: Command) -> None:
    states, shown = run_task(name, command, tables=["payments.*"], since="last", store="sqlite:////data/runs.db")
    assert states == "success success"
    (call,) = command.calls
    assert call["password"] == PASSWORD, "it comes from the connection"
    words = call["words"]
    assert words == [
        "tables", "verify", "--engine", "local", "--quiet", "--tables", "payments.*", "--since", "last",
        "--config", "/etc/migverify.yaml", "--json", "--store", "sqlite:////data/runs.db",
    ]  # fmt: skip
    assert PASSWORD not in shown


class Log:
    """Keeps what a task logs, before Airflow masks it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.lines.append(text % values)


def test_a_password_that_the_command_says_is_not_logged(command: Command) -> None:
    from migverify_airflow import MigverifyCommand

    log = Log()
    shared = MigverifyCommand(str(command.path), "x", {"SOURCE_PASSWORD": "payments_mysql"}, None)
    assert shared.run(log, "tables", "verify")[0] == 0
    assert log.lines[1:] == ["the password is ***"]
    assert PASSWORD not in log.lines[0]


@pytest.mark.parametrize(
    ("code", "verdict", "calls", "why"),
    [
        (1, "MISMATCH", 1, "fails without a retry"),
        (2, "", 1, "fails without a retry"),
        (3, "INCONCLUSIVE", 2, "is tried again"),
        (130, "INCONCLUSIVE", 2, "is tried again"),
        (0, "INCONCLUSIVE", 2, "0 without a verdict is no MATCH"),
        (0, "", 2, "0 without a verdict is no MATCH"),
    ],
)
def test_exit_codes_decide_the_task(command: Command, code: int, verdict: str, calls: int, why: str) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
    from migverify_airflow import VerifyTablesOperator

    command.answers(verify=code, verdict=verdict)
    operator = VerifyTablesOperator(task_id="verify", config="x", executable=str(command.path))
    with pytest.raises(AirflowException) as raised:
        operator.execute({})
    assert isinstance(raised.value, AirflowFailException) is (calls == 1), why
    assert "20260131T120000-0a1b2c" in str(raised.value)


def test_airflow_retries_what_was_not_read_and_not_what_differs(name: str, command: Command) -> None:
    command.answers(verify=1, verdict="MISMATCH")
    assert run_task(name, command, retries=1)[0] == "failed failed"
    assert len(command.calls) == 1
    command.answers(verify=3, verdict="INCONCLUSIVE")
    assert run_task(f"{name}_again", command, retries=1)[0] == "failed failed"
    assert len(command.calls) == 3


@pytest.mark.parametrize(
    ("status", "code", "answer"),
    [
        (watch("MATCH"), 0, True),
        (watch("MATCH", "ended"), 0, False),
        (watch("MATCH", "not alive"), 0, False),
        (watch("INCONCLUSIVE"), 0, False),
        ({"directions": None}, 0, False),
        ({}, 3, False),
        (watch("MATCH"), 3, False),
    ],
)
def test_the_sensor_waits_for_a_match_of_a_living_watch(
    command: Command, status: object, code: int, answer: bool
) -> None:
    from migverify_airflow import WatchMatchSensor

    command.answers(status=status, code=code)
    sensor = WatchMatchSensor(task_id="wait", config="x", executable=str(command.path))
    assert sensor.poke({}) is answer


def test_the_sensor_does_not_wait_for_what_differs(command: Command) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from migverify_airflow import WatchMatchSensor

    sensor = WatchMatchSensor(task_id="wait", config="x", executable=str(command.path))
    command.answers(status=watch("MISMATCH"))
    with pytest.raises(AirflowFailException, match="tables diff w1"):
        sensor.poke({})
    command.answers(status={}, code=2)
    with pytest.raises(AirflowFailException, match="refused"):
        sensor.poke({})


def test_a_connection_without_a_password_is_an_error(command: Command) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from migverify_airflow import VerifyTablesOperator

    operator = VerifyTablesOperator(
        task_id="verify", config="x", executable=str(command.path), passwords={"SOURCE_PASSWORD": "empty"}
    )
    with pytest.raises(AirflowFailException, match="connection empty has no password"):
        operator.execute({})


def test_a_task_that_is_killed_interrupts_the_run(command: Command) -> None:
    from migverify_airflow import VerifyTablesOperator

    operator = VerifyTablesOperator(task_id="verify", config="x", executable=str(command.path))
    operator.on_kill()  # nothing runs yet
    operator.execute({})
    operator.on_kill()  # nothing runs any more
