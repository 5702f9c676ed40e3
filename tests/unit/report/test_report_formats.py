"""Every form of a report holds the same facts, escapes any name, and is valid in its format."""

from __future__ import annotations

import json
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import ColumnDiff, DiffKind, SchemaClass, SchemaDifference, Verdict
from migverify.report.model import Report, ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, format_of, render, write_report
from migverify.report.tables import schema_lines
from migverify.tables.run_facts import UNSEEN
from tests.fakes import FakeStore
from tests.report_runs import (
    HOSTILE,
    VALUE_DIFFS,
    empty_run,
    hostile_run,
    large_run,
    match_run,
    mismatch_run,
    result,
    row_diff,
    start,
    store_at_fixed_times,
    unfinished_run,
)

SNAPSHOTS = Path(__file__).parents[1].parent / "snapshots"
RUNS: dict[str, Callable[[FakeStore], str]] = {
    "match": match_run,
    "mismatch": mismatch_run,
    "unfinished": unfinished_run,
    "empty": empty_run,
    "hostile": hostile_run,
}
SUFFIX = {
    Format.TEXT: "txt",
    Format.JSON: "json",
    Format.JUNIT: "xml",
    Format.PROMETHEUS: "prom",
    Format.HTML: "html",
}


def data_of(name: str, *, values: bool = True) -> Report:
    store = store_at_fixed_times()
    return read_report(store, RUNS[name](store), ReportOptions(values=values))


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("name", ["match", "mismatch", "unfinished", "empty"])
def test_snapshot(name: str, form: Format) -> None:
    """Set REGEN=1 to write the snapshots anew, then read the difference before you keep it."""
    text = render(data_of(name), form)
    if form is Format.HTML:  # the style sheet and the script are files of their own
        text = re.sub(r"(?s)<(style|script)>.*?</\1>", r"<\1></\1>", text)
        text = re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", text)
    file = SNAPSHOTS / f"report_{name}.{SUFFIX[form]}"
    if os.environ.get("REGEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", list(Format))
def test_masked_values_appear_nowhere(form: Format) -> None:
    text = render(data_of("mismatch", values=False), form)
    assert "ann@example.org" not in text
    assert "Zürich" not in text
    assert "1234.5600" not in text


@pytest.mark.parametrize("form", list(Format))
def test_every_form_can_be_written_with_hostile_names(form: Format, tmp_path: Path) -> None:
    file = tmp_path / "report"
    write_report(file, render(data_of("hostile"), form))
    text = file.read_bytes().decode("utf-8")
    allowed = "\n\t" if form in {Format.PROMETHEUS, Format.HTML} else "\n"
    if form is not Format.PROMETHEUS:  # its label values are raw UTF-8 by definition
        assert [c for c in text if (not c.isprintable()) and c not in allowed] == []


# --- JSON


def test_json_has_exactly_the_agreed_keys() -> None:
    run = json.loads(render(data_of("mismatch"), Format.JSON))
    assert list(run) == ["run_id", "verdict", "exit_code", "seconds", "tables", "schema_version", "next_steps"]
    assert (run["verdict"], run["exit_code"], run["seconds"]) == ("MISMATCH", 1, 75.25)
    accounts = run["tables"][0]
    agreed = {
        "source", "target", "verdict", "reasons", "rows_source", "rows_target", "chunks", "lanes", "row_diffs",
        "not_covered", "seconds",
    }  # fmt: skip
    assert agreed <= set(accounts)
    assert (accounts["source"], accounts["target"]) == ("shop.accounts", "shop.accounts")
    assert accounts["row_diffs"] == {"missing_on_target": 1, "missing_on_source": 3, "value_differs": 11}
    assert accounts["not_covered"] == [
        {"what": "column `geo`", "reason": "its type POINT has no canonical text on TiDB"}
    ]
    assert accounts["row_diff_samples"]["stored"] == 16


