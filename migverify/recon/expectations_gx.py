"""Great Expectations itself: imported here only, and only when a suite runs (it takes seconds).

It works on a connection that migverify opened and pinned, so no password and no address ever reach it. It gets no
context, no project folder and no data source of its own: nothing is written to disk, and nothing leaves the machine.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from html import escape
from importlib import import_module
from types import ModuleType
from typing import Any

from migverify.errors import ConfigError
from migverify.model import ColumnDef
from migverify.recon.expectation_suite import Expectation, texts

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # versions before 1.20 would call home on import

INSTALL = "pip install 'migverify[expectations]'"
_NUMBER = "migverify_number"
_COUNTS = ("element_count", "unexpected_count", "missing_count")
_OUTSIDE = re.compile(
    r"<script\b[^>]*\bsrc\s*=[^>]*>.*?</script\s*>|<link\b[^>]*>|<(?:img|iframe|source)\b[^>]*\bsrc\s*=\s*[\"']?"
    r"(?:https?:)?//[^>]*>|@import[^;]*;|url\(\s*[\"']?(?:https?:)?//[^)]*\)",
    re.IGNORECASE | re.DOTALL,
)
_POLICY = (
    '<meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)
# What the page took from the network: enough of a grid, tables and badges to read it on paper.
_STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1100px; padding: 0 1rem; color: #1d2733; }
footer, nav, form, .card:has(input), .card:has(nav), [data-toggle="collapse"] { display: none !important; }
.navbar, .breadcrumb, .modal, #ge-cta-footer, .cta-footer, button, .popover, .fa-bars { display: none !important; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.2rem; }
th, td { border: 1px solid #d4dbe3; padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: #f3f6f9; }
h1, h2, h3, h4, h5 { line-height: 1.2; margin: 1.2rem 0 .4rem; }
.alert, .card { border: 1px solid #d4dbe3; border-radius: 6px; padding: .6rem 1rem; margin: .6rem 0; }
.badge { border: 1px solid #9aa7b5; border-radius: 4px; padding: 0 .35em; background: #f3f6f9; }
.text-success, .fa-check-circle { color: #1a7f37; } .text-danger, .fa-times { color: #b42318; }
.fa-check-circle::before { content: "\\2713"; } .fa-times::before { content: "\\2717"; }
.fa-exclamation-triangle::before { content: "\\26A0"; }
ul, ol { padding-left: 1.4rem; } code, pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.collapse:not(.show) { display: block; } .hide-succeeded-validation-target { display: table-row; }
</style>"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one expectation, whoever computed it.

    ``success`` None: not known, and ``reason`` says why. ``result`` has the shape of Great Expectations; ``unexpected``
    is the exact number of rows that do not hold, None where it speaks of no rows. ``rows`` are at most ``limit`` of
    these, as column -> value.
    """

    expectation: Expectation
    success: bool | None
    result: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    considered: int | None = None
    unexpected: int | None = None
    rows: tuple[dict[str, Any], ...] = ()


def load() -> ModuleType:
    """Import Great Expectations.

    Raises
    ------
    ConfigError
        It is not installed; the hint holds the command.
    """
    # Its remarks hold statements and values, and belong to nobody's terminal; what it raises is reported.
    logger = logging.getLogger("great_expectations")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    try:
        return import_module("great_expectations")
    except ImportError as error:
        raise ConfigError(
            f"rules of kind expectations need Great Expectations, which cannot be imported: {error}",
            hint=f"Install it: {INSTALL}",
        ) from error


def answer_all(
    engine: Any, select: str, columns: Sequence[ColumnDef], asked: Sequence[Expectation], *,
    shown: Sequence[str], limit: int, keep: bool,
) -> list[Answer]:  # fmt: skip
    """Have Great Expectations compute expectations over the rows of a SELECT, without temporary tables.

    Parameters
    ----------
    engine
        An SQLAlchemy engine whose connection is pinned and read-only.
    shown
        Columns of the rows that do not hold.
    limit
        Most rows per expectation.
    keep
        Whether rows that do not hold are listed; else they are counted only.
    """
    if not asked:
        return []
    load()
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    configurations = []
    for one in asked:
        arguments = {name: _plain(value) for name, value in one.arguments.items()}
        if one.mostly != 1:
            arguments["mostly"] = float(one.mostly)
        configurations.append(ExpectationConfiguration(type=one.type, kwargs=arguments, meta={_NUMBER: one.number}))
    result_format: dict[str, Any] = {
        "result_format": "SUMMARY" if keep else "BASIC", "partial_unexpected_count": limit if keep else 0,
        "include_unexpected_rows": False, "exclude_unexpected_values": not keep,
    }  # fmt: skip
    if keep:
        result_format["unexpected_index_column_names"] = list(shown)
    validator = _validator(engine, select, columns)
    # One by one: an expectation whose arguments are wrong must not take the others with it.
    return [_one(validator, one, made, result_format) for one, made in zip(asked, configurations, strict=True)]


