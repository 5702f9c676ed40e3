"""The catalog of disaster recovery cases: files that lint, a page that lists them, figures of those that were run."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from migverify.runbook.definition.expand import read_source
from migverify.runbook.definition.load import known_cases
from migverify_lab import chaos

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "runbooks" / "dr"
PAGE = ROOT / "docs" / "dr.md"
RESULTS = ROOT / "docs" / "dr-results.json"
BEGIN, END = "<!-- cases: made by tests/unit/runbook/test_dr_page.py; REGEN=1 writes it -->\n", "<!-- end of cases -->"
TIERS = {"L": "this machine", "K": "cluster of a lab", "C": "cloud"}


@functools.cache
def cases() -> dict[str, dict[str, Any]]:
    found: dict[str, Any] = {path.stem: read_source(path).document.data for path in sorted(FOLDER.glob("*.yaml"))}
    return found


def results() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return found


def with_faults() -> dict[str, dict[str, Any]]:
    """The cases of this machine whose faults are those of `migverify lab chaos`."""
    return {id_: one for id_, one in cases().items() if id_ in chaos.catalog()}


def table(found: Mapping[str, Mapping[str, Any]], ran: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| case | what happens | priority | tier | run here |", "|---|---|---|---|---|"]
    for id_, one in sorted(found.items(), key=lambda pair: ("LKC".index(pair[1]["case"]["tier"]), pair[0])):
        case = one["case"]
        lines.append(
            f"| [`{id_}`](../runbooks/dr/{id_}.yaml) | {one['title']} | {case['priority']} |"
            f" {case['tier']}: {TIERS[case['tier']]} | {_figures(case['tier'], ran.get(id_))} |"
        )
    return "\n".join(lines) + "\n"


def _figures(tier: str, ran: Mapping[str, Any] | None) -> str:
    if tier != "L":
        return "no"
    if ran is None:
        return "no figures"
    if not ran["failed"]:
        return f"yes: no client noticed (longest pause {ran['stall']:.1f} s); RPO {ran['rpo_rows']} rows"
    return (
        f"yes: RTO {ran['from_inject']:.1f} s from the fault, {ran['from_remove']:.1f} s from the removal;"
        f" RPO {ran['rpo_rows']} rows; {ran['failed']} attempts failed"
    )


def test_the_page_lists_the_files() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    new = table(cases(), results())
    if os.environ.get("REGEN") == "1":
        PAGE.write_text(f"{before}{BEGIN}{new}{END}{after}")
    assert old == new or os.environ.get("REGEN") == "1", "run the tests once with REGEN=1 and look at the change"


def test_every_fault_has_its_case_and_figures_of_a_run() -> None:
    assert set(chaos.catalog(nginx=False)) <= set(cases()), "a fault without a case"
    assert set(results()) == set(chaos.catalog(nginx=False)), "run tests/db/test_dr_cases.py with REGEN=1"
    for id_, ran in results().items():
        assert ran["rpo_rows"] == 0, id_


def test_the_folder_is_a_catalogue() -> None:
    assert set(cases()) <= known_cases(FOLDER)


@pytest.mark.parametrize("case", sorted(with_faults()))
def test_the_case_names_its_own_fault(case: str) -> None:
    found = with_faults()[case]
    assert found["case"]["tier"] == "L"
    steps = {step["id"]: step for phase in found["phases"] for step in phase["steps"]}
    for part, word in (("inject", "inject"), ("remove", "remove")):
        run = steps[found["case"]["steps"][part]]["do"]["run"]
        assert f"chaos {word} {case}" in run
        assert "--dud {{dud}}" in run, "every case can be told to do nothing"
    for part, word in (("hit", "hit"), ("gone", "gone")):
        assert f"chaos {word} {case}" in steps[found["case"]["steps"][part]]["expect"][0]["run"]
    undo = steps["inject"]["rollback"]
    assert "--dud" not in undo["do"]["run"], "the way back is never a dud"


@pytest.mark.parametrize("name", sorted(chaos.catalog()))
def test_every_fault_says_what_it_is(name: str) -> None:
    fault = chaos.find(name)
    assert fault.name == name
    assert fault.about.endswith(".")


def test_settings_that_a_fault_does_not_have_are_refused() -> None:
    from migverify.errors import UsageError

    with pytest.raises(UsageError, match="no setting"):
        chaos.find("mysql-killed").settings_with({"speed": "1"})
    with pytest.raises(UsageError, match="no fault is called"):
        chaos.find("mysql-kiled")