def test_json_of_a_run_without_end_has_nulls_not_zeros() -> None:
    run = json.loads(render(data_of("unfinished"), Format.JSON))
    assert run["seconds"] is None
    assert run["tables"][2]["rows_source"] is None
    assert run["tables"][2]["reasons"]


def test_what_grants_hide_has_a_next_step_that_shows_it() -> None:
    store = FakeStore()
    run = start(store)
    store.add_table_result(run, result("a"))
    hidden = f"source: u may read a part of database a only, and {UNSEEN} compared: GRANT SELECT ON `a`.*"
    store.finish_run(run, Verdict.INCONCLUSIVE, {"reasons": [hidden], "seconds": 1.0})
    commands = [step.command for step in read_report(store, run).next_steps]
    assert commands[:2] == ["migverify config --grants", "migverify tables verify"]


def test_the_head_of_a_run_by_since_says_what_it_rests_on() -> None:
    store = FakeStore()
    run = start(store, facts={"since_run": "R1"})
    store.add_table_result(run, result("a"))
    store.finish_run(run, Verdict.MATCH, {"reasons": [], "seconds": 1.0})
    assert "rows written since run R1 read, the others rest on it" in render(read_report(store, run), Format.TEXT)


def test_json_holds_any_details() -> None:
    store = FakeStore()
    run = start(store)
    details = {"nan": math.nan, "bytes": b"\xff", "big": 2**63, "set": {2, 1}, "deep": {"v": Verdict.MATCH}}
    store.add_table_result(run, result("a", details=details))
    got = json.loads(render(read_report(store, run), Format.JSON))["tables"][0]["details"]
    assert got == {"nan": "nan", "bytes": "b'\\xff'", "big": 2**63, "set": [1, 2], "deep": {"v": "MATCH"}}


def test_json_names_come_back_as_they_are() -> None:
    run = json.loads(render(data_of("hostile"), Format.JSON))
    assert {table["target"] for table in run["tables"]} == set(HOSTILE)


# --- text


def test_text_states_what_it_leaves_out() -> None:
    store = FakeStore()
    data = read_report(store, large_run(store, 200), ReportOptions(sections=3))
    text = render(data, Format.TEXT)
    assert "row diffs (showing 20 of 30)" in text
    assert "Details of 197 more table pairs are left out (cap: 3). 4 of them are not MATCH." in text


def test_text_tells_absent_from_null() -> None:
    store = FakeStore()
    run = start(store)
    column = ColumnDiff("c", "x", None, "value")
    store.add_row_diffs(run, [row_diff("a", 1, DiffKind.MISSING_ON_TARGET, column)])
    store.add_row_diffs(run, [row_diff("a", 2, DiffKind.VALUE_DIFFERS, column)])
    store.add_table_result(run, result("a", Verdict.MISMATCH))
    text = render(read_report(store, run, ReportOptions(values=True)), Format.TEXT)
    assert "c (value): 'x' -> absent" in text
    assert "c (value): 'x' -> NULL" in text


# --- JUnit


def suite(data: Report) -> ElementTree.Element:
    root = ElementTree.fromstring(render(data, Format.JUNIT).encode())  # noqa: S314 - our own text
    return root[0]


def test_junit_has_a_test_case_per_table_pair() -> None:
    cases = suite(data_of("mismatch")).findall("testcase")
    problems = {case.get("name"): [child.tag for child in case] for case in cases}
    assert problems == {
        "shop.accounts": ["failure"],
        "shop.audit_log -> archive.audit_log": ["failure"],
        "shop.customers": [],
        "shop.payments": ["error"],
    }


@pytest.mark.parametrize("name", RUNS)
def test_junit_counts_are_those_of_its_cases(name: str) -> None:
    element = suite(data_of(name))
    cases = element.findall("testcase")
    assert int(element.get("tests", "")) == len(cases)
    assert int(element.get("failures", "")) == len(element.findall("testcase/failure"))
    assert int(element.get("errors", "")) == len(element.findall("testcase/error"))