def _one(validator: Any, one: Expectation, configuration: Any, result_format: dict[str, Any]) -> Answer:
    try:
        results = validator.graph_validate(
            configurations=[configuration], runtime_configuration={"result_format": dict(result_format)}
        )
    except Exception as error:  # noqa: BLE001  whatever a foreign library raises leaves the expectation unanswered
        return Answer(one, None, reason=f"{type(error).__name__}: {_short(str(error))}")
    if len(results) != 1:
        return Answer(one, None, reason=f"Great Expectations gave {len(results)} results for it")
    return _answer(one, results[0])


def _answer(one: Expectation, given: Any) -> Answer:
    raised = _exception_of(given.exception_info)
    result = dict(given.result or {})
    for name in _COUNTS:
        if result.get(name) is not None:
            result[name] = int(result[name])  # SUM() comes as a decimal, and counts as a float
    if raised is not None:
        return Answer(one, None, reason=raised)
    if given.success is not True and given.success is not False:
        return Answer(one, None, reason="Great Expectations gave neither success nor failure")
    unexpected = result.get("unexpected_count")
    missing = result.get("missing_count") or 0
    considered = None if "element_count" not in result else result["element_count"] - missing
    rows = result.pop("partial_unexpected_index_list", None) or ()
    success = given.success
    if not success and unexpected == 0:
        return Answer(one, None, reason="Great Expectations calls it failed and counts no row that fails")
    if unexpected and considered:
        # Its own share is a float: one row in 10^17 would be none.
        success = Fraction(considered - unexpected, considered) >= Fraction(one.mostly)
    return Answer(one, success, _sparse(result), "", considered, unexpected, tuple(rows))


def _exception_of(info: Any) -> str | None:
    """Return what was raised, None for nothing; the information is one mapping, or one per metric."""
    if not isinstance(info, Mapping):
        return None
    several = [part for part in info.values() if isinstance(part, Mapping)] or [info]
    said = [str(part.get("exception_message") or part.get("exception_traceback") or "an exception without a message")
            for part in several if part.get("raised_exception")]  # fmt: skip
    return "; ".join(dict.fromkeys(_short(text) for text in said)) or None


def _short(text: str) -> str:
    said = " ".join(text.partition("[SQL:")[0].split())  # SQLAlchemy appends the statement and its values
    return said[:500] if said else "no message"


def _sparse(value: Any) -> Any:
    """Return a result without floats made of decimals: numbers of the database become text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        return {key: _sparse(part) for key, part in value.items() if key != "unexpected_index_query"}
    return [_sparse(part) for part in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Return an argument as Great Expectations takes it: its models know no Decimal."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _validator(engine: Any, select: str, columns: Sequence[ColumnDef]) -> Any:
    import sqlalchemy as sa
    from great_expectations.core.batch import Batch
    from great_expectations.execution_engine import SqlAlchemyExecutionEngine
    from great_expectations.execution_engine.sqlalchemy_batch_data import SqlAlchemyBatchData
    from great_expectations.validator.validator import Validator

    class Described:
        """What the inspector of SQLAlchemy would read from a catalog; a SELECT stands in none."""

        dialect = engine.dialect

        def get_columns(self, **_: Any) -> list[dict[str, Any]]:
            return [{"name": column.name, "type": sa.Text()} for column in columns]

        def get_pk_constraint(self, **_: Any) -> dict[str, Any]:
            return {}

    execution = SqlAlchemyExecutionEngine(engine=engine, create_temp_table=False)
    execution.get_inspector = Described
    # A colon of the SELECT is a colon, not a parameter; SQLAlchemy takes one backslash away again.
    rows = sa.text(select.replace(":", "\\:")).columns(*[sa.column(column.name) for column in columns])
    data = SqlAlchemyBatchData(
        execution_engine=execution, selectable=rows, create_temp_table=False, source_table_name="batch"
    )
    validator = Validator(execution_engine=execution, batches=[Batch(data=data)])
    validator.metrics_calculator.show_progress_bars = False
    return validator


def as_json(name: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the result of a suite in the shape of Great Expectations; numbers of the database are texts."""
    return dict(_suite_result(name, answers).to_json_dict())


