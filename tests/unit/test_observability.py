"""Dashboard and alert rules name metrics that the program gives, and the pages show them as they are.

`tests/db/test_observability.py` has Prometheus and promtool judge them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs._site import reference
from tests.pages import declared_commands

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "observability"
PAGE = ROOT / "docs" / "observability.md"
MARKS = ("<!-- alerts -->\n", "<!-- /alerts -->")
METRIC = re.compile(r"migverify_[a-z0-9_]+")
GIVEN = {name for _, name, _ in reference.gauges()}
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
OPTIONS = {
    line: {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for line, command in declared_commands()
}
"""Options by command; a form of a command (`runbook readiness --watch`) is a line of its own."""
ROWS = ["Watch of tables", "Rules", "Guards", "Runs", "Shadow replay", "Readiness", "Fleet", "Runbook run"]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def refused(command: str) -> str:
    """Return what migverify does not know of a command line; empty when it knows it."""
    words = command.split()
    known = [line for line in OPTIONS if "--" not in line and words[: len(line.split())] == line.split()]
    if not known:
        return f"no command is called {command}"
    line = max(known, key=len)
    forms = [form for form in OPTIONS if form == line or form.startswith(f"{line} --")]
    options = {flag for form in forms for flag in (*OPTIONS[form], *form.split())}
    unknown = {word for word in words if word.startswith("-")} - options
    return f"{line} has no {sorted(unknown)}" if unknown else ""


def expressions() -> Iterator[tuple[str, str]]:
    """Yield where each query is, and the query."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    yield from ((panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ()))


def test_every_metric_has_its_line_in_the_reference() -> None:
    unreadable = sorted(name for name in GIVEN if not METRIC.fullmatch(name))
    assert not unreadable, "docs/_site/reference.py does not find these names"
    page = reference.metrics_page()
    assert [name for name in GIVEN if f"| `{name}` |" not in page] == []
    shown = [path.read_text() for path in (ROOT / "tests" / "snapshots").glob("*.prom")]
    assert {name for text in shown for name in re.findall(r"^# TYPE (\w+)", text, flags=re.MULTILINE)} - GIVEN == set()


def test_metrics_have_one_writer() -> None:
    """A page that another way writes would not be in the reference."""
    others = [path for path in (ROOT / "migverify").rglob("*.py") if "# TYPE" in path.read_text()]
    assert [path.name for path in others] == ["exposition.py"]


def test_dashboard_and_rules_name_metrics_that_there_are() -> None:
    named = {(where, name) for where, text in expressions() for name in METRIC.findall(text)}
    assert {(where, name) for where, name in named if name not in GIVEN} == set()
    assert len(named) > 100


def test_the_dashboard_has_a_row_for_each_kind_and_no_data_source_of_its_own() -> None:
    assert [panel["title"].partition(" (")[0] for panel in PANELS if panel["type"] == "row"] == ROWS
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    shown = [panel for panel in PANELS if panel["type"] != "row"]
    sources = [one["datasource"]["uid"] for panel in shown for one in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}
    assert DASHBOARD["id"] is None
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
    cells = [
        (x, y) for panel in PANELS for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
    ]  # fmt: skip
    assert len(cells) == len(set(cells)), "panels lie on each other"


def test_each_alert_says_what_to_do_with_commands_that_exist() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        for command in re.findall(r"`migverify ([a-z][^`]*)`", rule["annotations"]["action"]):
            assert refused(command) == "", rule["alert"]
    tested = {test["name"] for test in yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]}
    assert tested == {"healthy", *names}


def test_commands_and_jobs_of_the_scrape_example() -> None:
    text = (FOLDER / "prometheus.yml").read_text()
    commands = re.findall(r"# migverify ([a-z][^,\n]*)", text)
    assert len(commands) == 7
    assert [wrong for command in commands if (wrong := refused(command))] == []
    jobs = {job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]}
    assert set(re.findall(r'job="([^"]+)"', (FOLDER / "rules_test.yml").read_text())) == jobs


def test_the_page_shows_the_alerts_as_they_are() -> None:
    text = PAGE.read_text()
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    fresh = before + MARKS[0] + _table() + MARKS[1] + after
    if os.environ.get("REGEN") == "1":
        PAGE.write_text(fresh)
    assert PAGE.read_text() == fresh, "run the tests once with REGEN=1 and look at the change"


def _table() -> str:
    lines = ["| alert | fires on | for | severity | what to do |", "|---|---|---|---|---|"]
    for rule in alerts():
        expression = rule["expr"].replace("|", "\\|")
        lines.append(
            f"| {rule['alert']} | `{expression}` | {rule.get('for', '')} | {rule['labels']['severity']} |"
            f" {rule['annotations']['action']} |"
        )
    return "\n".join(lines) + "\n"