def test_junit_is_never_green_without_a_match() -> None:
    store = FakeStore()
    run = start(store)
    store.add_table_result(run, result("a"))
    for data in (data_of("empty"), data_of("unfinished"), read_report(store, run)):
        assert int(suite(data).get("errors", "")) > 0
    store.finish_run(run, Verdict.MISMATCH, {})
    assert int(suite(read_report(store, run)).get("failures", "")) == 1


@given(st.text())
def test_junit_is_well_formed_for_any_name(name: str) -> None:
    store = FakeStore()
    run = start(store)
    store.add_table_result(run, result("a", Verdict.MISMATCH, source=name, target=name, reasons=(name,)))
    text = render(read_report(store, run), Format.JUNIT)
    ElementTree.fromstring(text.encode())  # noqa: S314 - our own text


# --- Prometheus

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\n"])*)"')


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Parse the text format strictly: each metric typed before its samples, in one block, no sample twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    typed: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
            assert typed.count(typed[-1]) == 1
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == typed[-1]
            labels = frozenset((n, _unescape(v)) for n, v in _LABEL.findall(match[2] or ""))
            assert (match[1], labels) not in found
            found[match[1], labels] = float(match[3])
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def test_prometheus_verdicts_rows_and_diffs() -> None:
    got = samples(render(data_of("mismatch"), Format.PROMETHEUS))
    run = {dict(labels)["verdict"]: v for (name, labels), v in got.items() if name == "migverify_run_verdict"}
    assert run == {"MATCH": 0, "MISMATCH": 1, "INCONCLUSIVE": 0}
    payments = frozenset({"pair": "payments", "source": "shop.payments", "target": "shop.payments"}.items())
    assert math.isnan(got["migverify_table_rows", payments | {("side", "target")}])
    assert got["migverify_table_rows", payments | {("side", "source")}] == 1000
    assert got["migverify_table_verdict", payments | {("verdict", "INCONCLUSIVE")}] == 1
    assert got["migverify_table_chunks", payments | {("state", "failed")}] == 1
    assert got["migverify_run_exit_code", frozenset()] == 1


def test_prometheus_labels_come_back() -> None:
    text = render(data_of("hostile"), Format.PROMETHEUS)
    got = {dict(labels).get("target") for _, labels in samples(text)}
    assert {escaped(name) for name in HOSTILE} <= got


def escaped(name: str) -> str:
    """A name whose characters that a terminal would act on are escapes; a line break has one of its own."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return "".join(f"\\u{ord(c):04x}" if c != "\n" and category(c) in hidden else c for c in name)


# --- HTML


class Page(HTMLParser):
    """Collects what a browser would load, run or link to, and the visible text."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.handlers: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key in {"src", "href", "action", "data", "poster", "srcset", "xlink:href", "formaction"}:
                self.urls.append(value or "")
            if key.startswith("on") or key == "style":
                self.handlers.append(f"{key}={value}")
            if key == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.mark.parametrize("name", RUNS)
