"""bench/faults on real servers: cases that load as they are written, and migverify judged on five of them."""

from __future__ import annotations

import os

import pytest

from bench.faults.adapter import Endpoint
from bench.faults.adapters import adapters
from bench.faults.cases import load_cases
from bench.faults.judge import Outcome, Rows
from bench.faults.run import Results, run
from migverify_lab.servers import LabServers

pytestmark = pytest.mark.db

CASES = {
    "row-deleted/integers+one_row": Outcome.FOUND,
    "json-int-off-by-one/jsons": Outcome.FOUND,
    "duplicate-in-keyless/no_key": Outcome.FOUND,
    "equal/decimal_scale": Outcome.EQUAL,
    "equal/instant": Outcome.EQUAL,
}


@pytest.fixture(scope="module")
def results(pair: LabServers) -> Results:
    source, target = (
        Endpoint(server.host, server.port, server.user, f"mv_bench_faults_{os.getpid()}")
        for server in (pair.source, pair.target)
    )
    tools = adapters(["migverify", "row-count"])
    return run(tools, load_cases().choose(list(CASES)), source, target, print)


def test_migverify_is_right_and_names_the_rows(results: Results) -> None:
    own = [result for result in results.results if result.tool == "migverify"]
    assert {result.case: result.outcome for result in own} == CASES, [result.reason for result in own]
    assert {result.rows for result in own if result.outcome is Outcome.FOUND} == {Rows.EXACT}


def test_a_row_count_is_judged_by_the_same_rules(results: Results) -> None:
    outcomes = {result.case: result.outcome for result in results.results if result.tool == "row-count"}
    assert outcomes == {**CASES, "json-int-off-by-one/jsons": Outcome.MISSED}
