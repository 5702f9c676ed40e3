"""JUnit XML: one test case per table pair or rule. MISMATCH is a failure, INCONCLUSIVE an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from migverify.model import Verdict
from migverify.report.marks import visible
from migverify.report.rules import RuleReport
from migverify.report.rules_data import story
from migverify.report.summary import ReportData, TableReport
from migverify.report.text import KIND_WORDS, schema_lines

_MESSAGE = 500


def render_junit(data: ReportData) -> str:
    """Return a document for Jenkins and GitLab.

    A run that is not MATCH although no table pair tells why (no results, cut off) gets a test case too:
    an empty suite would be shown as green.
    """
    cases = [*(_case(table) for table in data.tables), *(_rule(rule) for rule in data.rules)]
    verdicts = [*(t.result.verdict for t in data.tables), *(r.result.verdict for r in data.rules)]
    if data.verdict is not Verdict.MATCH and data.verdict not in verdicts:
        verdicts.append(data.verdict)
        text = "\n".join(data.reasons) or "no reason is stored"
        cases.append(element("the run", f"run {data.run_id}", 0.0, problem(data.verdict, text)))
    return document(f"migverify {data.run_id}", cases, verdicts, data.seconds, _properties(data), data.started)


def document(
    suite: str,
    cases: Sequence[str],
    verdicts: Sequence[Verdict],
    seconds: float | None,
    properties: Iterable[tuple[str, str]] = (),
    started: float | None = None,
) -> str:
    """Return a document of one suite.

    Parameters
    ----------
    cases
        Test cases made by ``element``.
    verdicts
        What the cases say, for the counts.
    seconds, started
        Working time, None where the run's end is not known; Unix time of the start, None to leave it out.
    """
    counts = (
        f'tests="{len(cases)}" failures="{verdicts.count(Verdict.MISMATCH)}" '
        f'errors="{verdicts.count(Verdict.INCONCLUSIVE)}" skipped="0" time="{seconds or 0.0:.3f}"'
    )
    stamp = "" if started is None else f' timestamp="{datetime.fromtimestamp(started, UTC):%Y-%m-%dT%H:%M:%S}"'
    told = [f'      <property name="{attribute(n)}" value="{attribute(v)}"/>' for n, v in properties]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="migverify" {counts}>',
        f'  <testsuite name="{attribute(suite)}" {counts}{stamp}>',
        *(["    <properties>", *told, "    </properties>"] if told else []),
        *cases,
        "  </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _properties(data: ReportData) -> Iterator[tuple[str, str]]:
    yield "verdict", str(data.verdict)
    yield "exit_code", str(int(data.exit_code))
    yield "engine", data.engine
    yield "plan", data.plan_hash
    for reason in data.reasons:
        yield "reason", reason
    for endpoint in data.endpoints:
        for fact in endpoint.facts:
            yield f"{endpoint.name}.{fact.name}", fact.value


def _case(table: TableReport) -> str:
    result = table.result
    name = result.source if result.source == result.target else f"{result.source} -> {result.target}"
    body = "" if result.verdict is Verdict.MATCH else problem(result.verdict, "\n".join(_story(table)))
    return element(result.source.partition(".")[0], name, result.seconds, body)


def _rule(rule: RuleReport) -> str:
    result = rule.result
    body = "" if result.verdict is Verdict.MATCH else problem(result.verdict, "\n".join(story(rule)))
    return element("rules", result.pair, result.seconds, body)


def _story(table: TableReport) -> Iterator[str]:
    result = table.result
    yield from result.reasons
    for kind, words in KIND_WORDS.items():
        if number := getattr(result, kind.value):
            yield f"rows {words}: {number}"
    yield from (f"schema, {line}" for line in schema_lines([("", item) for item in result.schema]))
    yield from (f"not covered: {item.what}: {item.reason}" for item in result.not_covered)


def problem(verdict: Verdict, text: str) -> str:
    """Return the element of a test case that is not MATCH; ``text`` is what went wrong, line by line."""
    tag = "failure" if verdict is Verdict.MISMATCH else "error"
    first = text.split("\n", 1)[0] or "no reason is stored"
    lines = "\n".join(_text(line) for line in text.split("\n"))
    return f'<{tag} type="{verdict}" message="{attribute(first[:_MESSAGE])}">{lines}</{tag}>'


def element(group: str, name: str, seconds: float, body: str) -> str:
    """Return a test case; ``body`` is empty for one that passed."""
    return (
        f'    <testcase classname="migverify.{attribute(group)}" name="{attribute(name)}" '
        f'time="{seconds:.3f}">{body}</testcase>'
    )


def _text(text: str) -> str:
    # ``visible`` also removes what XML 1.0 cannot hold in any form: control characters, surrogates, U+FFFE.
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def attribute(text: str) -> str:
    """Return text as it may stand between the quotes of an attribute."""
    return _text(text).replace('"', "&quot;").replace("'", "&apos;")