def as_html(name: str, answers: Sequence[Answer]) -> str:
    """Return the page of Great Expectations for a result, without anything that a browser would fetch."""
    load()
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    result = _suite_result(name, answers)
    try:
        page = str(DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(result)))
    except Exception as error:  # noqa: BLE001  a page that cannot be drawn must not cost the result
        page = _plain_page(name, answers, f"{type(error).__name__}: {_short(str(error))}")
    return offline(page)


def _plain_page(name: str, answers: Sequence[Answer], why: str) -> str:
    """Return a page of our own, for results that Great Expectations cannot draw (arguments it does not know)."""
    words = {True: "holds", False: "does not hold", None: "not answered"}
    rows = "".join(
        f"<tr><td>{escape(words[a.success])}</td><td>{escape(a.expectation.label)}</td>"
        f"<td>{escape(a.reason or json.dumps(_shown(_sparse(a.result)), ensure_ascii=False, default=str))}</td></tr>"
        for a in answers
    )
    return (
        f"<!doctype html><html><head><meta charset='utf-8'><title>{escape(name)}</title></head><body>"
        f"<h1>{escape(name)}</h1><p>Great Expectations could not draw this page: {escape(why)}</p>"
        f"<table><tr><th>Status</th><th>Expectation</th><th>Observed</th></tr>{rows}</table></body></html>"
    )


def offline(page: str) -> str:
    """Return a page without scripts, style sheets and images of other hosts, and with a policy that forbids them."""
    bare = re.sub(r"<script\b.*?</script\s*>", "", _OUTSIDE.sub("", page), flags=re.IGNORECASE | re.DOTALL)
    # Its links lead to a site of Great Expectations that is not there, and to the maker's newsletter.
    bare = re.sub(r"<footer\b.*?</footer\s*>", "", bare, flags=re.IGNORECASE | re.DOTALL)
    bare = re.sub(r"\shref\s*=\s*(\"[^#\"][^\"]*\"|'[^#'][^']*')", "", bare, flags=re.IGNORECASE)
    head = re.search(r"<head[^>]*>", bare, re.IGNORECASE)
    if head is None:
        return f"<!doctype html><html><head>{_POLICY}{_STYLE}</head><body>{bare}</body></html>"
    return f"{bare[: head.end()]}{_POLICY}{_STYLE}{bare[head.end() :]}"


def _suite_result(name: str, answers: Sequence[Answer]) -> Any:
    gx = load()
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    results = []
    for answer in answers:
        one = answer.expectation
        arguments = {key: _shown(value) for key, value in one.arguments.items()}
        if one.mostly != 1:
            arguments["mostly"] = float(one.mostly)
        result = dict(answer.result)
        if answer.success is None and one.type == "expect_table_columns_to_match_ordered_list":
            result.setdefault("observed_value", [])  # the page looks there without asking
        raised = {"raised_exception": answer.success is None, "exception_message": answer.reason or None,
                  "exception_traceback": ""}  # fmt: skip
        meta = {_NUMBER: one.number, "computed_by": "great_expectations" if one.how.value == "great_expectations"
                else "migverify"}  # fmt: skip
        results.append(ExpectationValidationResult(
            success=bool(answer.success), result=_sparse(result), exception_info=raised,
            expectation_config=ExpectationConfiguration(
                type=one.type, kwargs=arguments, meta=meta, **({"notes": one.description} if one.description else {})
            ),
        ))  # fmt: skip
    now = datetime.now(UTC).isoformat(timespec="seconds")
    good = sum(answer.success is True for answer in answers)
    statistics = {"evaluated_expectations": len(answers), "successful_expectations": good,
                  "unsuccessful_expectations": len(answers) - good,
                  "success_percent": 100.0 * good / len(answers) if answers else None}  # fmt: skip
    return ExpectationSuiteValidationResult(
        results=results, success=bool(answers) and good == len(answers), suite_name=name, statistics=statistics,
        meta={"great_expectations_version": gx.__version__, "run_id": {"run_name": name, "run_time": now}},
    )  # fmt: skip


def _shown(value: Any) -> Any:
    if isinstance(value, Decimal):
        return texts([value])[0]
    if isinstance(value, Mapping):
        return {key: _shown(part) for key, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list | tuple) else value
