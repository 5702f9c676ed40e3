"""Next commands are complete: typable as they are, with the configuration and store that the command was given."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from migverify.cli.console import GIVEN, completed, given_options, json_text
from migverify.model import NextStep, Verdict
from migverify.report.render import Format, render
from migverify.secrets import Secret, remember
from tests.json_outputs import command_of
from tests.unit.report.test_report_formats import data_of


def test_text_and_json_end_with_the_same_steps() -> None:
    report = data_of("mismatch")
    steps = json.loads(render(report, Format.JSON))["next_steps"]
    assert len(steps) == 4
    text = render(report, Format.TEXT)
    for step in steps:
        assert f"  {step['command']}  # {step['reason']}" in text
        words = shlex.split(step["command"])
        assert words[0] == "migverify"
        assert command_of(words[1:]) is not None or words[1] == "report"


@pytest.fixture
def given() -> object:
    token = GIVEN.set(given_options({"config": Path("my files/prod.yaml"), "store": "sqlite:///runs.db", "run": "x"}))
    yield
    GIVEN.reset(token)


@pytest.mark.usefixtures("given")
def test_a_step_has_what_its_command_was_given() -> None:
    step = completed(NextStep("migverify tables diff 20270115T080000-1a2b3c", "rows"))
    assert shlex.split(step.command)[-4:] == ["--config", "my files/prod.yaml", "--store", "sqlite:///runs.db"]
    assert completed(NextStep("migverify runbook ack s1 --as ann", "start")).command.endswith("--as ann")


def test_the_default_configuration_is_not_repeated() -> None:
    assert given_options({"config": Path("migverify.yaml"), "store": None}) == {}
    step = NextStep("migverify report last", "all")
    assert completed(step) == step


def test_a_secret_is_in_no_step() -> None:
    remember(Secret("hunter2-of-tests"))
    token = GIVEN.set({"--store": "mysql://u:hunter2-of-tests@db/store"})
    try:
        text = json_text({"verdict": Verdict.MISMATCH}, [NextStep("migverify report last", "all")])
    finally:
        GIVEN.reset(token)
    assert "hunter2" not in text
    assert json.loads(text)["schema_version"] == 1
