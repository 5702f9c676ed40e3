"""JUnit XML for Jenkins and GitLab: MISMATCH is a failure, INCONCLUSIVE an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from migverify.model import Verdict
from migverify.report.marks import visible
from migverify.report.model import FactList, JUnitCase, Report

_MESSAGE = 500


def render_junit(report: Report) -> str:
    """Return a document of one suite.

    A run that is not MATCH although none of its cases tells why (no results, cut off) gets a case of its own: an
    empty suite would be shown as green.
    """
    cases = list(report.cases)
    if report.verdict is not Verdict.MATCH and all(case.verdict is not report.verdict for case in cases):
        cases.append(JUnitCase("the run", f"run {report.run_id}", report.verdict, report.reasons))
    verdicts = [case.verdict for case in cases]
    counts = {
        "tests": str(len(cases)), "failures": str(verdicts.count(Verdict.MISMATCH)),
        "errors": str(verdicts.count(Verdict.INCONCLUSIVE)), "skipped": "0", "time": f"{report.seconds or 0.0:.3f}",
    }  # fmt: skip
    root = Xml.Element("testsuites", {"name": "migverify", **counts})
    suite = Xml.SubElement(root, "testsuite", {"name": _safe(f"migverify {report.subject}"), **counts})
    if report.started is not None:
        suite.set("timestamp", f"{datetime.fromtimestamp(report.started, UTC):%Y-%m-%dT%H:%M:%S}")
    properties = Xml.SubElement(suite, "properties")
    for name, value in _properties(report):
        Xml.SubElement(properties, "property", name=_safe(name), value=_safe(value))
    for case in cases:
        _case(suite, case)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    yield "verdict", str(report.verdict)
    yield "exit_code", str(int(report.exit_code))
    yield from (("reason", reason) for reason in report.reasons)
    for title, facts in report.cards:
        yield from ((f"{title}.{fact.name}", fact.value) for fact in facts)
    for section in report.sections:
        for block in section.blocks if section.id == "facts" else ():
            yield from ((fact.name, fact.value) for fact in block.facts) if isinstance(block, FactList) else ()


def _case(suite: Xml.Element, case: JUnitCase) -> None:
    element = Xml.SubElement(
        suite, "testcase", classname=_safe(f"migverify.{case.group}"), name=_safe(case.name), time=f"{case.seconds:.3f}"
    )
    if case.verdict is not Verdict.MATCH:
        _problem(element, case)
    if case.notes:
        Xml.SubElement(element, "system-out").text = _text(case.notes)


def _problem(element: Xml.Element, case: JUnitCase) -> None:
    lines = case.lines or ("no reason is stored",)
    tag = "failure" if case.verdict is Verdict.MISMATCH else "error"
    problem = Xml.SubElement(element, tag, type=str(case.verdict), message=_safe(lines[0][:_MESSAGE]))
    problem.text = _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(_safe(line) for text in lines for line in text.split("\n"))


def _safe(text: str) -> str:
    # ``visible`` also removes what XML 1.0 cannot hold in any form: control characters, surrogates, U+FFFE.
    return visible(text)
