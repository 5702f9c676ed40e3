"""The load of a real pair: a service level that is missed at 1.3x only is found, and single slow calls are not."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from migverify.cli.main import run
from migverify.store.open import open_store
from migverify.workload.forecast.store import load_forecast
from tests.busy_target import busy_target
from tests.conftest import Databases
from tests.replay_load import Line, captured

pytestmark = pytest.mark.db

SERVICE = 0.04
"""Seconds that the target takes for a statement, one after the other."""
UTILIZATION = 0.95
SECONDS = 7.0
SESSIONS = 8
LIMIT = 0.8
"""Seconds; the queue comes to half a second more at 1.3x, and the machine may lose as much at 1x."""
NOISE = {0: 1.0, 80: 1.0}
"""A first execution and a pause under the captured load, each above the limit: single slow calls are no miss."""


def config(folder: Path, databases: Databases, target_port: int) -> Path:
    path = folder / "migverify.yaml"
    source, target = databases.pair.source, databases.pair.target
    path.write_text(json.dumps({
        "source": {"host": source.host, "port": source.port, "user": "root"},
        "target": {"host": target.host, "port": target_port, "user": "root", "tls": {"mode": "disabled"}},
        "tables": {"include": ["*.*"]}, "store": f"sqlite:///{folder}/store.db",
        "workload": {
            "folder": str(folder / "runs"), "forecast_seconds": 1,
            "service_levels": {
                "checkout": {"writes": 0, "reads": 1, "quantile": 0.9, "seconds": LIMIT, "statements": "*item*"},
            },
        },
    }))  # fmt: skip
    return path


def load(databases: Databases) -> list[Line]:
    gap, read = SERVICE / UTILIZATION * 1e6, f"SELECT v FROM `{databases.name}`.item WHERE id ="
    return [
        Line(number % SESSIONS + 1, round(number * gap), f"{read} {number % 9}", took=1_000, rows=1)
        for number in range(int(SECONDS * UTILIZATION / SERVICE))
    ]


def test_a_level_that_is_missed_at_1_3x_only_is_found(
    databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ", ".join(f"({number}, 'v{number}')" for number in range(9))
    databases.both(
        f"USE `{databases.name}`", "CREATE TABLE item (id INT PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO item VALUES {rows}", "COMMIT",
    )  # fmt: skip
    capture = captured(load(databases), databases.name, tmp_path)
    target = databases.pair.target
    with busy_target(target.host, target.port, b".item WHERE", SERVICE, NOISE) as port:
        path = config(tmp_path, databases, port)
        words = ["workload", "replay", str(capture), "--config", str(path), "--accept-write-grants", "--quiet",
                 "--slo", "checkout", "--rates", "1.3", "--headroom", "1.3", "--json"]  # fmt: skip
        capsys.readouterr()
        code = run(words)
    document = json.loads(capsys.readouterr().out)
    levels = {one["name"]: one for one in document["service_levels"]}
    assert (levels["checkout"]["met"], levels["checkout at 1.3x"]["met"]) == (True, False), document["reasons"]
    assert (code, document["verdict"]) == (1, "MISMATCH")
    assert all("checkout at 1.3x was missed" in reason for reason in document["reasons"])

    store = open_store(f"sqlite:///{tmp_path}/store.db")
    forecast = load_forecast(store, document["run_id"])
    store.close()
    assert forecast is not None
    assert forecast.as_json() == document["forecast"]
    (level,) = forecast.levels
    assert (level.captured, level.at_headroom) == ("met", "missed")
    assert (level.limit.latest, level.limit.latest_measured) == (1.3, True)
    assert level.limit.earliest is not None
    assert 1.0 <= level.limit.earliest < 1.3
    (use,) = forecast.uses
    assert use.share == 1.0
    assert use.mean >= SERVICE

    def report(form: str) -> str:
        capsys.readouterr()
        assert run(["report", "last", "--config", str(path), "--format", form]) == 1
        return capsys.readouterr().out

    assert "at 1.3x the captured load: missed" in report("text")
    cases = {case.get("name"): case for case in Xml.fromstring(report("junit")).iter("testcase")}  # noqa: S314 - our own
    assert cases["service level checkout"].find("failure") is None
    assert cases["service level checkout at 1.3x"].find("failure") is not None
    assert '<svg class="load"' in report("html")