def test_html_is_well_nested_and_asks_for_nothing_outside(name: str) -> None:
    text = render(data_of(name), Format.HTML)
    page = Page(text)
    assert page.open == []
    assert all(url.startswith("#") or url == "data:," for url in page.urls)
    assert page.handlers == []
    assert page.tags.count("script") == (0 if name == "empty" else 1)  # without a table, nothing to sort
    assert not {"iframe", "object", "embed", "img", "base"} & set(page.tags)
    assert not re.search(r"@import|url\(|https?://|fetch\(|XMLHttpRequest", text.split("</style>")[0])
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest|innerHTML|eval\(", "".join(page.scripts))
    assert len(page.ids) == len(set(page.ids))
    assert {url[1:] for url in page.urls if url.startswith("#")} <= set(page.ids)
    assert "default-src &#39;none&#39;" in text


def test_html_policy_names_the_hash_of_what_the_page_holds() -> None:
    import base64
    import hashlib

    text = render(data_of("match"), Format.HTML)
    for tag in ("style", "script"):
        found = re.search(rf"(?s)<{tag}>(.*?)</{tag}>", text)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in text.replace("&#39;", "'")


def test_html_marks_the_differing_characters() -> None:
    text = render(data_of("mismatch"), Format.HTML)
    assert '<code dir="ltr">Müller<mark><span class="esc">␣</span></mark></code>' in text
    assert '<code dir="ltr"><mark>A</mark>nn@example.org</code>' in text
    assert '<span class="word">empty string</span>' in text
    assert '<span class="word">NULL</span>' in text
    assert '<mark><span class="esc">\\u202e</span></mark>' in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    assert "4,900 characters before…" in text


def test_html_shows_every_hostile_name_as_text() -> None:
    page = Page(render(data_of("hostile"), Format.HTML))
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert "rtl\\u202eabc\\u2066" in page.text
    assert "x" * 495 in page.text


def test_html_of_two_thousand_tables_lists_all_and_states_its_caps() -> None:
    store = FakeStore()
    data = read_report(store, large_run(store, 2_000), ReportOptions(sections=50))
    text = render(data, Format.HTML)
    assert text.count('<tr data-v="') == 2_000
    assert text.count('<details class="pair"') == 50
    assert "Details of 50 of 2,000 table pairs" in text
    assert "20 of them are not MATCH" in text
    assert "The slowest 20 of 2,000." in text
    assert len(text) < 3_000_000


def test_html_states_how_many_row_diffs_are_shown() -> None:
    store = FakeStore()
    run = start(store)
    store.add_row_diffs(run, [row_diff("a", n, DiffKind.VALUE_DIFFERS, VALUE_DIFFS[0]) for n in range(250)])
    store.add_table_result(run, result("a", Verdict.MISMATCH, value_differs=300))
    text = render(read_report(store, run), Format.HTML)
    assert "Showing 200 of 250 stored" in text
    assert "counts 300 rows: copies of one row are stored once" in text
    assert "Values are masked." in text


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_html_contrast_is_readable_in_light_and_dark() -> None:
    style = render(data_of("match"), Format.HTML).split("<style>")[1].split("</style>")[0]
    for scheme in re.findall(r"(?s):root \{(.*?)\}", style)[:2]:
        colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for ink in ("text", "dim", "link", "match", "mismatch", "inconclusive", "esc"):
            for paper in ("bg", "card"):
                assert _contrast(colors[ink], colors[paper]) >= 4.5, (ink, paper)
        assert _contrast(colors["text"], colors["mark"]) >= 4.5
        assert _contrast(colors["esc"], colors["mark"]) >= 4.5
    for color in re.findall(r"header\.\w+ \{ background: (#[0-9a-f]{6})", style):
        assert _contrast("#ffffff", color) >= 4.5


# --- files


def test_format_of_a_file() -> None:
    names = {"a.html": Format.HTML, "a.JSON": Format.JSON, "a.xml": Format.JUNIT, "a.prom": Format.PROMETHEUS}
    assert {name: format_of(Path(name)) for name in names} == names
    assert format_of(Path("a.txt")) is format_of(None) is Format.TEXT


def test_notes_of_many_columns_are_one_line_for_each_cause() -> None:
    """However many columns have another collation, the text names the cause once; JSON lists every column."""
    text = "utf8mb4_0900_ai_ci became utf8mb4_bin: the target is stricter"
    notes = [
        ("shop.a", SchemaDifference("collation", f"c{n}", "x", "y", SchemaClass.MAY_LOSE_DATA, f"column c{n}: {text}"))
        for n in range(30)
    ]
    notes += [
        ("shop.b", notes[0][1]),
        ("shop.b", replace(notes[0][1], where="key k", message="key k: the comments differ")),
    ]
    assert list(schema_lines(notes)) == [
        f"may-lose-data: 31 columns of 2 tables, the first shop.a: c0: {text}",
        "may-lose-data: shop.b: key k: the comments differ",
    ]
    assert list(schema_lines([("", notes[0][1])])) == [f"may-lose-data: c0: {text}"]
